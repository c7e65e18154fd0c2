package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/certs/acmetest"
	"slipway/internal/edge/edge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/domain/dnstest"
)

// world is an installation with its own ACME authority and DNS.
type world struct {
	*Certs
	t       testing.TB
	url     string
	db      *db.DB
	zone    *dnstest.Zone
	pebble  *acmetest.Authority
	edge    *edge.Edge
	domains *domain.Domains
	https   string
	http    string

	mu      sync.Mutex // guards reports
	reports []Report

	further func(keys ...string) *acmetest.Authority // starts another authority that validates at this node
	nodes   bool                                     // more nodes run
}

func start(t testing.TB, change ...func(*world, *Config)) *world { return startNode(t, nil, change...) }

// startNode starts an installation, or another node of the one that of is a node of.
func startNode(t testing.TB, of *world, change ...func(*world, *Config)) *world {
	t.Helper()
	w := &world{t: t}
	var key *seal.Sealer
	if of == nil {
		w.url, w.zone, key = dbtest.URL(t), dnstest.New(t), sealer(t)
	} else {
		w.url, w.zone, key = of.url, of.zone, of.c.Seal
	}
	w.db = dbtest.Open(t, w.url)
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.https, w.http = secure.Addr().String(), plain.Addr().String()
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	w.further = func(keys ...string) *acmetest.Authority {
		c := acmetest.Config{HTTP01: port(plain), TLSALPN01: port(secure), Resolver: w.zone.Addr}
		if len(keys) == 2 {
			c.Keys = map[string]string{keys[0]: keys[1]}
		}
		return acmetest.New(t, c)
	}
	w.pebble = w.further()
	if of != nil {
		w.pebble.Close()
		w.pebble = of.pebble
	}
	w.domains = domain.New(domain.Config{
		DB: w.db, Out: w.pebble.Client(), SiteDomain: "sites.test",
		Resolver: &domain.DNS{Server: w.zone.Addr, Timeout: 10 * time.Second}, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Registry: "local", Certificates: wildcards{w}, Sites: named{},
	})
	c := Config{
		DB: w.db, Seal: key, Out: w.pebble.Client(), CAs: []string{w.pebble.Directory()}, Email: "ops@sites.test",
		SiteDomain: "sites.test", HTTP01: true, TLSALPN01: true, Retry: []time.Duration{time.Hour},
	}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	c.Domains = reports{w}
	for _, f := range change {
		f(w, &c)
	}
	if w.Certs, err = New(c); err != nil {
		t.Fatal(err)
	}
	w.single = w.single && !w.nodes
	w.edge = edge.New(edge.Config{
		DB: w.db, SiteDomain: "sites.test", HTTPSPort: port(secure), ControlHosts: c.Hosts,
		Control:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "control plane") }),
		Certificates: w.Certs,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.edge.Run(ctx); err != nil && w.db.Ping(ctx) == nil {
			t.Errorf("edge: %v", err)
		}
	})
	if c.Workers >= 0 {
		wg.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("certs: %v", err)
			}
		})
	}
	s, p := w.edge.Server(w.edge.HTTPS()), w.edge.Server(w.edge.HTTP())
	go s.ServeTLS(secure, "", "")
	go p.Serve(plain)
	t.Cleanup(func() {
		s.Close()
		p.Close()
		cancel()
		wg.Wait()
	})
	w.until("the edge is ready", w.edge.Ready)
	return w
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, ok, func() string {
		rows, err := w.db.Query(context.Background(), "SELECT "+columns+" FROM certificates")
		all, _ := db.Collect(rows, err, scan)
		return fmt.Sprintf("rows %+v; now %d", all, db.Now())
	})
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	if err := w.db.Write(context.Background(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(q string, args ...any) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		tx.Notify(topic)
		_, err := tx.Exec(context.Background(), q, args...)
		return err
	})
}

