// Package domain owns custom domains: which account claims which name for which site, the verification of ownership,
// the diagnosis of DNS, and whether a name can be registered.
//
// A claim is proven by a TXT record with the account's token or a CNAME record to the site. It is routed once it is
// proven and points here, or earlier if the challenge of its certificate is delegated here. Checks run on any node with
// back-off and store the required records, the current ones, and the problems. The package never treats a missing
// response of a registry or name server as a result, never routes a name because of an address record alone, and never
// touches certificates.
package domain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"golang.org/x/sync/singleflight"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// ID names a domain: "dom_" and 26 characters.
type ID = id.Domain

// Status is the state of a claim.
type Status string

const (
	Pending Status = "pending" // waiting for proof, or for the name to point here
	Active  Status = "active"  // proven and routed
	Failed  Status = "failed"  // checks gave up; Verify starts again
)

// SSL is the state of a domain's certificate.
type SSL string

const (
	SSLPending SSL = "pending"
	SSLActive  SSL = "active"
	SSLFailed  SSL = "failed"  // no certificate, and the last attempt failed
	SSLExpired SSL = "expired" // the certificate has expired
)

// Domain is an account's claim of a name for a site.
type Domain struct {
	ID           ID
	Owner        account.OwnerID
	SiteID       id.Site
	Name         string // lower-case A-labels; wildcards begin with "*."
	Status       Status
	Reason       string // why it isn't active, or won't stay so
	SSL          SSL
	Verification []Record  // alternative proofs of ownership; one valid record is enough
	DNS          []Record  // records that route visitors here
	Challenge    *Record   // lets the certificate come before visitors; nil if useless, or if required and thus in DNS
	Problems     []Problem // other obstacles
	Certificate  Certificate
	Primary      bool
	RedirectTo   string // host to redirect visitors to; empty: serve the site
	CheckedAt    db.Time
	NextCheckAt  db.Time
	CreatedAt    db.Time
	UpdatedAt    db.Time

	proof          string
	proofToken     string  // the token in the TXT record that proved it, which may be a previous owner's
	delegated      bool    // a wildcard's DNS challenge is found, or isn't needed
	redirectLostAt db.Time // time at which the owner lost the domain RedirectTo; 0: not lost
	provenAt       db.Time
	misdirectedAt  db.Time
	checks         int64
	tries          int64
	pendingAt      db.Time
}

// Proven reports whether the owner has proven the name and still holds it.
func (d Domain) Proven() bool { return d.provenAt != 0 }

// Record compares a required DNS record with the current ones.
type Record struct {
	Type     string       `json:"type"`    // TXT, CNAME, A or AAAA
	Name     string       `json:"name"`    // without a final dot
	Required string       `json:"value"`   // required value
	Current  []string     `json:"current"` // found values, at most 8 of 255 bytes
	Status   RecordStatus `json:"status"`
	Reason   string       `json:"reason"`        // in words, unless the status is valid
	TTL      uint32       `json:"ttl,omitempty"` // of the found records, in seconds, from the zone's name servers; 0: unknown
}

type RecordStatus string

const (
	RecordPending RecordStatus = "pending" // absent, or the query failed
	RecordValid   RecordStatus = "valid"
	RecordInvalid RecordStatus = "invalid" // a different record exists
)

