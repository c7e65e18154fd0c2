// Package domain owns custom domains: which account claims which name for which site, the
// verification of ownership, the diagnosis of DNS, and whether a name can be registered.
//
// A claim is routed only after verification: a TXT record with the account's token, or a CNAME
// record to the site, and once the name points here, or before that where the challenge of its
// certificate is delegated here. Checks run automatically with back-off, on any node, and store
// the required records, the current ones, and what is wrong. The package never treats a missing
// response (of a registry or a name server) as a result, never routes a name because of an
// address record alone, and never touches certificates.
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

// Status is where a claim stands.
type Status string

// The statuses of a claim.
const (
	Pending Status = "pending" // waiting for the proof, or for the name to point here
	Active  Status = "active"  // proven, points here, and is routed
	Failed  Status = "failed"  // checks gave up; Verify starts again
)

// SSL is the state of a domain's certificate.
type SSL string

// The states of a certificate.
const (
	SSLPending SSL = "pending"
	SSLActive  SSL = "active"
	SSLFailed  SSL = "failed"  // there is none, and the last attempt failed
	SSLExpired SSL = "expired" // the one there was has ended
)

// Domain is one account's claim of one name for one site.
type Domain struct {
	ID           ID
	Owner        account.OwnerID
	SiteID       id.Site
	Name         string // A-labels, lower case; "*." in front of a wildcard
	Status       Status
	Reason       string // why it is not active, or will not stay so, in words
	SSL          SSL
	Verification []Record  // how ownership is proven; one valid one is enough
	DNS          []Record  // where the name must point
	Challenge    *Record   // with it the certificate comes before the visitors; nil: no use, or needed and among DNS
	Problems     []Problem // what else stands in the way
	Certificate  Certificate
	Primary      bool
	RedirectTo   string // host that visitors are sent to; empty when it serves the site
	CheckedAt    db.Time
	NextCheckAt  db.Time
	CreatedAt    db.Time
	UpdatedAt    db.Time

	proof          string
	proofToken     string  // of the TXT record that proved it; it may be an owner's before
	delegated      bool    // authorities would find the proof of a wildcard, or need none
	redirectLostAt db.Time // since when RedirectTo is no domain of the owner any more
	provenAt       db.Time
	misdirectedAt  db.Time
	checks         int64
	tries          int64
	pendingAt      db.Time
}

// Proven reports whether the owner has proven the name and holds it.
func (d Domain) Proven() bool { return d.provenAt != 0 }

// Record is a DNS record that should be there, and what is.
type Record struct {
	Type     string       `json:"type"`    // TXT, CNAME, A or AAAA
	Name     string       `json:"name"`    // where it belongs, without a final dot
	Required string       `json:"value"`   // what it should hold
	Current  []string     `json:"current"` // what was found, at most 8 values of 255 bytes
	Status   RecordStatus `json:"status"`
	Reason   string       `json:"reason"`        // in words, where the status is not valid
	TTL      uint32       `json:"ttl,omitempty"` // of what was found, in seconds, as the zone's own name servers say; 0: not known
}

// RecordStatus is how a record compares with what is required.
type RecordStatus string

// The statuses of a record.
const (
	RecordPending RecordStatus = "pending" // not there yet, or nobody answered
	RecordValid   RecordStatus = "valid"
	RecordInvalid RecordStatus = "invalid" // something else is there
)

// Problem is something in the DNS that will get in the way, in words.
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

// Summary is a domain as the site list shows it.
type Summary struct {
	ID     ID
	Name   string
	Status Status
}

// The events of Config.Events.
const (
	Added    = "domain.added"    // the claim was made
	Verified = "domain.verified" // the proof was seen
	GaveUp   = "domain.failed"   // checks gave up, or somebody else proved the name

	CertificateIssued  = "ssl.issued"
	CertificateRenewed = "ssl.renewed"
	CertificateFailed  = "ssl.failed" // Domain.Certificate says why
)

// Sites knows whose a site is; package site's are one.
type Sites interface {
	// Subdomain returns the subdomain of the owner's site, or a NotFound fault.
	Subdomain(ctx context.Context, r db.Reader, owner account.OwnerID, site id.Site) (string, error)
}

// Events announces what happens to domains; EventsOf returns how.
type Events interface {
	// AnnounceTx announces an event of Config.Events in the transaction that causes it.
	AnnounceTx(ctx context.Context, tx *db.Tx, event string, d Domain) error
}

