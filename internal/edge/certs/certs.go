// Package certs owns certificates: those of ACME authorities (RFC 8555) and those that the installation's own authority
// signs. It decides which names need one, orders and renews them, and finds one for a handshake.
//
// If the operator names no ACME authority, the local one signs for every name that the caller vouches for. Otherwise
// the local one signs only for names that no public authority can certify, such as IP addresses and names below
// localhost: visitors never get an untrusted certificate in place of a missing one.
//
// A row per name says when the next order is due and why the last one failed; any node claims due names under a lease.
// Keys and certificates are sealed in the database as a [certmagic.Storage]. A certificate takes effect in the
// transaction that stores and reports it. Handshakes are answered from memory; only the first one for a name reads the
// database. Orders are limited to names that the caller vouches for and to the authorities' limits, which a ledger
// tracks across restarts and nodes. If the first authority can't help, the next is asked (ADR 0006).
//
// The package knows neither sites nor domains: it reads the views custom_hosts and live and reports upwards through
// [Config]. It answers only its own challenges and never orders a certificate because a stranger named a name.
package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/seal"
)

// State is the state of a certificate.
type State string

const (
	Pending State = "pending" // being ordered for the first time
	Active  State = "active"  // there is a valid one, even if its renewal fails
	Failed  State = "failed"  // there is no valid one, and the last order failed

	gone State = "gone" // no longer wanted; the row is kept so that every node sees the change
)

// Event is a change of a certificate, by the name that webhooks use.
type Event string

// Events of a [Report]. Failures are reported when they begin, then once a day, and when 21, 14 and 7 days are left.
const (
	Nothing Event = ""
	Issued  Event = "ssl.issued"
	Renewed Event = "ssl.renewed"
	Failure Event = "ssl.failed"
)

// Domains receives reports about certificates of custom hosts.
type Domains interface {
	// ReportTx receives the report in the transaction that changes the certificate.
	ReportTx(ctx context.Context, tx *db.Tx, r Report) error
	// Delegated reports whether an authority would find the DNS proof for name. It is called before each order.
	Delegated(ctx context.Context, name string) (bool, error)
}

// Report is the state of a custom host's certificate after an attempt. Unknown times are zero.
type Report struct {
	Host        string // as in the view custom_hosts
	State       State
	Issuer      string
	NotBefore   time.Time
	NotAfter    time.Time
	LastError   string // message for the owner; empty after a success
	NextAttempt time.Time
	Event       Event
}

// Config holds the dependencies and settings of Certs.
type Config struct {
	DB   *db.DB
	Seal *seal.Sealer
	Out  *http.Client // reaches the authorities, which the operator named. Optional without CAs.

	CAs   []string // ACME directories in order of preference. Optional: without one the local authority signs.
	Email string   // contact of the account. Optional.

	// Bindings holds the external account bindings that authorities gave the operator (RFC 8555 §7.3.4), by the host of
	// their directory. Optional.
	Bindings map[string]Binding

	SiteDomain string   // sites live at <label>.<SiteDomain>
	Hosts      []string // names of the control plane, ordered at start. Optional.

	Domains Domains // owns the custom hosts. Optional.

	HTTP01    bool // a plain HTTP listener calls Challenge
	TLSALPN01 bool // a TLS listener calls Certificate and offers acme-tls/1

	// DNS answers DNS challenges, which wildcards need. Optional: nil means that wildcards get no certificate.
	DNS *DNS

	Workers int          // concurrent orders. Optional: 0 means 4.
	Log     *slog.Logger // Optional.
	Metrics prometheus.Registerer

	// Retry replaces the waits between failed attempts, for tests. The last one repeats.
	Retry []time.Duration
}

// Binding is an external account binding: a key and its id.
type Binding struct {
	KeyID string
	HMAC  string // base64url, as authorities print it
}

// LogValue keeps the key out of logs.
func (Binding) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// Certs is the service. It is safe for concurrent use.
type Certs struct {
	c          Config
	storage    *Storage
	issuers    []*issuer
	local      authority
	held       *held
	challenges challenges
	metrics    metrics
	single     bool       // the installation has one node
	slots      *fair.Pool // bounds concurrent queries that strangers can cause
}