// Problem describes an obstacle in the DNS.
type Problem struct {
	// caa, ipv6_mismatch, mixed_addresses, cdn, wrong_target, no_answer, foreign_token, challenge, no_wildcards,
	// redirect_target, wrong_name, hidden_wildcard
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Certificate holds the last report about a domain's certificate.
type Certificate struct {
	Issuer        string
	NotBefore     db.Time
	ExpiresAt     db.Time
	LastError     string
	NextAttemptAt db.Time
}

// Summary is a domain in the site list.
type Summary struct {
	ID     ID
	Name   string
	Status Status
}

// The events of [Events.AnnounceTx].
const (
	Added    = "domain.added"    // the claim was created
	Verified = "domain.verified" // the proof was found
	GaveUp   = "domain.failed"   // checks gave up, or another account proved the name

	CertificateIssued  = "ssl.issued"
	CertificateRenewed = "ssl.renewed"
	CertificateFailed  = "ssl.failed" // see Domain.Certificate
)

// Sites looks up sites. It is implemented by package site.
type Sites interface {
	// Subdomain returns the subdomain of the owner's site, or a NotFound fault.
	Subdomain(ctx context.Context, r db.Reader, owner account.OwnerID, site id.Site) (string, error)
}

// Events announces changes of domains. See [EventsOf].
type Events interface {
	// AnnounceTx announces an event in the transaction that causes it.
	AnnounceTx(ctx context.Context, tx *db.Tx, event string, d Domain) error
}

// Config holds what Domains needs.
type Config struct {
	DB  *db.DB
	Out *http.Client // from egress, for requests to registries

	Sites Sites
	// Optional: nil announces nothing.
	Events Events

	SiteDomain string       // sites live at <subdomain>.<SiteDomain>
	Addrs      []netip.Addr // the edge's public addresses, besides those of the sites' host names. Optional.
	Listens    []netip.Addr // addresses that the edge listens on, used if no others are known. Optional: defaults to the machine's.
	Reserved   []string     // hosts that can't be claimed, such as the dashboard's. Optional.

	// Certificates is nil if certificates come from the installation's own authority, which ignores CAA and needs no
	// proof.
	Certificates Certificates

	Registry     string   // source of availability answers: auto, rdap or local. Optional: empty means auto.
	Prices       Prices   // override the built-in price list. Optional.
	BootstrapURL string   // URL of IANA's list of RDAP servers. Optional.
	Resolver     Resolver // Optional: nil means the system's resolvers.

	// Allow lists non-public addresses at which customers' name servers may be queried. Optional.
	Allow  []netip.Prefix
	NSPort uint16       // port of the zones' name servers. Optional: 0 means 53.
	Log    *slog.Logger // Optional.

	Limits *limits.Limits // Optional: without it, the default limits apply.
}

// Certificates tells what a certificate for a name requires.
type Certificates interface {
	// RetryTx makes the next order of a certificate due now.
	RetryTx(ctx context.Context, tx *db.Tx, name string) error
	// CAs returns the names that CAA records must permit (RFC 8659), or nil if unknown.
	CAs(ctx context.Context) []string
	// Delegation returns the required target of _acme-challenge.<name> for DNS challenges, or "" if they are
	// unavailable. Wildcards need them.
	Delegation(name string) string
}

// Domains is the service. It is safe for concurrent use.
type Domains struct {
	c         Config
	prices    Prices
	rdap      *registries
	known     answers
	flight    singleflight.Group
	asking    *fair.Pool // slots for availability checks that ask outside
	observing *fair.Pool // slots for checks of domains' DNS

	targetMu    sync.Mutex // guards targetAddrs and targetUntil; held during the DNS query
	targetAddrs []netip.Addr
	targetUntil time.Time

	budget, hedge time.Duration
}

// New returns the service. It starts nothing.
func New(c Config) *Domains {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Registry = cmp.Or(c.Registry, "auto")
	c.BootstrapURL = cmp.Or(c.BootstrapURL, "https://data.iana.org/rdap/dns.json")
	c.NSPort = cmp.Or(c.NSPort, 53)
	if c.Resolver == nil {
		c.Resolver = &DNS{}
	}
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.Domains, `SELECT count(*) FROM domains WHERE owner_id = $1`)
	return &Domains{
		c: c, prices: c.Prices.withDefaults(), rdap: newRegistries(c.Out),
		// share: total 32 availability checks that ask registries; owner 8, in turn; edge waits for as long as a check may take, then says that there are too many
		asking: fair.New(fair.Config{Places: 32, Owner: 8, Waiting: 1000, OwnerWaiting: 100}),
		// share: total 16 checks of domains' DNS; owner 4, in turn; edge waits
		observing: fair.New(fair.Config{Places: 16, Owner: 4}), budget: checkBudget, hedge: checkHedge,
	}
}

const columns = `id, owner_id, site_id, name, status, reason, is_primary, redirect_to, proof, proven_at,
	astray_at, findings, checks, tries, pending_at, checked_at, next_check_at, ssl_status, cert_issuer,
	cert_not_before, cert_expires_at, cert_error, cert_next_at, created_at, updated_at, delegated, redirect_lost_at, proof_token`

// findings is the stored result of a check.
type findings struct {
	Verification []Record  `json:"verification"`
	DNS          []Record  `json:"dns"`
	Challenge    *Record   `json:"challenge,omitempty"`
	Problems     []Problem `json:"problems,omitempty"`
}

