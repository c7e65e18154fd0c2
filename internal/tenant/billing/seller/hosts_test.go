package seller

import (
	"errors"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/billing"
)

// A seller's host works as soon as the operator sets it. Hosts of the installation, of a site or of another seller are
// refused, and without billing there are none.
func TestHosts(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := NewHosts(HostsConfig{DB: d, BaseURL: "https://panel.test:8443", Own: []string{"panel.test"}, SiteDomain: "sites.example"})
	write := func(fn func(tx *db.Tx) error) error { t.Helper(); return d.Write(t.Context(), fn) }
	set := func(id, host string) error {
		return write(func(tx *db.Tx) error { return h.SetTx(t.Context(), tx, id, host) })
	}
	if h.Has("panel.harbor.test") || (*Hosts)(nil).Has("panel.harbor.test") {
		t.Error("there is a host before there is a seller")
	}
	other := Seller{ID: "other", Name: "Other", Series: "OT"}
	if err := write(func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO domain_routes (host, site_id, redirect_to, state, version, changed_at) VALUES
			('shop.test', 'site_a', '', 'active', 1, 0), ('*.wild.test', 'site_a', '', 'active', 2, 0), ('gone.test', 'site_a', '', 'deleted', 3, 0)`); err != nil {
			return err
		}
		if err := SaveTx(t.Context(), tx, other); err != nil {
			return err
		}
		return SaveTx(t.Context(), tx, harbor)
	}); err != nil {
		t.Fatal(err)
	}
	if err := set("harbor", " Panel.Harbor.test. "); err != nil {
		t.Fatal(err)
	}
	for host, code := range map[string]string{
		"panel.test": "invalid_host", "sites.example": "invalid_host", "a.sites.example": "invalid_host", "panel.test:8443": "invalid_host",
		"harbor": "invalid_host", "192.0.2.1": "invalid_host", "häfen.test": "invalid_host", "*.harbor.test": "invalid_host",
		"shop.test": "host_taken", "a.wild.test": "host_taken", "panel.harbor.test": "host_taken",
	} {
		if f := fault.As(set("other", host)); f == nil || f.Code != code {
			t.Errorf("%s: %v, want %s", host, f, code)
		}
	}
	if err := set("nobody", "panel.other.test"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := set("other", "gone.test"); err != nil { // no site uses it any longer
		t.Error(err)
	}
	if err := set("other", ""); err != nil {
		t.Error(err)
	}
	if err := h.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"panel.harbor.test", "Panel.Harbor.test:8443", "panel.harbor.test."} {
		if p, ok := h.At(host); !ok || p.Seller != "harbor" || p.Brand.Name != "Harbor" || p.URL != "https://panel.harbor.test:8443" {
			t.Errorf("%s: %+v %t", host, p, ok)
		}
	}
	for _, host := range []string{"", "harbor.test", "a.panel.harbor.test", "gone.test", "panel.test"} {
		if h.Has(host) {
			t.Errorf("%s is a seller's", host)
		}
	}
	go h.Run(t.Context())
	if err := set("harbor", "new.harbor.test"); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the new host", func() bool { return h.Has("new.harbor.test") && !h.Has("panel.harbor.test") })

	// When two sellers get the same host at the same time, one of them gets it.
	for range 20 {
		var errs [2]error
		var both sync.WaitGroup
		for n, id := range []string{"harbor", "other"} {
			both.Go(func() { errs[n] = set(id, "both.test") })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("two sellers with one host: %v", errs)
		}
		if err := errors.Join(set("harbor", "new.harbor.test"), set("other", "")); err != nil {
			t.Fatal(err)
		}
	}

	// A stored host that later settings forbid isn't served.
	later := NewHosts(HostsConfig{DB: d, BaseURL: "https://panel.test", SiteDomain: "harbor.test"})
	if err := later.Read(t.Context()); err != nil || later.Has("new.harbor.test") {
		t.Errorf("served below the sites' domain: %v", err)
	}
	if err := billing.Switch(t.Context(), d, false); err != nil {
		t.Fatal(err)
	}
	if err := h.Read(t.Context()); err != nil || h.Has("new.harbor.test") {
		t.Errorf("there is a host without billing: %v", err)
	}
}