// New checks the addresses of the ACME authorities. It starts nothing.
func New(c Config) (*Certs, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Workers = cmp.Or(c.Workers, 4)
	c.SiteDomain = strings.ToLower(strings.Trim(c.SiteDomain, "."))
	if len(c.Retry) == 0 {
		c.Retry = retry
	}
	s := &Certs{
		c:       c,
		single:  c.DB.Single(),
		storage: NewStorage(c.DB, c.Seal),
		held:    newHeld(),
		slots:   newSlots(),
		metrics: newMetrics(c.Metrics),
	}
	s.local.db, s.local.seal, s.local.minted = c.DB, c.Seal, s.metrics.minted
	if c.DNS != nil {
		s.c.DNS.Zone = strings.ToLower(strings.Trim(c.DNS.Zone, "."))
	}
	for i, address := range c.CAs {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, fmt.Errorf("%q is not an ACME directory such as https://acme-v02.api.letsencrypt.org/directory", address)
		}
		s.issuers = append(s.issuers, newIssuer(s, u, i == 0))
	}
	return s, nil
}

// Run orders, renews and announces certificates until ctx ends. Several nodes may run it on one database.
func (s *Certs) Run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if len(s.issuers) == 0 {
		return s.certify(ctx)
	}
	magic, stop := s.magic()
	defer stop()
	if err := s.patiently(ctx, "certificates not prepared", s.begin); err != nil {
		return nil // ctx ended
	}
	var g errgroup.Group
	g.Go(func() error { return panics.Again(ctx, s.want) })
	g.Go(func() error { return panics.Again(ctx, s.follow) })
	g.Go(func() error { return panics.Again(ctx, func(ctx context.Context) error { return s.work(ctx, magic) }) })
	g.Go(func() error { return panics.Again(ctx, s.tidying) })
	g.Go(func() error { return panics.Again(ctx, s.serveDNS) })
	return g.Wait()
}

// magic returns a certmagic configuration with our storage and issuers. Its cache and maintenance are unused.
func (s *Certs) magic() (m *certmagic.Config, stop func()) {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		Logger:           zap.NewNop(),
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
	})
	template := certmagic.Config{Storage: s.storage, Logger: zap.NewNop(), DisableARI: true, DisableStorageCheck: true}
	for _, i := range s.issuers {
		template.Issuers = append(template.Issuers, i)
	}
	config = certmagic.New(cache, template)
	return config, cache.Stop
}

// begin ends all leases if no other node can hold one, and requests certificates for the control plane's names.
func (s *Certs) begin(ctx context.Context) error {
	if s.dns() && orderable(s.c.SiteDomain) {
		s.c.Log.InfoContext(ctx, "sites share a certificate if this DNS record exists", "record",
			fmt.Sprintf("_acme-challenge.%s. CNAME %s.", s.c.SiteDomain, s.Delegation(s.c.SiteDomain)))
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if s.single {
			_, err1 := tx.Exec(ctx, "UPDATE certificates SET lease_until = 0 WHERE lease_until <> 0")
			_, err2 := tx.Exec(ctx, "DELETE FROM acme_locks")
			_, err3 := tx.Exec(ctx, "DELETE FROM acme_challenges")
			if err := errors.Join(err1, err2, err3); err != nil {
				return fmt.Errorf("free certificates: %w", err)
			}
		}
		if s.dns() && orderable(s.c.SiteDomain) {
			if err := s.askTx(ctx, tx, ask{host: s.wildcard(), kind: kindSite}); err != nil {
				return err
			}
		}
		for _, host := range s.c.Hosts {
			host = strings.ToLower(host)
			if orderable(host) {
				if err := s.askTx(ctx, tx, ask{host: host, kind: kindControl}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// patiently repeats fn every second until it succeeds or ctx ends.
func (s *Certs) patiently(ctx context.Context, message string, fn func(context.Context) error) error {
	for {
		err := fn(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		s.c.Log.ErrorContext(ctx, message, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// woken waits for wake, at most d. It returns false if ctx ended.
func woken(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}

// topic notifies nodes of new orders and changes.
const topic = "certificates"

// nextVersion gives a row that the transaction wrote the next version number, by which nodes follow changes.
func nextVersion(tx *db.Tx, host string) {
	const counter = "certificate_version"
	tx.Last(counter, "UPDATE certificate_version SET n = n + 1 WHERE id = 1")
	tx.Last(counter, "UPDATE certificates SET version = (SELECT n FROM certificate_version WHERE id = 1) WHERE host = $1", host)
	tx.Notify(topic)
}