// Config holds what Domains needs.
type Config struct {
	DB  *db.DB
	Out *http.Client // from egress: refuses private addresses. Asks registries.

	Sites Sites
	// Events announces what happens to domains. Optional.
	Events Events

	SiteDomain string       // sites live at <subdomain>.<SiteDomain>
	Addrs      []netip.Addr // the edge's public addresses. Optional: those of the sites' own names count too.
	Listens    []netip.Addr // where the edge listens, for where nothing else is known. Optional: this machine's.
	Reserved   []string     // hosts nobody may claim, such as those of the control plane. Optional.

	// Certificates come from public authorities. Optional: nil means an authority of our own, which
	// CAA does not bind and which needs no proof.
	Certificates Certificates

	Registry     string   // who is asked for availability: auto, rdap or local. Optional: empty means auto.
	Prices       Prices   // laid over the list that ships. Optional.
	BootstrapURL string   // IANA's list of RDAP servers. Optional.
	Resolver     Resolver // Optional: nil means the system's resolvers.

	// Allow holds the addresses of strangers' name servers that may be asked besides public ones.
	// Optional.
	Allow  []netip.Prefix
	NSPort uint16       // where the zones' name servers listen. Optional: 0 means 53.
	Log    *slog.Logger // Optional.

	Limits *limits.Limits // Optional: without it the service's own.
}

// Certificates say what a name needs for its certificate.
type Certificates interface {
	// RetryTx makes the next order of a certificate due now.
	RetryTx(ctx context.Context, tx *db.Tx, name string) error
	// CAs returns the names by which CAA records permit our authorities (RFC 8659), or none
	// where they don't say.
	CAs(ctx context.Context) []string
	// Delegation returns where _acme-challenge.<name> must lead for a proof in the DNS, which wildcards need, or nothing where there
	// is none.
	Delegation(name string) string
}

// Domains is the service. It is safe for concurrent use.
type Domains struct {
	c         Config
	prices    Prices
	rdap      *registries
	known     answers
	flight    singleflight.Group
	asking    *fair.Pool // a place for each availability check that asks outside
	observing *fair.Pool // a place for each check of a domain's DNS

	targetMu    sync.Mutex // guards targetAddrs and targetUntil; held while the DNS is asked
	targetAddrs []netip.Addr
	targetUntil time.Time

	budget, hedge time.Duration
}

// New returns the service; it starts nothing.
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

// findings holds the result of a check, as the table stores it.
type findings struct {
	Verification []Record  `json:"verification"`
	DNS          []Record  `json:"dns"`
	Challenge    *Record   `json:"challenge,omitempty"`
	Problems     []Problem `json:"problems,omitempty"`
}

func scan(row db.Scanner) (Domain, error) {
	var d Domain
	var seen string
	err := row.Scan(
		&d.ID, &d.Owner, &d.SiteID, &d.Name, &d.Status, &d.Reason, &d.Primary, &d.RedirectTo, &d.proof,
		&d.provenAt, &d.misdirectedAt, &seen, &d.checks, &d.tries, &d.pendingAt, &d.CheckedAt, &d.NextCheckAt,
		&d.SSL, &d.Certificate.Issuer, &d.Certificate.NotBefore, &d.Certificate.ExpiresAt, &d.Certificate.LastError,
		&d.Certificate.NextAttemptAt, &d.CreatedAt, &d.UpdatedAt, &d.delegated, &d.redirectLostAt, &d.proofToken,
	)
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

// List returns the owner's domains, by name.
func (d *Domains) List(ctx context.Context, owner account.OwnerID) ([]Domain, error) {
	rows, err := d.c.DB.Query(ctx, "SELECT "+columns+" FROM domains WHERE owner_id = $1 ORDER BY name, id", owner)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	return all, nil
}

// Primary returns the name by which a site is called while that is served, or nothing. The
// caller knows that the site is its user's.
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

// Summaries returns the domains of each of the owner's sites, by name. The caller knows that
// the sites are the owner's.
func (d *Domains) Summaries(ctx context.Context, r db.Reader, owner account.OwnerID, siteIDs []id.Site) (map[id.Site][]Summary, error) {
	out := map[id.Site][]Summary{}
	collect := func(row db.Scanner) (struct{}, error) {
		var site id.Site
		var s Summary
		err := row.Scan(&site, &s.ID, &s.Name, &s.Status)
		out[site] = append(out[site], s)
		return struct{}{}, err
	}
	// An owner mostly has fewer domains than a page has sites: reading them all takes less than a list of ids.
	if few := len(siteIDs); few > 1 {
		rows, err := r.Query(
			ctx, "SELECT site_id, id, name, status FROM domains WHERE owner_id = $1 ORDER BY name, id LIMIT $2 + 0",
			owner, few+1,
		)
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
