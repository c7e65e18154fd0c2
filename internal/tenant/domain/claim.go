package domain

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

const (
	// quarantine is how long other accounts need the TXT proof to claim a released name.
	quarantine = 30 * 24 * time.Hour
	// unprovenMax caps an account's unproven claims.
	unprovenMax = 100

	tokenPrefix = "slipway-"
)

// NewDomain is the input of [Domains.Create].
type NewDomain struct {
	Name       string // a host name, optionally prefixed with "*."
	RedirectTo string // host to redirect visitors to. Optional.
	Primary    bool   // makes it the site's main name. The first eligible domain always is.

	shown bool         // Prepare found the account's TXT record
	ours  []netip.Addr // required addresses, as far as Prepare could resolve them
}

// Prepare does the network part of Create. If another account holds the name, it queries the DNS for the owner's proof.
// It also resolves the required addresses of names that can't be aliases. It takes at most 10 s.
func (d *Domains) Prepare(ctx context.Context, owner account.OwnerID, n NewDomain) (NewDomain, error) {
	name, err := d.claimable(ctx, d.c.DB, n.Name)
	if err != nil {
		return n, err
	}
	if name == zoneOf(name) {
		n.ours = d.targets(ctx)
	}
	holder, err := holderOf(ctx, d.c.DB, name, owner)
	if err != nil || holder == "" {
		return n, err
	}
	var token string
	if err := d.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		token, err = tokenOf(ctx, tx, owner)
		return err
	}); err != nil {
		return n, err
	}
	ctx, cancel := context.WithTimeout(ctx, observeBudget)
	defer cancel()
	seen, err := d.tokens(ctx, d.nameServers(ctx, strings.TrimPrefix(name, "*.")), proofName(name))
	n.shown = err == nil && slices.Contains(seen, token)
	return n, nil
}

// Create claims a name for a site of the owner. It calls Prepare, then CreateTx.
func (d *Domains) Create(ctx context.Context, owner account.OwnerID, siteID id.Site, n NewDomain) (dom Domain, err error) {
	if n, err = d.Prepare(ctx, owner, n); err != nil {
		return Domain{}, err
	}
	err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
		dom, err = d.CreateTx(ctx, tx, owner, siteID, n)
		return err
	})
	return dom, err
}

