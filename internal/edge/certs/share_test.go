package certs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain"
)

// Hundreds of one owner's names delay neither the certificate of another site's own address nor that of another owner's
// domain. The owner of the many names reads why they wait.
func TestShares(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ *world, c *Config) { c.Workers = 2 })
	w.site("blog")
	w.zone.Set("*.sites.test", "A 127.0.0.1")
	w.pebble.Refuse(503, "serverInternal", "maintenance") // a failed order counts in the ledger too
	i := w.issuers[0]
	w.write(func(tx *db.Tx) error { // mallory's first orders in the ledger
		for n := range ownerOrders {
			if _, err := tx.Exec(t.Context(), "INSERT INTO acme_ledger (id, ca, host, zone, kind, owner_id, class, at) VALUES ($1, $2, $3, $4, 'order', 'mallory', 'custom', $5)",
				db.NewID("x"), i.key, fmt.Sprintf("n%d.mallory.test", n), "mallory.test", db.Now()); err != nil {
				return err
			}
		}
		for n := range 245 { // the other names, verified and routed
			name := fmt.Sprintf("m%d.mallory.test", n)
			if _, err := tx.Exec(t.Context(), `
				INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, proven_at, findings, checks, tries,
				  pending_at, ssl_status, cert_issuer, cert_error, created_at, updated_at)
				VALUES ($1, 'mallory', 'blog', $2, 'mallory.test', 'active', '', FALSE, '', 'txt', 1, '{}', 0, 0, 1, 'pending', '', '', 1, 1)`, db.NewID("dom"), name); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), `
				INSERT INTO domain_routes (host, site_id, redirect_to, state, version, changed_at)
				VALUES ($1, 'blog', '', 'active', (SELECT n + 1 FROM live_version), 1)`, name); err != nil {
				return err
			}
		}
		tx.Notify("live")
		_, err := tx.Exec(t.Context(), "UPDATE live_version SET n = n + 1")
		return err
	})
	count := func(where string) (n int) {
		t.Helper()
		if err := w.db.QueryRow(t.Context(),
			"SELECT count(*) FROM certificates WHERE owner_id = 'mallory' AND "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.until("mallory's names are asked for", func() bool { return count("TRUE") == 245 })
	w.pebble.Restore()
	w.served("blog.sites.test")
	d := w.add("www.customer.test", "blog")
	w.served("www.customer.test")
	w.until("its state is told", func() bool { return w.get(d.ID).SSL == domain.SSLActive })
	w.until("mallory's have been attempted", func() bool { return count("error <> ''") == 245 })
	if n := count("material <> ''"); n != 0 {
		t.Errorf("%d of mallory's were ordered beyond its share", n)
	}
	if said := w.row("m7.mallory.test").err; !strings.Contains(said, "This account has ordered as many") {
		t.Errorf("its owner reads %q", said)
	}
	if row := w.row("m7.mallory.test"); row.failures != 0 || row.nextAt.Sub(db.Now()) < orderWindow/2 {
		t.Errorf("row %+v", row)
	}
}

// An owner who takes a name over with a TXT record sees it as certified at once, with the certificate that visitors
// already get.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	w.site("shop")
	const name = "www.customer.test"
	old := w.add(name, "blog")
	leaf := w.served(name)
	w.until("its holder is told", func() bool { return w.get(old.ID).SSL == domain.SSLActive })
	orders := w.pebble.Orders.Load()
	w.exec("INSERT INTO domain_tokens (owner_id, token) VALUES ('bob', 'slipway-bob')")
	w.zone.Set("_slipway."+name, `TXT "slipway-bob"`)
	d, err := w.domains.Create(t.Context(), "bob", "shop", domain.NewDomain{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = w.domains.Verify(t.Context(), "bob", d.ID); err != nil || d.Status != domain.Active {
		t.Fatalf("got %+v, %v", d, err)
	}
	w.until("the new holder is told", func() bool {
		d, err := w.domains.Get(context.Background(), w.db, "bob", d.ID)
		return err == nil && d.SSL == domain.SSLActive && d.Certificate.ExpiresAt.Time().Equal(leaf.NotAfter)
	})
	if c := w.served(name); !c.Equal(leaf) || w.pebble.Orders.Load() != orders {
		t.Errorf("%d more orders", w.pebble.Orders.Load()-orders)
	}
	if r := w.row(name); r.owner != "bob" || r.state != Active {
		t.Errorf("row %+v", r)
	}
}

// A damaged stored certificate is logged in one ERROR line and replaced.
func TestDamage(t *testing.T) {
	t.Parallel()
	var log lines
	front := start(t, func(_ *world, c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	front.site("blog")
	w := front
	d := w.add("www.customer.test", "blog")
	leaf := w.served("www.customer.test")
	for what, spoil := range map[string]string{
		"the certificate's key is no key":  "UPDATE acme_storage SET value = (SELECT value FROM acme_storage WHERE key LIKE '%account.json') WHERE key LIKE '%www.customer.test.key'",
		"the certificate's key is gone":    "DELETE FROM acme_storage WHERE key LIKE '%www.customer.test.key'",
		"the certificate cannot be opened": "UPDATE acme_storage SET value = 'v1.nonsense' WHERE key LIKE '%www.customer.test.crt'",
	} {
		log.forget()
		told := len(w.events("www.customer.test"))
		w.exec(spoil)
		w.held.drop("www.customer.test") // as after a restart
		fresh := w.served("www.customer.test")
		if fresh.Equal(leaf) {
			t.Errorf("%s: the certificate is served anyway", what)
		}
		if n := log.count("level=ERROR"); n != 1 || log.count("stored certificate is damaged") != 1 {
			t.Errorf("%s: %d ERROR lines\n%s", what, n, log.text())
		}
		w.until("the owner hears of it",
			func() bool { return w.get(d.ID).SSL == domain.SSLActive && len(w.events("www.customer.test")) > told })
		leaf = fresh
	}
	for what, spoil := range map[string]string{
		"the account's key is no key":         "UPDATE acme_storage SET value = 'v1.nonsense' WHERE key LIKE '%account.key'",
		"the account itself cannot be opened": "UPDATE acme_storage SET value = 'v1.nonsense' WHERE key LIKE '%account.json'",
	} {
		log.forget()
		w.exec(spoil)
		w.issuers[0].mu.Lock()
		w.issuers[0].account = nil // as after a restart
		w.issuers[0].mu.Unlock()
		n := len(w.events("www.customer.test"))
		w.exec("UPDATE certificates SET next_at = 1 WHERE host = 'www.customer.test'")
		w.until("it is renewed", func() bool { return len(w.events("www.customer.test")) == n+1 })
		if e := w.events("www.customer.test")[n]; e != Renewed {
			t.Errorf("%s: %s", what, e)
		}
		if n := log.count("level=ERROR"); n != 1 || log.count("ACME account is damaged") != 1 {
			t.Errorf("%s: %d ERROR lines\n%s", what, n, log.text())
		}
	}
}

// lines is a log buffer that the test can read.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count(what string) int { return strings.Count(l.text(), what) }

func (l *lines) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
}
