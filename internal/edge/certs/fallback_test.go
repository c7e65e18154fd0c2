package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/certs/acmetest"
	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/domain"
)

// The second authority is used when the first one is unavailable, but not when the order fails because of the name
// itself.
func TestFallback(t *testing.T) {
	t.Parallel()
	var second *acmetest.Authority
	w := start(t, func(w *world, c *Config) {
		second = w.further()
		c.CAs = append(c.CAs, second.Directory())
		roots := x509.NewCertPool()
		roots.AddCert(w.pebble.Certificate())
		roots.AddCert(second.Certificate())
		transport := w.pebble.Client().Transport.(*http.Transport).Clone()
		transport.TLSClientConfig.RootCAs = roots
		c.Out = &http.Client{Transport: transport}
	})
	w.site("blog")
	both := func(name string) *x509.Certificate {
		w.t.Helper()
		w.until(name+" has a certificate", func() bool { return w.row(name).state == Active })
		e, err := w.look(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(e.cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	from := func(leaf *x509.Certificate, p *acmetest.Authority) bool {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: p.Roots, Intermediates: pool(t, w, leaf.DNSNames[0])})
		return err == nil
	}
	// The first authority is down for maintenance.
	w.pebble.Refuse(503, "serverInternal", "maintenance")
	w.add("a.customer.test", "blog")
	if leaf := both("a.customer.test"); !from(leaf, second) || from(leaf, w.pebble) {
		t.Errorf("issued by %v", leaf.Issuer)
	}
	// The first authority rate-limits us and says until when.
	until := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Second)
	w.pebble.Refuse(429, "rateLimited", "too many certificates already issued: retry after "+until.Format("2006-01-02 15:04:05")+" UTC")
	w.add("b.customer.test", "blog")
	if leaf := both("b.customer.test"); !from(leaf, second) {
		t.Errorf("issued by %v", leaf.Issuer)
	}
	// Both authorities rate-limit us. The next attempt is at the earlier retry time, no failure is counted, and the
	// owner gets a notice with the reason.
	second.Refuse(429, "rateLimited", "slow down")
	d := w.add("c.customer.test", "blog")
	w.until("it was tried", func() bool { return w.row("c.customer.test").err != "" })
	r := w.row("c.customer.test")
	if left := time.Until(r.nextAt.Time()); left < 55*time.Minute || left > 65*time.Minute || r.failures != 0 ||
		!strings.Contains(r.err, "rate-limited the order") {
		t.Errorf("next in %v, %d failures, %q", left, r.failures, r.err)
	}
	w.until("it is told", func() bool { return len(w.events("c.customer.test")) > 0 })
	equal(t, "events", w.events("c.customer.test"), []Event{Failure})
	if w.get(d.ID).Certificate.LastError == "" {
		t.Error("the owner does not read why")
	}
	// The first authority works again, and a certificate of the second moves back to it at its renewal.
	w.pebble.Restore()
	second.Restore()
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = 'a.customer.test'")
	w.until("it has moved", func() bool { return from(both("a.customer.test"), w.pebble) })
	keys, err := w.storage.List(t.Context(), "certificates", true)
	if err != nil || len(keys) != 6 {
		t.Errorf("two certificates are stored as %v, %v", keys, err)
	}
	// A name that fails its own validation isn't tried at the other authority.
	before := second.Orders.Load()
	w.zone.Set("a.customer.test", "A 127.0.0.2")
	for r := w.row("a.customer.test"); r.failures == 0; { // once in a hundred Pebble reuses an old authorization, see TestStory
		before := r.attempts
		w.exec("UPDATE certificates SET next_at = 1 WHERE host = 'a.customer.test'")
		w.until("it was tried", func() bool { r = w.row("a.customer.test"); return r.attempts > before && r.nextAt != 1 })
	}
	if n := second.Orders.Load() - before; n != 0 {
		t.Errorf("the second authority was asked %d times", n)
	}
}

