package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"slipway/internal/platform/db"
)

// Limits of Let's Encrypt ("Rate Limits"); other authorities allow more. Our sliding windows are stricter than its
// token buckets.
const (
	maxInvalid   = 5  // failed validations of a name per hour
	maxIssued    = 50 // new certificates per registrable domain and week
	maxDuplicate = 5  // certificates of a name per week, without renewals by replacement
	week         = 7 * 24 * time.Hour

	// All owners share the registrable domain of the sites. Of its new certificates, one owner may use ownerIssued, and
	// some are reserved for the control plane's names.
	ownerIssued   = 25
	controlIssued = 5
)

// Kinds of ledger entries.
const (
	ledgerOrder   = "order"
	ledgerInvalid = "invalid"
	ledgerIssued  = "issued"
	ledgerRenewed = "renewed"
)

// class returns the quota class of an attempt's order.
func (a *attempt) class() class {
	switch {
	case a.material != "":
		return classRenewal
	case a.kind == kindCustom:
		return classCustom
	}
	return classSite
}

// allowed returns how an order would be counted, until when it must wait (zero if it needn't), and whether it waits
// because of its owner's other orders.
func (s *Certs) allowed(ctx context.Context, i *issuer, a *attempt) (kind string, until time.Time, mine bool, err error) {
	kind = ledgerIssued
	if i.issued(a) {
		kind = ledgerRenewed
	}
	later := func(t time.Time, own bool) {
		if t.After(until) {
			until, mine = t, own
		}
	}
	// The next one fits once the entry at position limit, counted from the newest, has left the window.
	check := func(limit int, window time.Duration, own bool, where string, args ...any) error {
		rows, err := s.c.DB.Query(ctx, fmt.Sprintf(`
			SELECT at FROM acme_ledger WHERE ca = $1 AND at > $2 AND %s ORDER BY at DESC LIMIT %d`, where, limit),
			append([]any{i.key, db.Now().Add(-window)}, args...)...)
		at, err := db.Collect(rows, err, func(r db.Scanner) (t db.Time, err error) {
			err = r.Scan(&t)
			return t, err
		})
		if err != nil {
			return fmt.Errorf("read ledger: %w", err)
		}
		if len(at) == limit {
			later(at[limit-1].Time().Add(window), own)
		}
		return nil
	}
	rows, err := s.c.DB.Query(ctx,
		"SELECT class, owner_id, at FROM acme_ledger WHERE ca = $1 AND kind = 'order' AND at > $2", i.key,
		db.Now().Add(-orderWindow))
	orders, err := db.Collect(rows, err, func(r db.Scanner) (p placed, err error) {
		var at db.Time
		err = r.Scan(&p.class, &p.owner, &at)
		p.at = at.Time()
		return p, err
	})
	if err != nil {
		return "", until, false, fmt.Errorf("read ledger: %w", err)
	}
	if free, why := opening(orders, a.class(), a.owner); why != fits {
		later(free, why == ownerLimit)
	}
	if err := check(maxInvalid, time.Hour, false, "kind = 'invalid' AND host = $3", a.host); err != nil {
		return "", until, false, err
	}
	if kind == ledgerRenewed {
		return kind, until, mine, nil
	}
	zone, most := zoneOf(a.host), maxIssued
	if zone == zoneOf(s.c.SiteDomain) && a.kind != kindControl && a.host != s.wildcard() {
		most -= controlIssued
		if a.owner != "" {
			if err := check(ownerIssued, week, true, "kind = 'issued' AND zone = $3 AND owner_id = $4", zone, a.owner); err != nil {
				return "", until, false, err
			}
		}
	}
	if err := check(most, week, false, "kind = 'issued' AND zone = $3", zone); err != nil {
		return "", until, false, err
	}
	if err := check(maxDuplicate, week, false, "kind IN ('issued', 'renewed') AND host = $3", a.host); err != nil {
		return "", until, false, err
	}
	return kind, until, mine, nil
}

// count writes one ledger entry, even if the attempt's deadline has passed.
func (s *Certs) count(ctx context.Context, i *issuer, a *attempt, kind string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx,
			"INSERT INTO acme_ledger (id, ca, host, zone, kind, owner_id, class, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			db.NewID("acl"), i.key, a.host, zoneOf(a.host), kind, a.owner, string(a.class()), db.Now())
		return err
	})
}

// zoneOf returns the registrable domain, by which authorities count, or the name itself if the public suffix list
// doesn't know it.
func zoneOf(host string) string {
	host = strings.TrimPrefix(host, "*.")
	if zone, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return zone
	}
	return host
}

// tidying deletes expired ledger entries and forgotten names every hour.
func (s *Certs) tidying(ctx context.Context) error {
	for {
		if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "certificates not tidied", "err", err)
		}
		if !woken(ctx, nil, time.Hour) {
			return nil
		}
	}
}

func (s *Certs) tidy(ctx context.Context) error {
	now := db.Now()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		for q, at := range map[string]db.Time{
			"DELETE FROM acme_ledger WHERE at < $1":                                               now.Add(-week),
			"DELETE FROM acme_ledger WHERE kind = 'order' AND at < $1":                            now.Add(-orderWindow),
			"DELETE FROM acme_challenges WHERE until < $1":                                        now,
			"DELETE FROM acme_locks WHERE until < $1":                                             now.Add(-time.Hour),
			"DELETE FROM certificates WHERE state = 'gone' AND material = '' AND changed_at < $1": now.Add(-24 * time.Hour),
		} {
			if _, err := tx.Exec(ctx, q, at); err != nil {
				return fmt.Errorf("tidy certificates: %w", err)
			}
		}
		rows, err := tx.Query(ctx,
			"SELECT host, material FROM certificates WHERE state = 'gone' AND material <> '' AND not_after < $1 LIMIT 1000",
			now)
		return s.purgeTx(ctx, tx, rows, err)
	})
}
