package backup

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A transfer drops the sender's Git credential: the site has none, and neither a download with secrets nor a restore to
// a new site returns the one in an earlier backup. Later backups include the receiver's credential.
func TestTransferLeavesCredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ben := t.Context(), account.OwnerID("usr_ben")
	s := w.site("shop", map[string]string{"index.html": "hello"})
	credential := func(owner account.OwnerID, token string) {
		ok(t, w.db.Write(ctx, func(tx *db.Tx) error {
			_, err := w.sites.UpdateTx(ctx, tx, owner, s.ID, site.Patch{Credential: &fetch.Credential{Token: token}})
			return err
		}))
	}
	gives := func(owner account.OwnerID, id ID) (config, made string) {
		a, err := w.Open(ctx, owner, id, AllValues)
		ok(t, err)
		var out bytes.Buffer
		ok(t, a.WriteTar(ctx, &out))
		z, err := zstd.NewReader(&out)
		ok(t, err)
		defer z.Close()
		all, err := io.ReadAll(z)
		ok(t, err)
		p, err := w.PlanRestore(ctx, owner, id, RestoreTo{NewName: "again"})
		ok(t, err)
		if p.made.Credential != nil {
			made = p.made.Credential.Token
		}
		return string(all), made
	}
	credential(anna, "annas-token")
	before := w.backUp(s.ID, NewBackup{})
	if all, made := gives(anna, before.ID); !strings.Contains(all, "annas-token") || made != "annas-token" {
		t.Fatalf("the owner's own backup lacks the credential: %q", made)
	}
	ok(t, w.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := w.MoveSiteTx(ctx, tx, s.ID, anna, ben); err != nil {
			return err
		}
		_, err := w.sites.MoveSiteTx(ctx, tx, s.ID, anna, ben)
		return err
	}))
	moved, err := w.sites.Get(ctx, ben, s.ID)
	ok(t, err)
	if c, err := w.sites.CredentialOf(ctx, moved); err != nil || c != nil || moved.Credential {
		t.Errorf("the receiver deploys with the sender's credential: %v, %v", c, err)
	}
	if all, made := gives(ben, before.ID); strings.Contains(all, "annas-token") || made != "" {
		t.Error("the receiver gets the sender's credential from a backup, or a restored site has it")
	}
	credential(ben, "bens-token")
	var after Backup
	ok(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		after, err = w.CreateTx(ctx, tx, ben, s.ID, NewBackup{Type: Manual})
		return err
	}))
	w.until("the receiver's backup is taken", func() bool {
		after, err = w.Get(ctx, ben, after.ID)
		ok(t, err)
		return after.Status == Completed
	})
	if all, made := gives(ben, after.ID); !strings.Contains(all, "bens-token") || made != "bens-token" {
		t.Errorf("the receiver's own backup lacks the credential: %q", made)
	}
}
