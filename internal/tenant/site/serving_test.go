package site_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Serving settings belong to the owner. A patch keeps the fields it omits, and changes notify the edges.
func TestServing(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "Blog")
	update := func(p site.ServingPatch, hash string) (v site.Serving, err error) {
		err = r.db.Write(t.Context(), func(tx *db.Tx) error {
			v, err = r.UpdateServingTx(t.Context(), tx, anna, s.ID, p, hash)
			return err
		})
		return v, err
	}
	text := func(s string) *string { return &s }
	if v, err := r.Serving(t.Context(), r.db, anna, s.ID); err != nil || v.Protection != "none" || v.Hash != "" || len(v.ProxyHosts) != 0 {
		t.Errorf("at first: %+v, %v", v, err)
	}
	if _, err := r.Serving(t.Context(), r.db, ben, s.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	before := r.count(t, `SELECT version FROM live WHERE site_id = $1`, s.ID)
	if _, err := update(site.ServingPatch{Protection: text("all")}, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("protection without a password: %v", err)
	}
	hash, err := site.HashPassword("correct horse")
	if err != nil || !site.VerifyPassword(
		hash,
		"correct horse",
	) || site.VerifyPassword(
		hash,
		"wrong horse",
	) || site.VerifyPassword("", "") || site.VerifyPassword("pbkdf2-sha256$x$y$z", "a") || strings.Contains(hash, "horse") {
		t.Errorf("%q, %v", hash, err)
	}
	if _, err := site.HashPassword("short"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a short password: %v", err)
	}
	if v, err := update(site.ServingPatch{
		Protection: text("previews"),
		Password:   text("correct horse"),
	}, hash); err != nil || v.Protection != "previews" || v.Hash != hash {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := update(site.ServingPatch{
		ProxyHosts: &[]string{"API.example.com ", "api.example.com.", "x.test:8443"},
	}, ""); err != nil || !slices.Equal(v.ProxyHosts, []string{
		"api.example.com",
		"x.test:8443",
	}) || v.Hash != hash || v.Protection != "previews" {
		t.Errorf("%+v, %v", v, err)
	}
	if after := r.count(t, `SELECT version FROM live WHERE site_id = $1`, s.ID); after <= before {
		t.Error("the edges are not told")
	}
	before = r.count(t, `SELECT version FROM live WHERE site_id = $1`, s.ID)
	if _, err := update(site.ServingPatch{
		Protection: text("previews"),
		ProxyHosts: &[]string{"api.example.com", "x.test:8443"},
	}, ""); err != nil || r.count(t, `SELECT version FROM live WHERE site_id = $1`, s.ID) != before {
		t.Errorf("a change of nothing: %v", err)
	}
	for _, bad := range []string{
		"", "localhost", "https://a.test", "a.test/x", "user@a.test", "a..test", ".test", "a.test:0", "a.test:x",
		"[::1]:80",
		strings.Repeat("a.", 200) + "test",
	} {
		if _, err := update(site.ServingPatch{ProxyHosts: &[]string{bad}}, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("host %q: %v", bad, err)
		}
	}
	if _, err := update(site.ServingPatch{ProxyHosts: &[]string{20: "a.test"}}, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("too many hosts: %v", err)
	}
	if _, err := update(site.ServingPatch{Protection: text("some")}, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("another protection: %v", err)
	}
}
