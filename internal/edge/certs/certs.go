// Package certs owns certificates: those of ACME authorities (RFC 8555) and those that the
// installation's own authority signs. It knows which names should have one, orders and
// renews them, and finds one for a handshake.
//
// Where the operator names no ACME authority the local one signs for every name that the
// caller vouches for. Where one is named the local one signs only for names that no public
// authority could know, such as addresses and names below localhost: a visitor never gets
// an untrusted certificate in place of one that is still missing.
//
// A row per name says when the next order is due and why the last one failed; any node
// takes what is due under a lease. Keys and certificates lie sealed in the database as a
// certmagic.Storage, and a certificate takes effect in the transaction that stores it and
// tells of it. A handshake is answered from memory; only the first one for a name reads
// the database. Orders are made for names that the caller vouches for and for no others, and
// within the authorities' limits, which a ledger keeps over restarts and nodes. Another
// authority is asked when the first one can't help (ADR 0006).
//
// The package knows neither sites nor domains: it reads the views custom_hosts and live
// and reports upwards through Config. It never answers a challenge that is not its own
// and never orders because a stranger named a name.
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

// State is where a certificate stands.
type State string

// The states of a certificate.
const (
	Pending State = "pending" // being ordered for the first time
	Active  State = "active"  // there is one that is good, perhaps with trouble to renew it
	Failed  State = "failed"  // there is none that is good, and the last order failed

	gone State = "gone" // nobody wants it any more; kept so that every node hears of it
)

// Event names a change, as subscribers of webhooks hear it.
type Event string

// The events of a Report. Failures are told once when they begin, then once a day, and
// when 21, 14 and 7 days are left.
const (
	Nothing Event = ""
	Issued  Event = "ssl.issued"
	Renewed Event = "ssl.renewed"
	Failure Event = "ssl.failed"
)

// Domains hear of the certificates of custom hosts.
type Domains interface {
	// ReportTx is told of a custom host's certificate in the transaction that changes it.
	ReportTx(ctx context.Context, tx *db.Tx, r Report) error
	// Delegated reports whether an authority would find a proof in the DNS for a name, before one
	// is ordered.
	Delegated(ctx context.Context, name string) (bool, error)
}

// Report is the state of a custom host's certificate after an attempt. Times are zero
// where there is nothing to say.
type Report struct {
	Host        string // as the view custom_hosts has it
	State       State
	Issuer      string
	NotBefore   time.Time
	NotAfter    time.Time
	LastError   string // in words for the owner; empty after a success
	NextAttempt time.Time
	Event       Event
}

// Config holds what Certs needs.
type Config struct {
	DB   *db.DB
	Seal *seal.Sealer
	Out  *http.Client // reaches the authorities, which the operator named. Optional without CAs.

	CAs   []string // ACME directories, the one to prefer first. Optional: without one the local authority signs.
	Email string   // contact of the account. Optional.

	// Bindings are the keys that authorities gave the operator to tie an account to (RFC 8555,
	// section 7.3.4), by the host of their directory. Optional.
	Bindings map[string]Binding

	SiteDomain string   // sites live at <label>.<SiteDomain>
	Hosts      []string // the control plane's names: ordered at once, without a visitor. Optional.

	Domains Domains // whose the custom hosts are. Optional.

	HTTP01    bool // a plain listener asks Challenge
	TLSALPN01 bool // a TLS listener asks Certificate, with acme-tls/1 among its protocols

	// DNS answers challenges in the DNS, which wildcards need. Optional: nil means that
	// wildcards get no certificate.
	DNS *DNS

	Workers int          // orders at a time. Optional: 0 means 4.
	Log     *slog.Logger // Optional.
	Metrics prometheus.Registerer

	// Retry replaces the waits between failed attempts, for tests. The last one repeats.
	Retry []time.Duration
}

// Binding is a key that an authority gave out, and its name.
type Binding struct {
	KeyID string
	HMAC  string // base64url, as authorities show it
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
	single     bool       // no other node needs to hear of anything
	slots      *fair.Pool // bounds the queries that strangers can cause at once
}

// New checks the addresses of the ACME authorities and starts nothing.
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

// Run keeps certificates ordered, renewed and known until ctx ends. Several nodes may run
// it over one database.
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

// magic places orders: certmagic with our storage and our issuers. Its own cache
// and maintenance stay empty.
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

// begin frees what a process that is no more held, and asks for the control plane's names.
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

// patiently repeats fn every second until it passes or ctx ends.
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

// woken returns when something woke it, after at most d, or false when ctx ended.
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

// topic wakes those who wait for an order or a change.
const topic = "certificates"

// nextVersion gives a row, which the transaction has written, the next number of the counter that orders what nodes must see.
func nextVersion(tx *db.Tx, host string) {
	const counter = "certificate_version"
	tx.Last(counter, "UPDATE certificate_version SET n = n + 1 WHERE id = 1")
	tx.Last(counter, "UPDATE certificates SET version = (SELECT n FROM certificate_version WHERE id = 1) WHERE host = $1", host)
	tx.Notify(topic)
}