// A renewal that is refused by rate limits succeeds as an ARI replacement.
func TestReplacement(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	const name = "www.customer.test"
	w.add(name, "blog")
	first := w.served(name)
	var refused atomic.Int64
	f := func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/order-plz" {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var jws struct{ Payload string }
		if err := json.Unmarshal(body, &jws); err != nil {
			t.Error(err)
		}
		if text, _ := base64.RawURLEncoding.DecodeString(jws.Payload); strings.Contains(string(text), "replaces") {
			return false
		}
		refused.Add(1)
		rw.Header().Set("Content-Type", "application/problem+json")
		rw.WriteHeader(429)
		io.WriteString(rw, `{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many", "status": 429}`)
		return true
	}
	w.pebble.Between(f)
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = $1", name)
	w.until("it is renewed", func() bool {
		c, err := w.shake(name)
		if err == nil && !c.Equal(first) {
			return true
		}
		// Pebble refuses some orders at random, including replacements. The next attempt is as good.
		if r := w.row(name); r.nextAt > db.Now().Add(time.Minute) {
			w.exec("UPDATE certificates SET next_at = 1 WHERE host = $1", name)
		}
		return false
	})
	if refused.Load() == 0 || w.row(name).failures != 0 {
		t.Errorf("refused %d times, %d failures", refused.Load(), w.row(name).failures)
	}
}

// pool returns the intermediate certificates of a name's chain.
func pool(t testing.TB, w *world, name string) *x509.CertPool {
	p := x509.NewCertPool()
	if e := w.held.get(name); e != nil && e.cert != nil {
		for _, der := range e.cert.Certificate[1:] {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			p.AddCert(c)
		}
	}
	return p
}

// The authorities' rate limits survive restarts, because the ledger is a table.
func TestLedger(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	i := w.issuers[0]
	enter := func(n int, host, kind string, age time.Duration) {
		for k := range n {
			w.exec("INSERT INTO acme_ledger (id, ca, host, zone, kind, at) VALUES ($1, $2, $3, $4, $5, $6)",
				db.NewID("x"), i.key, host, zoneOf(host), kind, db.Now().Add(-age+time.Duration(k)*time.Second))
		}
	}
	check := func(what, host string, previous bool, want time.Duration) {
		t.Helper()
		a := &attempt{row: row{host: host, kind: kindCustom}}
		if previous {
			a.previous, a.material = &x509.Certificate{}, "certificates/"+i.key+"/"+host
		}
		_, until, _, err := w.allowed(t.Context(), i, a)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Until(until); want == 0 && !until.IsZero() || want != 0 && (got-want).Abs() > time.Minute {
			t.Errorf("%s: wait %v, want %v", what, got, want)
		}
	}
	enter(4, "a.one.test", "invalid", 20*time.Minute)
	check("four failures", "a.one.test", false, 0)
	enter(1, "a.one.test", "invalid", 50*time.Minute)
	check("five failures", "a.one.test", false, 10*time.Minute)
	check("five failures, renewal", "a.one.test", true, 10*time.Minute)
	check("another name", "b.one.test", false, 0)
	enter(5, "a.two.test", "invalid", 61*time.Minute)
	check("old failures", "a.two.test", false, 0)
	enter(49, "x.three.test", "issued", 24*time.Hour)
	check("49 in the zone", "y.three.test", false, 0)
	enter(1, "z.three.test", "issued", 6*24*time.Hour)
	check("50 in the zone", "y.three.test", false, 24*time.Hour)
	check("50 in the zone, renewal", "y.three.test", true, 0)
	enter(5, "a.four.test", "renewed", 24*time.Hour)
	check("five of one name", "a.four.test", false, 6*24*time.Hour)

	// A name at its limit isn't ordered. It waits, and its owner reads until when.
	enter(5, "www.five.test", "invalid", 30*time.Minute)
	d := w.add("www.five.test", "blog")
	w.until("it was attempted, and that is told",
		func() bool { return w.row("www.five.test").err != "" && len(w.events("www.five.test")) > 0 })
	if n := w.pebble.Orders.Load(); n != 0 {
		t.Errorf("%d orders", n)
	}
	if next := w.get(d.ID).Certificate.NextAttemptAt.Time(); time.Until(next) < 29*time.Minute || time.Until(next) > 32*time.Minute {
		t.Errorf("next attempt %v", next)
	}
	if w.get(d.ID).SSL != domain.SSLFailed {
		t.Errorf("state %v", w.get(d.ID).SSL)
	}
	equal(t, "events", w.events("www.five.test"), []Event{Failure})
	// Customers' names can use everything that isn't reserved.
	enter(maxOrders-reserved[classRenewal]-reserved[classSite]-1, "many.test", "order", 2*time.Hour)
	check("almost all orders", "other.test", false, 0)
	enter(1, "many.test", "order", 10*time.Minute)
	check("all orders", "other.test", false, time.Hour)
	check("all orders, renewal", "other.test", true, 0)
	enter(1, "old.test", "order", 4*time.Hour)
	enter(1, "old.test", "issued", 8*24*time.Hour)
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM acme_ledger WHERE host = 'old.test'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d old entries, %v", n, err)
	}
}

