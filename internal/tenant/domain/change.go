package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// Update holds changes of a domain. nil leaves a field unchanged.
type Update struct {
	SiteID     *id.Site // must belong to the same owner
	RedirectTo *string  // empty: serve the site
	Primary    *bool
}

// UpdateTx changes the owner's domain. An update without changes leaves even the times alone. A domain that moves to
// another site stays active: its route changes in the transaction, and its proof and certificate stay. Faults:
// NotFound, Invalid.
func (d *Domains) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, u Update) (Domain, error) {
	dom, err := d.Get(ctx, tx, owner, id)
	if err != nil {
		return Domain{}, err
	}
	before := dom
	if u.SiteID != nil && *u.SiteID != dom.SiteID {
		if err := d.moveTx(ctx, tx, &dom, *u.SiteID); err != nil {
			return Domain{}, err
		}
	}
	if u.RedirectTo != nil {
		if dom.RedirectTo, err = d.redirect(ctx, tx, owner, dom.Name, *u.RedirectTo); err != nil {
			return Domain{}, err
		}
		if dom.RedirectTo != before.RedirectTo {
			dom.redirectLostAt = 0
		}
	}
	plain := dom.RedirectTo == "" && !strings.HasPrefix(dom.Name, "*.")
	if u.Primary != nil {
		if *u.Primary && !plain {
			return Domain{}, notPrimary()
		}
		dom.Primary = *u.Primary
	}
	dom.Primary = dom.Primary && plain
	if dom.SiteID == before.SiteID && dom.RedirectTo == before.RedirectTo && dom.Primary == before.Primary {
		return before, nil
	}
	dom.UpdatedAt = db.Now()
	if dom.Primary {
		if err := onlyPrimary(ctx, tx, dom.SiteID, dom.ID); err != nil {
			return Domain{}, err
		}
	}
	if _, err := tx.Exec(ctx,
		"UPDATE domains SET site_id = $2, redirect_to = $3, is_primary = $4, updated_at = $5, redirect_lost_at = $6 WHERE id = $1",
		id, dom.SiteID, dom.RedirectTo, dom.Primary, dom.UpdatedAt, dom.redirectLostAt); err != nil {
		return Domain{}, fmt.Errorf("update domain %s: %w", id, err)
	}
	if dom.Primary != before.Primary {
		tx.Notify("live") // the site may have to know
	}
	if dom.RedirectTo != before.RedirectTo || dom.SiteID != before.SiteID {
		served, err := routed(ctx, tx, before)
		if err == nil && served {
			err = route(ctx, tx, dom)
		}
		if err != nil {
			return Domain{}, err
		}
	}
	return d.Get(ctx, tx, owner, id)
}

// moveTx assigns a domain to another site of its owner. It becomes primary if that site has no primary domain. A check
// is due at once, since the required records name another host now.
func (d *Domains) moveTx(ctx context.Context, tx *db.Tx, dom *Domain, to id.Site) error {
	target, err := d.target(ctx, tx, dom.Owner, to)
	if err != nil {
		return err
	}
	var primaries int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM domains WHERE site_id = $1 AND is_primary", to).Scan(&primaries); err != nil {
		return fmt.Errorf("count primary domains: %w", err)
	}
	token, err := tokenOf(ctx, tx, dom.Owner)
	if err != nil {
		return err
	}
	rival, err := rivalry(ctx, tx, dom.Name, dom.Owner)
	if err != nil {
		return err
	}
	dom.SiteID, dom.Primary = to, primaries == 0
	seen, err := json.Marshal(diagnose(d.claim(dom.Name, token, target, rival, dom.Proven()), observed{}).findings)
	if err != nil {
		return fmt.Errorf("store findings: %w", err)
	}
	// Incrementing checks discards the result of a running check, which used the old site.
	_, err = tx.Exec(ctx, `
		UPDATE domains SET findings = $2, checks = checks + 1, tries = 0, lease_until = 0, next_check_at = $3,
		  pending_at = CASE WHEN status = 'failed' THEN $3 ELSE pending_at END,
		  status = CASE WHEN status = 'failed' THEN 'pending' ELSE status END
		WHERE id = $1`, dom.ID, string(seen), tx.Now())
	if err != nil {
		return fmt.Errorf("move domain %s: %w", dom.ID, err)
	}
	tx.Notify(topic)
	return nil
}

