package domain

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain/dnstest"
)

// announced is an event that the service announced.
type announced struct {
	name  string
	owner account.OwnerID
	d     Domain
}

// world is an installation: the service, its database, the DNS and a registry of .com.
type world struct {
	*Domains
	t      testing.TB
	db     *db.DB
	zone   *dnstest.Zone
	rdapd  *httptest.Server
	events *recorded
}

type recorded struct {
	mu  sync.Mutex // guards all
	all []announced
}

// names returns the events about a name, in order.
func (e *recorded) names(name string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, ev := range e.all {
		if ev.d.Name == name {
			out = append(out, string(ev.owner)+" "+ev.name)
		}
	}
	return out
}

// named implements Config.Sites.
type named struct{}

// Subdomain implements Config.Sites.
func (named) Subdomain(_ context.Context, _ db.Reader, owner account.OwnerID, site id.Site) (string, error) {
	if !strings.HasPrefix(string(site), string(owner)+"-") {
		return "", fault.Missing("site")
	}
	return string(site), nil
}

// AnnounceTx implements Events.
func (e *recorded) AnnounceTx(_ context.Context, tx *db.Tx, name string, d Domain) error {
	tx.AfterCommit(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, announced{name, d.Owner, d})
	})
	return nil
}

// authority is a fake of the public authorities.
type authority struct {
	cas   []string
	zone  string                       // empty: no wildcard certificates
	retry func(tx *db.Tx, name string) // Optional.
}

func (a authority) CAs(context.Context) []string { return a.cas }

func (a authority) Delegation(name string) string {
	if a.zone == "" {
		return ""
	}
	return strings.TrimPrefix(name, "*.") + a.zone
}

func (a authority) RetryTx(_ context.Context, tx *db.Tx, name string) error {
	if a.retry != nil {
		a.retry(tx, name)
	}
	return nil
}

func newWorld(t testing.TB, change func(*Config), registry http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, zone: dnstest.New(t), db: dbtest.New(t), events: &recorded{}}
	if registry == nil {
		registry = rdapError(404)
	}
	w.rdapd = httptest.NewTLSServer(registry)
	t.Cleanup(w.rdapd.Close)
	c := Config{DB: w.db, Out: w.rdapd.Client(), SiteDomain: "sites.test", Resolver: &DNS{Server: w.zone.Addr, Timeout: 20 * time.Second}}
	c.Addrs = []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}
	c.Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	c.NSPort = netip.MustParseAddrPort(w.zone.Addr).Port()
	// Sites are named <owner>-<anything>, and their subdomain is their ID.
	c.Sites, c.Events = named{}, w.events
	if change != nil {
		change(&c)
	}
	w.Domains = New(c)
	w.rdap.shipped = bases{"com": {w.rdapd.URL + "/com/"}}
	w.budget, w.hedge = time.Minute, time.Minute // no timeouts unless a test wants them
	return w
}

// hurry shortens timeouts for tests in which a server doesn't answer.
func (w *world) hurry() {
	w.budget, w.hedge = time.Second, 50*time.Millisecond
	w.c.Resolver = &DNS{Server: w.zone.Addr, Timeout: 200 * time.Millisecond}
}

// insert adds a domain's row directly.
func (w *world) insert(owner account.OwnerID, site, name string, s Status) {
	w.t.Helper()
	now, proven := db.Now(), db.Time(0)
	if s == Active {
		proven = now
	}
	err := w.db.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `
			INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, proven_at,
			  findings, checks, tries, pending_at, ssl_status, cert_issuer, cert_error, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, '', FALSE, '', '', $7, '{}', 0, 0, $8, 'pending', '', '', $8, $8)`,
			db.NewID("dom"), owner, site, name, zoneOf(name), s, proven, now)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
