// Package domains owns the end-to-end tests of custom domains and certificates, with the real program and a DNS server
// and ACME authorities that the tests control.
package domains

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/edge/certs/acmetest"
	"slipway/internal/tenant/domain/dnstest"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(world.Main(m, &binary))
}

// patience is the shortest limit for waiting.
const patience = 2 * time.Minute

// harness is an installation with its DNS server and its ACME authority, if any.
type harness struct {
	*world.World
	t    testing.TB
	zone *dnstest.Zone
	ca   *acmetest.Authority
	more *acmetest.Authority // used if ca fails
	ann  string              // key of a user
}

// options configures a harness.
type options struct {
	life  time.Duration // of certificates; 0 means the local authority
	key   string        // the authority's external account key; empty if it accepts every account
	more  bool          // add a second authority
	flags []string
}

// newHarness starts an installation with the site domain sites.test.
func newHarness(t testing.TB, o options) *harness {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t, zone: dnstest.New(t)}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(4000))
		}
	})
	h.zone.Set("*.sites.test", "A 127.0.0.1")
	w.Flags = append(w.Flags, "--site-domain", "sites.test", "--dns-resolver", h.zone.Addr)
	if o.life > 0 {
		h.ca = h.authority(o.life, o.key)
		roots, err := os.ReadFile(w.Hooks.CA)
		if err != nil {
			t.Fatal(err)
		}
		if o.more {
			h.more = h.authority(o.life, "")
			roots = append(roots, h.more.PEM()...)
		}
		file := filepath.Join(w.Dir, "roots.pem")
		if err := os.WriteFile(file, append(roots, h.ca.PEM()...), 0o600); err != nil {
			t.Fatal(err)
		}
		w.Flags[slices.Index(w.Flags, w.Hooks.CA)] = file
		w.Flags = append(w.Flags, "--acme-ca", h.ca.Directory(), "--acme-email", "ops@sites.test")
		if o.more {
			w.Flags = append(w.Flags, "--acme-ca", h.more.Directory())
		}
	}
	if o.key != "" {
		w.Env = append(w.Env, "SLIPWAY_ACME_EAB=customer-1:"+o.key)
	}
	w.Flags = append(w.Flags, o.flags...)
	h.ann = h.user("ann@example.test")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *harness) authority(life time.Duration, key string) *acmetest.Authority {
	port := func(addr string) int {
		a, err := netip.ParseAddrPort(addr)
		if err != nil {
			h.t.Fatal(err)
		}
		return int(a.Port())
	}
	c := acmetest.Config{HTTP01: port(h.HTTP), TLSALPN01: port(h.HTTPS), Resolver: h.zone.Addr, Life: life}
	if key != "" {
		c.Keys = map[string]string{"customer-1": key}
	}
	return acmetest.New(h.t, c)
}