// DeleteTx deletes the owner's domain and its route. For 30 days, other accounts can claim a proven name only with the
// TXT proof.
func (d *Domains) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Domain, error) {
	dom, err := d.Get(ctx, tx, owner, id)
	if err != nil {
		return Domain{}, err
	}
	return dom, release(ctx, tx, dom)
}

// ForgetSiteTx deletes all domains of a site that is being deleted.
func (d *Domains) ForgetSiteTx(ctx context.Context, tx *db.Tx, siteID id.Site) error {
	rows, err := tx.Query(ctx, "SELECT "+columns+" FROM domains WHERE site_id = $1 ORDER BY id", siteID)
	all, err := db.Collect(rows, err, scan)
	if err != nil {
		return fmt.Errorf("list domains of site: %w", err)
	}
	for _, dom := range all {
		if err := release(ctx, tx, dom); err != nil {
			return err
		}
	}
	return nil
}

func release(ctx context.Context, tx *db.Tx, dom Domain) error {
	if _, err := tx.Exec(ctx, "DELETE FROM domains WHERE id = $1", dom.ID); err != nil {
		return fmt.Errorf("delete domain %s: %w", dom.ID, err)
	}
	if _, err := tx.Exec(ctx, "UPDATE domains SET redirect_lost_at = $3 WHERE owner_id = $1 AND redirect_to = $2",
		dom.Owner, dom.Name, db.Now()); err != nil {
		return fmt.Errorf("note redirects to %s: %w", dom.Name, err)
	}
	if !dom.Proven() {
		return nil
	}
	if err := remember(ctx, tx, dom, false); err != nil {
		return err
	}
	return unroute(ctx, tx, dom)
}

// remember records that an account no longer holds a name.
func remember(ctx context.Context, tx *db.Tx, dom Domain, lost bool) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO domain_releases (name, owner_id, lost, released_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name, owner_id) DO UPDATE SET lost = excluded.lost, released_at = excluded.released_at`,
		dom.Name, dom.Owner, lost, db.Now())
	if err != nil {
		return fmt.Errorf("release %s: %w", dom.Name, err)
	}
	return nil
}

// redirect validates a redirect target: any host that doesn't redirect back.
func (d *Domains) redirect(ctx context.Context, r db.Reader, owner account.OwnerID, from, to string) (string, error) {
	if strings.TrimSpace(to) == "" {
		return "", nil
	}
	invalid := func(details string) error {
		return fault.New(fault.Invalid, "invalid_redirect", "Invalid redirect", details).Got(text.Clip(to, 300))
	}
	host, err := ascii(to)
	if err != nil || !strings.Contains(host, ".") {
		return "", invalid("redirectTo must be a host name such as www.example.com")
	}
	if host == from {
		return "", invalid("a name can't redirect to itself")
	}
	var exact, onward, inward int
	if err := r.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM domains WHERE owner_id = $1 AND name = $2),
		       (SELECT count(*) FROM domains WHERE owner_id = $1 AND name = $2 AND redirect_to <> ''),
		       (SELECT count(*) FROM domains WHERE owner_id = $1 AND redirect_to = $3)`, owner, host, from).Scan(
		&exact, &onward, &inward,
	); err != nil {
		return "", fmt.Errorf("check redirect: %w", err)
	}
	switch {
	case onward > 0:
		return "", invalid(host + " redirects itself")
	case inward > 0:
		return "", invalid("other names redirect to " + from)
	case exact == 0 && covers(from, host):
		return "", invalid(fmt.Sprintf("%s is covered by %s: add it as a domain of its own first", host, from))
	}
	return host, nil
}

// covers reports whether a wildcard name matches host.
func covers(wildcard, host string) bool {
	base, wild := strings.CutPrefix(wildcard, "*.")
	_, above, _ := strings.Cut(host, ".")
	return wild && above == base
}

func notPrimary() error {
	return fault.New(fault.Invalid, "invalid_primary", "A redirect or a wildcard can't be primary",
		"Choose a domain that serves the site")
}

func onlyPrimary(ctx context.Context, tx *db.Tx, siteID id.Site, id ID) error {
	if _, err := tx.Exec(ctx, "UPDATE domains SET is_primary = FALSE WHERE site_id = $1 AND id <> $2 AND is_primary",
		siteID, id); err != nil {
		return fmt.Errorf("change primary domain: %w", err)
	}
	return nil
}
