package site_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// Importing a site's exported variables into another site gives every environment the same variables, including
// branch-specific ones.
func TestImportAgreesWithExport(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	from, to := r.create(t, anna, "From"), r.create(t, anna, "To")
	r.setEnv(t, from.ID,
		site.NewVar{Key: "BOTH", Value: "1", Secret: true}, site.NewVar{Key: "BOTH", Value: "2", Branch: "feature/*"},
		site.NewVar{
			Key:    "BOTH",
			Value:  "3",
			Branch: "feature/cart*",
			Target: []string{"build"},
		}, site.NewVar{Key: "LIVE", Value: "4", Target: []string{"runtime", "production"}},
		site.NewVar{
			Key:    "LIVE",
			Value:  "5",
			Target: []string{"preview"},
		}, site.NewVar{Key: "LIVE", Value: "6", Branch: "staging"}, site.NewVar{Key: "ONLY", Value: "7", Branch: "staging"})
	r.setEnv(t, to.ID, site.NewVar{Key: "OLD", Value: "x", Branch: "main"})
	out, err := r.Export(ctx, from.ID)
	if err != nil {
		t.Fatal(err)
	}
	var back site.Export // read back as a backup stores it
	if text, err := json.Marshal(out); err != nil || json.Unmarshal(text, &back) != nil {
		t.Fatal(err)
	}
	sealed, err := r.SealEnv(to.ID, back.Env)
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, func(tx *db.Tx) error { return r.ImportTx(ctx, tx, anna, to.ID, back, sealed) })
	see := func(id site.ID, of, scope, branch string) (list []string) {
		vars, err := r.Variables(ctx, id, of, scope, branch)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vars {
			list = append(list, v.Key+"="+v.Value)
		}
		return list
	}
	seen := map[string]bool{}
	for _, of := range []string{"build", "runtime"} {
		for _, where := range [][2]string{
			{"production", "main"},
			{"preview", "main"},
			{"preview", "feature/a"},
			{"preview", "feature/cart-2"},
			{"preview", "staging"},
		} {
			want, got := see(from.ID, of, where[0], where[1]), see(to.ID, of, where[0], where[1])
			if !slices.Equal(got, want) {
				t.Errorf("%s in %s of %s: imported %v, exported %v", of, where[0], where[1], got, want)
			}
			seen[strings.Join(want, " ")] = true
		}
	}
	if len(seen) < 6 {
		t.Errorf("the environments hardly differ: %v", seen)
	}
}

// connected is the credential of a connected account.
type connected fetch.Credential

func (c connected) CredentialOf(context.Context, site.ID, string) (*fetch.Credential, error) {
	return (*fetch.Credential)(&c), nil
}

// A site's export includes its own credential but never a connected account's token, because another person may restore
// the backup.
func TestExportHoldsNoConnectedToken(t *testing.T) {
	t.Parallel()
	const theirs, own = "token-of-the-connected-account", "token-of-the-site"
	r := open(t, func(c *site.Config) {
		c.Connections = connected{Host: "git.test", Token: theirs}
	})
	ctx := t.Context()
	shared := r.create(t, anna, "Connected")
	alone, err := r.Create(ctx, anna, site.NewSite{
		Name:       "Alone",
		Type:       "static",
		Repository: "git.test/acme/other",
		Credential: &fetch.Credential{Token: own},
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[site.ID]string{shared.ID: theirs, alone.ID: own} {
		s, err := r.ByID(ctx, r.db, id)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := r.CredentialOf(ctx, s); err != nil || c == nil || c.Token != want {
			t.Fatalf("%s is read with %v, %v", s.Name, c, err)
		}
		out, err := r.Export(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), theirs) {
			t.Errorf("%s exports the connected account's token: %s", s.Name, text)
		}
		if strings.Contains(string(text), own) != (want == own) {
			t.Errorf("%s: the site's own credential: %s", s.Name, text)
		}
	}
}