// CreateTx claims a name for a site of the owner. The name isn't routed before it is proven; the first check is due at
// once. Faults: NotFound for the site; Invalid for names that can't be claimed; Conflict if the owner has already
// claimed it, or if another account holds it and Prepare found no TXT record of the owner.
func (d *Domains) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, siteID id.Site, n NewDomain) (Domain, error) {
	name, err := d.claimable(ctx, tx, n.Name)
	if err != nil {
		return Domain{}, err
	}
	target, err := d.target(ctx, tx, owner, siteID)
	if err != nil {
		return Domain{}, err
	}
	if err := d.forgetLost(ctx, tx, owner, name); err != nil {
		return Domain{}, err
	}
	token, err := tokenOf(ctx, tx, owner)
	if err != nil {
		return Domain{}, err
	}
	switch holder, err := holderOf(ctx, tx, name, owner); {
	case err != nil:
		return Domain{}, err
	case holder != "" && !n.shown:
		return Domain{}, fault.New(fault.Conflict, "domain_claimed", "Domain already claimed",
			fmt.Sprintf("Another account uses %s. If you own it, add a TXT record %s with the value %s and try again",
				name, proofName(name), token)).Got(name)
	}
	redirect, err := d.redirect(ctx, tx, owner, name, n.RedirectTo)
	if err != nil {
		return Domain{}, err
	}
	plain := redirect == "" && !strings.HasPrefix(name, "*.")
	if n.Primary && !plain {
		return Domain{}, notPrimary()
	}
	var unproven, primaries int
	if err := tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM domains WHERE owner_id = $1 AND proven_at = 0),
		       (SELECT count(*) FROM domains WHERE site_id = $2 AND is_primary)`, owner, siteID).Scan(&unproven, &primaries); err != nil {
		return Domain{}, fmt.Errorf("count domains: %w", err)
	}
	if unproven >= unprovenMax {
		return Domain{}, fault.New(fault.Conflict, "too_many_unproven", "Too many unverified domains",
			fmt.Sprintf("At most %d domains can be unverified at a time. Verify or delete some", unprovenMax))
	}
	if err := d.c.Limits.RequireTx(ctx, tx, owner, limits.Domains, 1); err != nil {
		return Domain{}, err
	}
	rival, err := rivalry(ctx, tx, name, owner)
	if err != nil {
		return Domain{}, err
	}
	now := tx.Now()
	j := diagnose(d.claim(name, token, target, rival, false), observed{ours: n.ours})
	dom := Domain{
		ID: db.ID[ID]("dom"), Owner: owner, SiteID: siteID, Name: name, Status: Pending, Reason: j.reason, SSL: SSLPending,
		Verification: j.Verification, DNS: j.DNS, Challenge: j.Challenge, Problems: j.Problems,
		Primary: n.Primary || plain && primaries == 0, RedirectTo: redirect,
		NextCheckAt: now, CreatedAt: now, UpdatedAt: now, pendingAt: now,
	}
	seen, err := json.Marshal(j.findings)
	if err != nil {
		return Domain{}, fmt.Errorf("keep findings: %w", err)
	}
	if dom.Primary {
		if err := onlyPrimary(ctx, tx, siteID, dom.ID); err != nil {
			return Domain{}, err
		}
	}
	added, err := tx.Exec(ctx, `
		INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, findings,
		  checks, tries, pending_at, next_check_at, ssl_status, cert_issuer, cert_error, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', $10, 0, 0, $11, $11, $12, '', '', $11, $11)
		ON CONFLICT (owner_id, name) DO NOTHING`,
		dom.ID, owner, siteID, name, zoneOf(strings.TrimPrefix(name, "*.")), dom.Status, dom.Reason,
		dom.Primary, redirect, string(seen), now, dom.SSL)
	if err != nil {
		return Domain{}, fmt.Errorf("claim %s: %w", name, err)
	}
	if added == 0 {
		return Domain{}, fault.New(fault.Conflict, "domain_exists", "Domain already claimed",
			"You have added this domain already. To move it to another site, change its siteId").Got(name)
	}
	if _, err := tx.Exec(ctx,
		"UPDATE domains SET redirect_lost_at = 0 WHERE owner_id = $1 AND redirect_to = $2 AND redirect_lost_at <> 0",
		owner, name); err != nil {
		return Domain{}, fmt.Errorf("note redirects to %s: %w", name, err)
	}
	tx.Notify(topic)
	return dom, d.emit(ctx, tx, Added, dom)
}

// forgetLost deletes the owner's domain of this name if its site was just deleted, since the job that deletes the
// site's domains first waits for builds and programs to end.
func (d *Domains) forgetLost(ctx context.Context, tx *db.Tx, owner account.OwnerID, name string) error {
	dom, err := scan(tx.QueryRow(ctx, "SELECT "+columns+" FROM domains WHERE owner_id = $1 AND name = $2", owner, name))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if _, err := d.target(ctx, tx, owner, dom.SiteID); !fault.Is(err, fault.NotFound) {
		return err
	}
	return release(ctx, tx, dom)
}

// Get returns the owner's domain, or a NotFound fault.
func (d *Domains) Get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Domain, error) {
	dom, err := scan(r.QueryRow(ctx, "SELECT "+columns+" FROM domains WHERE id = $1 AND owner_id = $2", id, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, fault.Missing("domain")
	}
	if err != nil {
		return Domain{}, fmt.Errorf("get domain: %w", err)
	}
	return dom, nil
}

// ForSite returns the domains of the owner's site by name, or a NotFound fault.
func (d *Domains) ForSite(ctx context.Context, owner account.OwnerID, siteID id.Site) ([]Domain, error) {
	if _, err := d.c.Sites.Subdomain(ctx, d.c.DB, owner, siteID); err != nil {
		return nil, err
	}
	rows, err := d.c.DB.Query(ctx, "SELECT "+columns+" FROM domains WHERE owner_id = $1 AND site_id = $2 ORDER BY name, id", owner, siteID)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list domains of site: %w", err)
	}
	return all, nil
}

// tokenOf returns the token for the account's TXT records and creates it on first use.
func tokenOf(ctx context.Context, tx *db.Tx, owner account.OwnerID) (string, error) {
	var token string
	if _, err := tx.Exec(ctx, "INSERT INTO domain_tokens (owner_id, token) VALUES ($1, $2) ON CONFLICT (owner_id) DO NOTHING",
		owner, tokenPrefix+db.Random(20)); err != nil {
		return "", fmt.Errorf("make domain token: %w", err)
	}
	if err := tx.QueryRow(ctx, "SELECT token FROM domain_tokens WHERE owner_id = $1", owner).Scan(&token); err != nil {
		return "", fmt.Errorf("read domain token: %w", err)
	}
	return token, nil
}

// target returns the host name of the owner's site without custom domains.
func (d *Domains) target(ctx context.Context, r db.Reader, owner account.OwnerID, siteID id.Site) (string, error) {
	subdomain, err := d.c.Sites.Subdomain(ctx, r, owner, siteID)
	if err != nil {
		return "", err
	}
	return strings.ToLower(subdomain + "." + d.below()), nil
}

func (d *Domains) below() string { return strings.ToLower(strings.TrimSuffix(d.c.SiteDomain, ".")) }

// claim returns the expectations that an observation of the name is compared with.
func (d *Domains) claim(name, token, target, rival string, proven bool) claim {
	c := claim{
		name:       name,
		token:      token,
		target:     target,
		below:      d.below(),
		rival:      rival,
		proven:     proven,
		delegation: d.delegation(name),
		public:     d.c.Certificates != nil,
	}
	c.uncertain = d.c.Certificates != nil && strings.HasPrefix(name, "*.") && c.delegation == ""
	return c
}

// claimable returns the normalized name, or an Invalid fault for names that can't be claimed, including the service's
// own hosts and wildcards that cover them.
func (d *Domains) claimable(ctx context.Context, r db.Reader, received string) (string, error) {
	invalid := func(details string) error {
		return fault.New(fault.Invalid, "invalid_domain", "Invalid domain name", details).Got(text.Clip(received, 300))
	}
	name, err := claimable(received)
	if err != nil {
		return "", invalid(err.Error())
	}
	base, wild := strings.CutPrefix(name, "*.")
	if below := d.below(); below != "" && (base == below || strings.HasSuffix(base, "."+below)) {
		return "", invalid(fmt.Sprintf("names below %s are the service's own", below))
	}
	rows, err := r.Query(ctx, "SELECT host FROM control_hosts")
	reserved, err := db.Collect(rows, err, func(r db.Scanner) (host string, err error) { return host, r.Scan(&host) })
	if err != nil {
		return "", fmt.Errorf("read hosts of the control plane: %w", err)
	}
	for _, own := range append(append(reserved, d.c.Reserved...), d.below()) {
		own = strings.ToLower(strings.TrimSuffix(own, "."))
		_, above, _ := strings.Cut(own, ".")
		if name == own || wild && above == base {
			return "", invalid(fmt.Sprintf("%s belongs to the service", own))
		}
	}
	return name, nil
}

func (d *Domains) emit(ctx context.Context, tx *db.Tx, event string, dom Domain) error {
	if d.c.Events == nil {
		return nil
	}
	if err := d.c.Events.AnnounceTx(ctx, tx, event, dom); err != nil {
		return fmt.Errorf("announce %s: %w", event, err)
	}
	return nil
}