// site creates an empty site whose label is its ID.
func (w *world) site(label string) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(context.Background(), `
			INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
			  needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
			VALUES ($1, 'ada', $1, $1, 'static', 'static', 'pending', '', '', '', '', '', '', FALSE, '', '',
			  (SELECT n + 1 FROM live_version), 1, 1, 0)`, label)
		if err == nil {
			_, err = tx.Exec(context.Background(), "UPDATE live_version SET n = n + 1")
		}
		return err
	})
	w.until("the site is in the table", func() bool { return w.routed(label + ".sites.test") })
}

// routed reports whether the edge knows a host, by its redirect to HTTPS.
func (w *world) routed(host string) bool {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+w.http+"/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Host = host
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode < 400
}

// add claims a name that points to this node, verifies it and waits until it is routed.
func (w *world) add(name string, site id.Site) domain.Domain {
	w.t.Helper()
	d, err := w.domains.Create(context.Background(), "ada", site, domain.NewDomain{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	base := strings.TrimPrefix(name, "*.")
	w.zone.Set(name, "A 127.0.0.1")
	w.zone.Set("_slipway."+base, `TXT "`+w.token()+`"`)
	if d, err = w.domains.Verify(context.Background(), "ada", d.ID); err != nil || d.Status != domain.Active {
		w.t.Fatalf("not active: %+v, %v", d, err)
	}
	return d
}

func (w *world) token() string {
	w.t.Helper()
	var token string
	if err := w.db.QueryRow(context.Background(), "SELECT token FROM domain_tokens WHERE owner_id = 'ada'").Scan(&token); err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) get(id domain.ID) domain.Domain {
	w.t.Helper()
	d, err := w.domains.Get(context.Background(), w.db, "ada", id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) row(host string) row {
	w.t.Helper()
	r, err := scan(w.db.QueryRow(context.Background(), "SELECT "+columns+" FROM certificates WHERE host = $1", host))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		w.t.Fatal(err)
	}
	return r
}

// events returns the events about a host, in order.
func (w *world) events(host string) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Event
	for _, r := range w.reports {
		if r.Host == host {
			out = append(out, r.Event)
		}
	}
	return out
}

// shake makes a TLS handshake that trusts only the test's authority.
func (w *world) shake(name string, protocols ...string) (*x509.Certificate, error) {
	c, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.pebble.Roots, ServerName: name, NextProtos: protocols})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0], nil
}

func (w *world) served(name string) *x509.Certificate {
	w.t.Helper()
	var leaf *x509.Certificate
	var err error
	wait.Until(w.t, name+" has a certificate", func() bool {
		leaf, err = w.shake(name)
		return err == nil
	}, func() string { return err.Error() })
	return leaf
}

// refused fails the test unless the handshake ends with the alert unrecognized_name.
func (w *world) refused(name string, protocols ...string) {
	w.t.Helper()
	if _, err := w.shake(name, protocols...); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		w.t.Errorf("%s: %v, want the alert unrecognized_name", name, err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// named implements domain.Config's Sites: every site's subdomain is its ID.
type named struct{}

// Subdomain implements domain.Config.Sites.
func (named) Subdomain(_ context.Context, _ db.Reader, _ account.OwnerID, site id.Site) (string, error) {
	return string(site), nil
}

// reports passes certificate events to a world's domains.
type reports struct{ w *world }

func (h reports) Delegated(ctx context.Context, name string) (bool, error) {
	return h.w.domains.Delegated(ctx, name)
}

func (h reports) ReportTx(ctx context.Context, tx *db.Tx, r Report) error {
	w := h.w
	_, found, err := w.domains.CertificateTx(ctx, tx, r.Host, domain.SSL(r.State), domain.Certificate{
		Issuer:    r.Issuer,
		NotBefore: db.At(r.NotBefore), ExpiresAt: db.At(r.NotAfter), LastError: r.LastError, NextAttemptAt: db.At(r.NextAttempt),
	})
	if found {
		tx.AfterCommit(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, r)
		})
	}
	return err
}

// wildcards tells a world's domains where to delegate the challenges of wildcards.
type wildcards struct{ w *world }

func (z wildcards) RetryTx(context.Context, *db.Tx, string) error { return nil }
func (z wildcards) CAs(context.Context) []string                  { return nil }
func (z wildcards) Delegation(name string) string                 { return z.w.Delegation(name) }