func (h *harness) user(email string) string {
	h.t.Helper()
	key, err := h.User(email)
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

// until polls ok until it is true. most is the limit on an idle machine; the test waits at least patience. Only a
// broken program uses it up.
func (h *harness) until(most time.Duration, what string, ok func() bool) {
	h.t.Helper()
	most = max(patience, world.Patience(most))
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if err := world.Until(ctx, 10*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		h.t.Fatalf("waited %v in vain for %s", most, what)
	}
}

// do sends an API request and returns the answer.
func (h *harness) do(key, method, path string, body any) world.Answer {
	h.t.Helper()
	a, err := h.Do(context.Background(), world.Request{Method: method, Path: path, Key: key, Body: body})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *harness) call(key, method, path string, body, out any) {
	h.t.Helper()
	if err := h.Call(context.Background(), key, method, path, body, out); err != nil {
		h.t.Fatal(err)
	}
}

// aSite is a site in API responses.
type aSite struct {
	ID, Subdomain, Status string
	Domains               []struct{ ID, Name, Status string }
}

func (s aSite) host() string { return s.Subdomain + ".sites.test" }

// live creates a site that shows one line, and waits until it is live.
func (h *harness) live(key, name, line string) aSite {
	h.t.Helper()
	dir := h.t.TempDir()
	if err := world.WriteFiles(dir, map[string]string{"index.html": line, "deep/page.html": line + " deep"}); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Git.Commit("acme/"+name, "main", dir, "made by a test"); err != nil {
		h.t.Fatal(err)
	}
	var out struct{ Data aSite }
	h.call(key, "POST", "/sites", map[string]any{
		"name":       name,
		"type":       "static",
		"repository": "git.test/acme/" + name,
		"branch":     "main",
	}, &out)
	h.until(30*time.Second, name+" to be live", func() bool {
		var s aSite
		h.call(key, "GET", "/sites/"+out.Data.ID, nil, &s)
		return s.Status == "active"
	})
	return out.Data
}

type record struct {
	Type, Name, Value string
	Current           []string
	Status            string
	Reason            *string
}

// aDomain is a domain in API responses.
type aDomain struct {
	ID, Name, Status, SSLStatus, SiteID string
	StatusReason, RedirectTo            *string
	Primary                             bool
	Verification, DNS                   []record
	Problems                            []struct{ Code, Message string }
	Certificate                         struct {
		Issuer, LastError                   *string
		NotBefore, ExpiresAt, NextAttemptAt *time.Time
	}
	CheckedAt *time.Time
}

func (d aDomain) reason() string { return text(d.StatusReason) }

func (d aDomain) problem(code string) string {
	for _, p := range d.Problems {
		if p.Code == code {
			return p.Message
		}
	}
	return ""
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// add adds a domain to a site.
func (h *harness) add(key string, s aSite, name string) aDomain {
	h.t.Helper()
	var d aDomain
	a := h.do(key, "POST", "/sites/"+s.ID+"/domains", map[string]any{"name": name})
	if err := a.JSON(&d); err != nil || a.Status != 201 {
		h.t.Fatalf("add %s: %d %s %v", name, a.Status, a.Body, err)
	}
	return d
}

// refused tries to add a domain and returns the status and error code of the refusal.
func (h *harness) refused(key string, s aSite, name any) string {
	h.t.Helper()
	a := h.do(key, "POST", "/sites/"+s.ID+"/domains", map[string]any{"name": name})
	var e struct{ Error, Details, Code, RequestID string }
	if err := a.JSON(&e); err != nil || e.Error == "" || e.Code == "" || e.RequestID == "" || a.Status != 404 && e.Details == "" {
		return fmt.Sprintf("%d %s", a.Status, a.Body)
	}
	return fmt.Sprintf("%d %s", a.Status, e.Code)
}

func (h *harness) verify(key string, d aDomain) aDomain {
	h.t.Helper()
	var got aDomain
	h.call(key, "POST", "/domains/"+d.ID+"/verify", nil, &got)
	return got
}

func (h *harness) get(key string, d aDomain) aDomain {
	h.t.Helper()
	var got aDomain
	h.call(key, "GET", "/domains/"+d.ID, nil, &got)
	return got
}

// prove sets the DNS records that the domain needs: the TXT record for verification, and the address.
func (h *harness) prove(d aDomain) {
	h.zone.Set(d.Verification[0].Name, `TXT "`+d.Verification[0].Value+`"`)
	h.zone.Set(d.Name, "A 127.0.0.1")
}

// active adds a domain, sets its DNS records and verifies it.
func (h *harness) active(key string, s aSite, name string) aDomain {
	h.t.Helper()
	d := h.add(key, s, name)
	h.prove(d)
	if d = h.verify(key, d); d.Status != "active" {
		h.t.Fatalf("%s is %s: %s", name, d.Status, d.reason())
	}
	return d
}

// certified waits until a domain has a certificate.
func (h *harness) certified(key string, d aDomain) aDomain {
	h.t.Helper()
	h.until(20*time.Second, "a certificate for "+d.Name, func() bool { d = h.get(key, d); return d.SSLStatus == "active" })
	return d
}

// hear subscribes a path of the receiver to all events of domains and certificates.
func (h *harness) hear(key, path string) {
	h.t.Helper()
	h.call(key, "POST", "/webhooks", map[string]any{
		"url":    h.Hooks.URL + path,
		"events": []string{"domain.added", "domain.verified", "domain.failed", "ssl.issued", "ssl.renewed", "ssl.failed"},
	}, nil)
}

// heard waits for n deliveries of an event about a name at a path.
func (h *harness) heard(path, event, name string, n int) []world.Delivery {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), max(patience, world.Patience(20*time.Second)))
	defer cancel()
	got, err := h.Hooks.Wait(ctx, n, func(d world.Delivery) bool {
		var data struct {
			Domain struct{ Name string }
			SSL    struct{ Domain string }
		}
		return d.Path == path && d.Event == event && json.Unmarshal(
			d.Data,
			&data,
		) == nil && (data.Domain.Name == name || data.SSL.Domain == name)
	})
	if err != nil {
		var all []string
		for _, d := range h.Hooks.All() {
			all = append(all, d.Path+" "+d.Event+" "+string(d.Data))
		}
		h.t.Fatalf("%s about %s: %v; came:\n%s", event, name, err, strings.Join(all, "\n"))
	}
	return got
}

// notify creates a notification of an event, in a chat service's own format.
func (h *harness) notify(key, kind, path, event string) {
	h.t.Helper()
	h.call(key, "POST", "/notifications", map[string]any{"kind": kind, "target": h.Hooks.URL + path, "events": []string{event}}, nil)
}

// notified waits for a message with this text at a path.
func (h *harness) notified(path, text string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := h.Hooks.Wait(ctx, 1, func(d world.Delivery) bool {
		return d.Path == path && strings.Contains(
			string(d.Body),
			text,
		)
	}); err != nil {
		h.t.Fatalf("no message with %q at %s: %v", text, path, err)
	}
}