func scan(row db.Scanner) (Domain, error) {
	var d Domain
	var seen string
	err := row.Scan(&d.ID, &d.Owner, &d.SiteID, &d.Name, &d.Status, &d.Reason, &d.Primary, &d.RedirectTo, &d.proof,
		&d.provenAt, &d.misdirectedAt, &seen, &d.checks, &d.tries, &d.pendingAt, &d.CheckedAt, &d.NextCheckAt, &d.SSL,
		&d.Certificate.Issuer, &d.Certificate.NotBefore, &d.Certificate.ExpiresAt, &d.Certificate.LastError,
		&d.Certificate.NextAttemptAt, &d.CreatedAt, &d.UpdatedAt, &d.delegated, &d.redirectLostAt, &d.proofToken)
	if err != nil {
		return Domain{}, err
	}
	var f findings
	if err := json.Unmarshal([]byte(seen), &f); err != nil {
		return Domain{}, fmt.Errorf("read findings of %s: %w", d.ID, err)
	}
	if d.SSL != SSLPending && d.Certificate.ExpiresAt != 0 && d.Certificate.ExpiresAt <= db.Now() {
		d.SSL = SSLExpired
	}
	d.Verification, d.DNS, d.Challenge, d.Problems = f.Verification, f.DNS, f.Challenge, f.Problems
	if d.redirectLostAt != 0 && d.RedirectTo != "" {
		d.Problems = append(slices.Clip(d.Problems), Problem{"redirect_target", fmt.Sprintf(
			"%s redirects to %s, which was removed from this account: add %s again or change the redirect", d.Name,
			d.RedirectTo, d.RedirectTo,
		)})
	}
	return d, nil
}

// List returns the owner's domains by name.
func (d *Domains) List(ctx context.Context, owner account.OwnerID) ([]Domain, error) {
	rows, err := d.c.DB.Query(ctx, "SELECT "+columns+" FROM domains WHERE owner_id = $1 ORDER BY name, id", owner)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	return all, nil
}

// Primary returns a site's primary domain while it is active, or "". The caller has checked access to the site.
func (d *Domains) Primary(ctx context.Context, r db.Reader, siteID id.Site) (string, error) {
	rows, err := r.Query(ctx, "SELECT name FROM domains WHERE site_id = $1 AND is_primary AND status = 'active'", siteID)
	names, err := db.Collect(rows, err, func(row db.Scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	})
	if err != nil {
		return "", fmt.Errorf("look up primary domain: %w", err)
	}
	if len(names) == 0 {
		return "", nil
	}
	return names[0], nil
}

// Summaries returns the domains of each site by name. The caller has checked that the sites are the owner's.
func (d *Domains) Summaries(ctx context.Context, r db.Reader, owner account.OwnerID, siteIDs []id.Site) (map[id.Site][]Summary, error) {
	out := map[id.Site][]Summary{}
	collect := func(row db.Scanner) (struct{}, error) {
		var site id.Site
		var s Summary
		err := row.Scan(&site, &s.ID, &s.Name, &s.Status)
		out[site] = append(out[site], s)
		return struct{}{}, err
	}
	// Owners usually have fewer domains than a page has sites, so reading all of them is cheaper than a list of IDs.
	if few := len(siteIDs); few > 1 {
		rows, err := r.Query(ctx,
			"SELECT site_id, id, name, status FROM domains WHERE owner_id = $1 ORDER BY name, id LIMIT $2 + 0", owner,
			few+1)
		all, err := db.Collect(rows, err, collect)
		if err != nil {
			return nil, fmt.Errorf("list domains of an owner: %w", err)
		}
		if len(all) <= few {
			return out, nil
		}
		clear(out)
	}
	for len(siteIDs) > 0 {
		n := min(len(siteIDs), 500)
		var args db.Args
		marks := db.AddList(&args, siteIDs[:n])
		siteIDs = siteIDs[n:]
		rows, err := r.Query(ctx, "SELECT site_id, id, name, status FROM domains WHERE site_id IN ("+
			marks+") ORDER BY name, id", args...)
		if _, err = db.Collect(rows, err, collect); err != nil {
			return nil, fmt.Errorf("list domains of sites: %w", err)
		}
	}
	return out, nil
}
