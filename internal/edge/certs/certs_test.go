package certs

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain"
)

// A custom domain's certificate is issued, renewed, kept when a renewal fails, and kept or deleted when the domain is
// removed.
func TestStory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := start(t)
	const name = "www.customer.test"
	w.site("blog")

	// Before the domain is verified, nothing is ordered.
	d, err := w.domains.Create(ctx, "ada", "blog", domain.NewDomain{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	w.zone.Set(name, "A 127.0.0.1")
	if d, err = w.domains.Verify(ctx, "ada", d.ID); err != nil || d.Status != domain.Pending || d.SSL != domain.SSLPending {
		t.Fatalf("an address alone: %+v, %v", d, err)
	}
	if len(d.Verification) == 0 || d.Verification[0].Status == domain.RecordValid {
		t.Errorf("the missing record isn't shown: %+v", d.Verification)
	}
	w.refused(name)

	// After verification a certificate is issued without a visitor.
	w.zone.Set("_slipway."+name, `TXT "`+w.token()+`"`)
	if d, err = w.domains.Verify(ctx, "ada", d.ID); err != nil || d.Status != domain.Active {
		t.Fatalf("with the proof: %+v, %v", d, err)
	}
	w.until("there is a certificate", func() bool { return w.get(d.ID).SSL == domain.SSLActive })
	d = w.get(d.ID)
	life := d.Certificate.ExpiresAt.Sub(d.Certificate.NotBefore)
	if !strings.Contains(d.Certificate.Issuer, "Pebble") || d.Certificate.LastError != "" || life < 89*24*time.Hour {
		t.Errorf("certificate %+v", d.Certificate)
	}
	if third := d.Certificate.ExpiresAt.Sub(d.Certificate.NextAttemptAt); third < life/3 || third > life/3+life/40 {
		t.Errorf("renewal with %v of %v left", third, life)
	}
	first := w.served(name)
	if first.DNSNames[0] != name || len(first.DNSNames) != 1 {
		t.Errorf("names %v", first.DNSNames)
	}
	w.until("that is told", func() bool { return len(w.events(name)) > 0 })
	equal(t, "events", w.events(name), []Event{Issued})

	// After a renewal, a host that is already served gets the new certificate without delaying a handshake.
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = $1", name)
	w.until("it is renewed", func() bool { return len(w.events(name)) == 2 })
	w.until("the new one is served", func() bool { c, err := w.shake(name); return err == nil && !c.Equal(first) })
	equal(t, "events", w.events(name), []Event{Issued, Renewed})

	// A failed renewal keeps the old certificate and records the error and the time of the next attempt. Even with
	// reuse turned off, Pebble reuses an old authorization about once in a hundred orders (it compares a number from 0
	// with 0). Such an order succeeds, and the test continues from there.
	w.zone.Set(name, "A 127.0.0.2")
	attempt := func(q string) Event {
		n := len(w.events(name))
		w.exec(q, name)
		w.until("the attempt is reported", func() bool { return len(w.events(name)) == n+1 })
		return w.events(name)[n]
	}
	for told, again := Nothing, Renewed; again == Renewed; {
		for told = Renewed; told == Renewed; {
			told = attempt("UPDATE certificates SET next_at = 1 WHERE host = $1")
		}
		equal(t, "told", []Event{told}, []Event{Failure})
		d = w.get(d.ID)
		if d.SSL != domain.SSLActive || !strings.Contains(d.Certificate.LastError, "could not reach the name") ||
			!strings.Contains(d.Certificate.LastError, "127.0.0.1") {
			t.Errorf("a failed renewal: %v, %+v", d.SSL, d.Certificate)
		}
		if next := d.Certificate.NextAttemptAt.Time(); time.Until(next) < 50*time.Minute || time.Until(next) > 70*time.Minute {
			t.Errorf("next attempt %v", next)
		}
		w.served(name)
		// The next failed attempt, with the other challenge type, isn't reported again. The state is expired once the
		// certificate has expired.
		again = attempt("UPDATE certificates SET next_at = 1, not_after = 5 WHERE host = $1")
		if again != Renewed {
			equal(t, "told again", []Event{again}, []Event{Nothing})
		}
	}
	if n := w.row(name).failures; n != 2 {
		t.Errorf("%d failures are counted, want 2", n)
	}
	d = w.get(d.ID)
	if d.SSL != domain.SSLExpired {
		t.Errorf("ended and not renewed: %v", d.SSL)
	}

	// After the cause is fixed, the owner can retry without waiting for the back-off.
	w.zone.Set(name, "A 127.0.0.1")
	w.write(func(tx *db.Tx) error { return RetryTx(ctx, tx, name) })
	w.until("it works again", func() bool { return w.get(d.ID).SSL == domain.SSLActive })
	d = w.get(d.ID)
	if d.Certificate.LastError != "" || w.row(name).failures != 0 {
		t.Errorf("after the repair: %+v", d.Certificate)
	}

	// A removed domain gets no handshake. Its certificate is kept in case its owner adds the domain again, because
	// authorities issue only a few certificates per name.
	stored, err := w.open(ctx, w.row(name).material) // the old certificate may still be served for a moment
	if err != nil {
		t.Fatal(err)
	}
	kept := stored.Leaf
	orders := w.pebble.Orders.Load()
	for range 6 {
		w.write(func(tx *db.Tx) error { _, err := w.domains.DeleteTx(ctx, tx, "ada", d.ID); return err })
		w.until("it is gone", func() bool { return w.row(name).state == gone })
		w.until("it is not routed", func() bool { return !w.routed(name) })
		w.refused(name)
		w.until("it is out of memory", func() bool { e := w.held.get(name); return e == nil || e.cert == nil })
		n := len(w.events(name))
		d = w.add(name, "blog")
		if c := w.served(name); !c.Equal(kept) {
			t.Error("the certificate was not kept")
		}
		w.until("its holder hears of it", func() bool { return w.get(d.ID).SSL == domain.SSLActive && len(w.events(name)) == n+1 })
		equal(t, "told", w.events(name)[n:], []Event{Issued})
	}
	if n := w.pebble.Orders.Load(); n != orders {
		t.Errorf("%d more orders", n-orders)
	}
	if r := w.row(name); r.nextAt.Time().Before(time.Now().Add(24*time.Hour)) || r.nextAt >= r.notAfter {
		t.Errorf("renewed at %v, ends %v", r.nextAt, r.notAfter)
	}
	// A removed domain's certificate is deleted once it expires.
	w.write(func(tx *db.Tx) error { _, err := w.domains.DeleteTx(ctx, tx, "ada", d.ID); return err })
	w.until("it is gone", func() bool { return w.row(name).state == gone })
	w.exec("UPDATE certificates SET not_after = 5 WHERE host = $1", name)
	if err := w.tidy(ctx); err != nil {
		t.Fatal(err)
	}
	if keys, err := w.storage.List(ctx, "certificates", true); err == nil {
		t.Errorf("left behind: %v", keys)
	}
	w.add(name, "blog")
	if c := w.served(name); c.Equal(kept) {
		t.Error("an old certificate came back")
	}
}

// Unverified names and made-up subdomains cause no order and get no certificate from the local authority.
func TestRandomNames(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	w.add("www.customer.test", "blog")
	w.served("www.customer.test")
	before := w.pebble.Orders.Load()
	for i := range 1000 {
		label := fmt.Sprintf("r%x", rand.Uint64())
		name := []string{
			label + ".test",
			label + ".sites.test",
			label + ".customer.test",
			label + ".www.customer.test",
			label + ".blog.sites.test",
			label[:8] + "abcd--nobody.sites.test",
		}[i%6]
		if i%2 == 0 {
			w.refused(name)
		} else {
			w.refused(name, ProtocolTLSALPN)
		}
	}
	w.refused("www.customer.test", ProtocolTLSALPN)
	w.refused("blog.sites.test", ProtocolTLSALPN)
	if n := w.pebble.Orders.Load() - before; n != 0 {
		t.Errorf("%d orders", n)
	}
	var n int
	if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM certificates").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	w.held.mu.RLock()
	defer w.held.mu.RUnlock()
	if len(w.held.at) != 1 || len(w.held.wait) > 1 {
		t.Errorf("%d names in memory, %d waited for", len(w.held.at), len(w.held.wait))
	}
}

// A site's own address gets its certificate when its first visitor connects, who waits for it. The control plane's host
// gets one before any visitor.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ *world, c *Config) { c.Hosts = []string{"Panel.customer.test", "127.0.0.1", "localhost"} })
	w.zone.Set("panel.customer.test", "A 127.0.0.1")
	w.until("the control plane has one", func() bool {
		return w.row("panel.customer.test").state == Active || w.row("panel.customer.test").failures > 0
	})
	w.exec("UPDATE certificates SET next_at = 1 WHERE state <> 'active'") // the DNS record was added too late for the first attempt
	w.served("panel.customer.test")
	w.site("blog")
	w.zone.Set("*.sites.test", "A 127.0.0.1")
	before := w.pebble.Orders.Load()
	leaf, err := w.shake("blog.sites.test")
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.shake("BLOG.sites.test")
	if err != nil || !again.Equal(leaf) || w.pebble.Orders.Load() != before+1 {
		t.Errorf("%d orders, %v", w.pebble.Orders.Load()-before, err)
	}
	if r := w.row("blog.sites.test"); r.kind != kindSite {
		t.Errorf("row %+v", r)
	}
	// A deleted site's certificate isn't renewed.
	w.exec("UPDATE sites SET deleted_at = 5 WHERE id = 'blog'")
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = 'blog.sites.test'")
	w.until("it is dropped", func() bool { return w.row("blog.sites.test").state == gone })
	if w.pebble.Orders.Load() != before+1 {
		t.Error("a deleted site's certificate was renewed")
	}
	// A seller's host gets a certificate like the control plane's, for as long as the seller has it.
	w.zone.Set("panel.harbor.test", "A 127.0.0.1")
	w.exec(`INSERT INTO billing_sellers (id, name, series, sender, reply_to, logo, logo_digest, created_at, updated_at, host)
		VALUES ('harbor', 'Harbor', 'HB', '', '', '', '', 0, 0, 'panel.harbor.test')`)
	w.until("a seller's host has one", func() bool { return w.row("panel.harbor.test").state == Active })
	if r := w.row("panel.harbor.test"); r.kind != kindControl {
		t.Errorf("row %+v", r)
	}
	w.exec("UPDATE billing_sellers SET host = ''")
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = 'panel.harbor.test'")
	w.until("it is dropped", func() bool { return w.row("panel.harbor.test").state == gone })
}

