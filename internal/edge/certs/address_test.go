package certs

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// Of reports each site's certificate as active, expired, failed or pending. It is always active if the local authority
// signs, if the shared wildcard certificate is active, or if the site domain isn't a public name.
func TestStatesOfSitesCertificates(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	insert := func(host string, state State, reason string, ends time.Duration) {
		t.Helper()
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `
				INSERT INTO certificates (`+columns+`, changed_at) VALUES ($1, 'site', '', 0, $2, 'sealed', 'Authority', 1, $3, 0, 0, $4, 0, 0, 0, 0, 1)`,
				host, state, db.At(time.Now().Add(ends)), reason)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	insert("blog.sites.example.com", Active, "", time.Hour)
	insert("old.sites.example.com", Active, "", -time.Hour)
	insert("bad.sites.example.com", Failed, "refused", time.Hour)
	insert("gone.sites.example.com", "gone", "", time.Hour)
	labels := []string{"blog", "old", "bad", "gone", "new"}
	states := func(a Addresses) string {
		t.Helper()
		s, err := a.Of(t.Context(), d, labels)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, label := range labels {
			out = append(out, string(s.Of(label).State))
		}
		return strings.Join(out, " ")
	}
	own := Addresses{SiteDomain: "sites.example.com", Public: true}
	shared := Addresses{SiteDomain: "sites.example.com", Public: true, Shared: true}
	for name, tt := range map[string]struct {
		a    Addresses
		want string
	}{
		"local":        {Addresses{SiteDomain: "sites.example.com"}, "active active active active active"},
		"own":          {own, "active expired failed pending pending"},
		"not yet":      {shared, "active expired failed pending pending"},
		"not a domain": {Addresses{SiteDomain: "localhost", Public: true}, "active active active active active"},
	} {
		if got := states(tt.a); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if s, _ := own.Of(t.Context(), d,
		labels); s.Of("bad").Reason != "refused" || s.Of("blog").Issuer != "Authority" || s.Of("new").Reason == "" {
		t.Errorf("%+v", s)
	}
	insert("*.sites.example.com", Active, "", time.Hour)
	if got, want := states(shared), "active active active active active"; got != want {
		t.Errorf("with a wildcard: %s, want %s", got, want)
	}
	if got, want := states(own), "active expired failed pending pending"; got != want {
		t.Errorf("a wildcard that sites don't share: %s, want %s", got, want)
	}
	many := make([]string, 1200)
	for i := range many {
		many[i] = "x"
	}
	if s, err := own.Of(t.Context(), d, append(many, "blog")); err != nil || s.Of("blog").State != Active {
		t.Errorf("of many: %v %v", s.Of("blog"), err)
	}
}