// A certificate that can't be renewed causes one warning each at 21, 14 and 7 days before it expires, in the domain
// too.
func TestWarnings(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	const name = "www.customer.test"
	d := w.add(name, "blog")
	w.served(name)
	w.pebble.Refuse(503, "serverInternal", "maintenance")
	failures := int64(0)
	for _, tt := range []struct{ days, warned int64 }{{29, 0}, {20, 21}, {15, 21}, {13, 14}, {6, 7}, {3, 7}} {
		w.exec("UPDATE certificates SET next_at = 1, not_after = $2 WHERE host = $1", name,
			db.Now().Add(time.Duration(tt.days)*24*time.Hour+time.Hour))
		failures++
		w.until("it failed", func() bool { return w.row(name).failures == failures })
		said := strings.Contains(w.get(d.ID).Certificate.LastError, "ends in")
		if r := w.row(name); r.warned != tt.warned || r.state != Active || said != (tt.warned != 0) {
			t.Errorf("%d days: warned %d, want %d; %q", tt.days, r.warned, tt.warned, r.err)
		}
	}
	w.until("all is reported", func() bool { return len(w.events(name)) == 7 })
	equal(t, "events", w.events(name), []Event{Issued, Failure, Failure, Nothing, Failure, Failure, Nothing})
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	total, hour := time.Duration(0), 0
	for _, d := range retry {
		total += d
		if total < time.Hour {
			hour++
		}
	}
	// The first attempt and the retries of the hour after it cost one validation each.
	if hour+1 > maxInvalid {
		t.Errorf("%d attempts in the first hour", hour+1)
	}
	if !slices.IsSorted(retry) || retry[len(retry)-1] != 24*time.Hour {
		t.Errorf("waits %v", retry)
	}
	now := time.Now()
	for _, life := range []time.Duration{90 * 24 * time.Hour, 6 * 24 * time.Hour, time.Minute} {
		at := renewAt(&x509.Certificate{NotBefore: now, NotAfter: now.Add(life)})
		if left := now.Add(life).Sub(at); left < life/3 || left > life/3+life/50 {
			t.Errorf("a life of %v: renewed with %v left", life, left)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for detail, want := range map[string]time.Time{
		"too many: retry after " + soon.Format("2006-01-02 15:04:05") + " UTC: see": soon,
		"retry after " + soon.Format("2006-01-02T15:04:05") + "Z":                   soon,
		"retry after 2999-01-01 00:00:00 UTC":                                       soon,
		"retry after 1999-01-01 00:00:00 UTC":                                       soon,
		"slow down":                                                                 soon,
	} {
		if got := retryAfter(detail); got.Sub(want).Abs() > 2*time.Second {
			t.Errorf("%q: %v, want %v", detail, got, want)
		}
	}
	if s := text.Clip(strings.Repeat("é", 1000)+"\xff", 600); len(s) > 610 || strings.ContainsRune(s, '\uFFFD') {
		t.Errorf("clipped to %d bytes", len(s))
	}
	for _, bad := range []string{"", "http://ca.test/dir", "ca.test", "https://user@ca.test/", "https://", "ftp://ca.test"} {
		if _, err := New(Config{DB: &db.DB{}, CAs: []string{bad}}); err == nil {
			t.Errorf("%q is taken for a directory", bad)
		}
	}
}

// An authority that requires an external account accepts the operator's key. Without a valid key the error says that
// the operator must fix it.
func TestExternalAccountBinding(t *testing.T) {
	t.Parallel()
	const key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	for name, tt := range map[string]struct {
		binding Binding
		want    string
	}{
		"bound":         {Binding{"kid-1", key}, ""},
		"another's key": {Binding{"kid-1", strings.Repeat("A", 64)}, "does not accept this installation's account"},
		"unknown":       {Binding{"kid-2", key}, "does not accept this installation's account"},
		"none":          {Binding{}, "requires an external account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, func(w *world, c *Config) {
				w.pebble = w.further("kid-1", key)
				c.CAs, c.Out = []string{w.pebble.Directory()}, w.pebble.Client()
				if tt.binding.KeyID != "" {
					c.Bindings = map[string]Binding{"127.0.0.1": tt.binding}
				}
			})
			w.site("blog")
			d := w.add("www.customer.test", "blog")
			if tt.want == "" {
				w.served("www.customer.test")
				return
			}
			w.until("it failed", func() bool { return w.get(d.ID).SSL == domain.SSLFailed })
			if said := w.get(d.ID).Certificate.LastError; !strings.Contains(said, tt.want) ||
				strings.Contains(said, key) || w.pebble.Orders.Load() != 0 {
				t.Errorf("%q, %d orders", said, w.pebble.Orders.Load())
			}
		})
	}
	if s := fmt.Sprint(slog.AnyValue(Binding{"kid-1", key}).Resolve()); strings.Contains(s, key) {
		t.Errorf("the key can be logged: %s", s)
	}
}