// A host with a cached certificate needs no database for its handshakes.
func TestWarmWithoutDatabase(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	w.add("www.customer.test", "blog")
	leaf := w.served("www.customer.test")
	w.db.Close()
	for range 50 {
		if c, err := w.shake("www.customer.test"); err != nil || !c.Equal(leaf) {
			t.Fatal(err)
		}
	}
}

// Only challenges of this installation's own orders are answered, and only for the host they belong to.
func TestForeignChallenges(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ *world, c *Config) { c.TLSALPN01 = false })
	w.site("blog")
	w.add("www.customer.test", "blog")
	w.add("other.customer.test", "blog")
	ask := func(host, token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.http+challengePath+token, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	idle := func() bool {
		for _, name := range []string{"www.customer.test", "other.customer.test"} {
			if r := w.row(name); r.state != Active || r.nextAt < db.Now() {
				return false
			}
		}
		return true
	}
	w.until("the first orders are done", idle)
	// A token captured during an order is answered for its own host only.
	caught := make(chan [2]string, 8)
	f := func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/chalZ/") {
			w.challenges.mu.Lock()
			for token, c := range w.challenges.byToken {
				select {
				case caught <- [2]string{token, c.Identifier.Value}:
				default:
				}
				w.challenges.mu.Unlock()
				if status, body := ask(c.Identifier.Value, token); status != 200 || body != c.KeyAuthorization {
					w.challenges.mu.Lock()
					if _, still := w.challenges.byToken[token]; still { // otherwise the token belongs to the other order, which has ended
						t.Errorf("our own order: %d %q", status, body)
					}
					w.challenges.mu.Unlock()
				}
				for _, host := range []string{"blog.sites.test", "evil.test", "x." + c.Identifier.Value} {
					if _, body := ask(host, token); strings.Contains(body, c.KeyAuthorization) {
						t.Errorf("%s got the challenge of %s", host, c.Identifier.Value)
					}
				}
				w.challenges.mu.Lock()
			}
			w.challenges.mu.Unlock()
		}
		return false
	}
	w.pebble.Between(f)
	w.exec("UPDATE certificates SET next_at = 1")
	w.until("an order was watched", func() bool { return len(caught) > 0 })
	w.until("the orders are done", idle)
	token := (<-caught)[0]
	for _, token := range []string{token, "x", strings.Repeat("a", 43), "../../etc/passwd", strings.Repeat("a", 500), "%3Cscript%3Ealert"} {
		for _, host := range []string{"www.customer.test", "evil.test"} {
			status, body := ask(host, token)
			if status == 200 || strings.Contains(body, token+".") || strings.Contains(body, "script>") {
				t.Errorf("%s %s: %d %.80q", host, token, status, body)
			}
		}
	}
}

