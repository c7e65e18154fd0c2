package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"slipway/internal/db"
)

// The limits of the largest public authority (Let's Encrypt, "Rate Limits"); others are
// wider. Sliding windows are stricter than its token buckets.
const (
	maxInvalid   = 5   // failed validations of a name in an hour
	maxIssued    = 50  // new certificates in a registrable domain in a week
	maxDuplicate = 5   // certificates of a name in a week, renewals that replace one aside
	maxOrders    = 290 // orders in three hours: 300 less those that are being placed
	week         = 7 * 24 * time.Hour
	orderWindow  = 3 * time.Hour
)

// What the ledger counts.
const (
	ledgerOrder   = "order"
	ledgerInvalid = "invalid"
	ledgerIssued  = "issued"
	ledgerRenewed = "renewed"
)

// allowed returns how an order would be counted, and until when it has to wait; the zero
// time where it may be placed.
func (s *Certs) allowed(ctx context.Context, i *issuer, a *attempt) (kind string, until time.Time, err error) {
	kind = ledgerIssued
	if i.issued(a) {
		kind = ledgerRenewed
	}
	// The entry that must have left the window before the next one fits is the one that
	// stands at the limit, counted from the newest.
	check := func(limit int, window time.Duration, where string, args ...any) error {
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
			if free := at[limit-1].Time().Add(window); free.After(until) {
				until = free
			}
		}
		return nil
	}
	if err := check(maxOrders, orderWindow, "kind = 'order'"); err != nil {
		return "", until, err
	}
	if err := check(maxInvalid, time.Hour, "kind = 'invalid' AND host = $3", a.host); err != nil {
		return "", until, err
	}
	if kind == ledgerIssued {
		if err := check(maxIssued, week, "kind = 'issued' AND zone = $3", zoneOf(a.host)); err != nil {
			return "", until, err
		}
		if err := check(maxDuplicate, week, "kind IN ('issued', 'renewed') AND host = $3", a.host); err != nil {
			return "", until, err
		}
	}
	return kind, until, nil
}

// count writes one entry, also when the attempt's time is up.
func (s *Certs) count(ctx context.Context, i *issuer, host, kind string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO acme_ledger (id, ca, host, zone, kind, at) VALUES ($1, $2, $3, $4, $5, $6)",
			db.NewID("acl"), i.key, host, zoneOf(host), kind, db.Now())
		return err
	})
}

// zoneOf returns the registrable domain that authorities count by, or the name itself
// where the public suffix list knows none.
func zoneOf(host string) string {
	host = strings.TrimPrefix(host, "*.")
	if zone, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return zone
	}
	return host
}

// tidying removes every hour what counts no more, and names that every node has forgotten.
func (s *Certs) tidying(ctx context.Context) error {
	for {
		if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "certificates not tidied", "err", err)
		}
		if !wait(ctx, nil, time.Hour) {
			return nil
		}
	}
}

func (s *Certs) tidy(ctx context.Context) error {
	now := db.Now()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		for q, at := range map[string]db.Time{
			"DELETE FROM acme_ledger WHERE at < $1":                             now.Add(-week),
			"DELETE FROM acme_ledger WHERE kind = 'order' AND at < $1":          now.Add(-orderWindow),
			"DELETE FROM acme_challenges WHERE until < $1":                      now,
			"DELETE FROM acme_locks WHERE until < $1":                           now.Add(-time.Hour),
			"DELETE FROM certificates WHERE state = 'gone' AND changed_at < $1": now.Add(-24 * time.Hour),
		} {
			if _, err := tx.Exec(ctx, q, at); err != nil {
				return fmt.Errorf("tidy certificates: %w", err)
			}
		}
		return nil
	})
}