// Every further retry by the owner waits longer than the one before.
func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	w.pebble.Refuse(403, "rejectedIdentifier", "policy")
	const name = "www.customer.test"
	w.add(name, "blog")
	w.until("it failed", func() bool { return w.row(name).failures == 1 })
	w.exec("UPDATE certificates SET failures = 5 WHERE host = $1", name)
	before := db.Now()
	w.write(func(tx *db.Tx) error { return RetryTx(t.Context(), tx, name) })
	if next := w.row(name).nextAt; next.Sub(before) < 20*time.Second || next.Sub(db.Now()) > 26*time.Second {
		t.Errorf("after the fifth the next is in %v", next.Sub(before))
	}
	w.exec("UPDATE certificates SET changed_at = changed_at - 60000 WHERE host = $1", name)
	w.write(func(tx *db.Tx) error { return RetryTx(t.Context(), tx, name) })
	w.until("there was a sixth", func() bool { return w.row(name).failures == 6 })
}

// An authority is left alone for as long as it asks for, in whichever form it asks.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status       int
		header, kind string
		want         time.Duration
		limited      bool
	}{
		"limited, in seconds":  {429, "7200", "rateLimited", 2 * time.Hour, true},
		"limited, by its date": {429, time.Now().Add(3 * time.Hour).UTC().Format(http.TimeFormat), "rateLimited", 3 * time.Hour, true},
		"limited, no header":   {429, "", "rateLimited", time.Hour, true},
		"limited, nonsense":    {429, "-5", "rateLimited", time.Hour, true},
		"limited for ever":     {429, "999999999", "rateLimited", week, true},
		"in the way":           {429, "1800", "", 30 * time.Minute, true},
		"ill":                  {503, "900", "serverInternal", 15 * time.Minute, true},
		"ill, no header":       {503, "", "serverInternal", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			w.site("blog")
			f := func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/order-plz" {
					return false
				}
				if tt.header != "" {
					rw.Header().Set("Retry-After", tt.header)
				}
				if tt.kind == "" {
					http.Error(rw, "go away", tt.status)
					return true
				}
				rw.Header().Set("Content-Type", "application/problem+json")
				rw.WriteHeader(tt.status)
				json.NewEncoder(rw).Encode(map[string]any{"type": "urn:ietf:params:acme:error:" + tt.kind, "status": tt.status})
				return true
			}
			w.pebble.Between(f)
			d := w.add("www.customer.test", "blog")
			w.until("it was attempted", func() bool { return w.row("www.customer.test").err != "" })
			r := w.row("www.customer.test")
			if in := r.nextAt.Sub(db.Now()); in < tt.want-tt.want/8-10*time.Second || in > tt.want+tt.want/8+time.Minute ||
				(r.failures == 0) != tt.limited {
				t.Errorf("the next attempt is in %v after %d failures: %s", in, r.failures, r.err)
			}
			if said := w.get(d.ID).Certificate.LastError; tt.limited != strings.Contains(said, "the next attempt is possible at") {
				t.Errorf("said %q", said)
			}
		})
	}
}
