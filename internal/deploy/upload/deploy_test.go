package upload

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// If another request deploys an upload between reading it and looking for missing contents, the upload counts as
// complete, although its list of received contents is deleted.
func TestCompleteBesideADeployment(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.New(t), t.Context()
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	u := New(Config{
		DB: d, Blobs: blobs, Releases: release.New(release.Config{Blobs: blobs}),
		Sites: site.New(site.Config{DB: d, Domain: "sites.test"}), Scratch: t.TempDir(),
	})
	const owner = account.OwnerID("usr_ada")
	if err := d.Admin(ctx, `
		INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
			needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
		VALUES ('site_harbor', 'usr_ada', 'Harbor', 'harbor', 'static', '', 'active', '', '', '', '', '{}', '', FALSE, '', '', 0, 1, 1, 0)`); err != nil {
		t.Fatal(err)
	}
	var x Upload
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Write(ctx, func(tx *db.Tx) (err error) {
		x, err = u.CreateTx(ctx, tx, owner, "site_harbor", NewUpload{Kind: Output})
		return err
	}))
	sum := sha256.Sum256([]byte("one"))
	_, _, err = u.PutManifest(ctx, account.Caller{Owner: owner}, x.ID, strings.NewReader(fmt.Sprintf(`{"path":"index.html","sha256":"%x","size":3}`+"\n", sum)))
	must(err)
	_, err = u.ReceiveOne(ctx, owner, x.ID, blob.Digest(sum), 3, strings.NewReader("one"))
	must(err)
	open, err := u.Get(ctx, owner, x.ID)
	must(err)
	whole, err := u.Complete(ctx, owner, x.ID)
	must(err)
	must(d.Write(ctx, func(tx *db.Tx) error {
		_, err := u.TakeTx(ctx, tx, owner, whole)
		return err
	}))
	if again, err := u.complete(ctx, owner, open); err != nil || again != whole {
		t.Errorf("%v, %v", again, err)
	}
}