// A node can answer the challenges of another node's orders. Here the node that the authority connects to places no
// orders itself.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	front := start(t, func(w *world, c *Config) { c.Workers = -1; w.nodes = true })
	startNode(t, front, func(w *world, c *Config) {
		w.nodes = true
		c.CAs = []string{front.pebble.Directory()}
		c.Out = front.pebble.Client()
	})
	front.site("blog")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- front.follow(ctx) }()
	defer func() { cancel(); <-done }()
	for i, name := range []string{"www.customer.test", "shop.customer.test"} {
		front.add(name, "blog")
		if i == 1 { // uses the other challenge type
			front.until("it is asked for", func() bool {
				var n int
				err := front.db.QueryRow(ctx, "SELECT count(*) FROM certificates WHERE host = $1", name).Scan(&n)
				return err == nil && n == 1
			})
		}
		first := front.served(name)
		// A certificate renewed by one node is served by the other.
		front.exec("UPDATE certificates SET next_at = 1, failures = $2 WHERE host = $1", name, i)
		front.until("it is renewed", func() bool { c, err := front.shake(name); return err == nil && !c.Equal(first) })
	}
	var users int
	if err := front.db.QueryRow(ctx,
		"SELECT count(*) FROM acme_storage WHERE key LIKE '%account.key'").Scan(&users); err != nil || users != 1 {
		t.Errorf("%d accounts, %v", users, err)
	}
	var left int
	if err := front.db.QueryRow(ctx, "SELECT count(*) FROM acme_challenges").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d challenges left, %v", left, err)
	}
}
