package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
)

// prepare opens the local authority and waits for the database. It fails if the authority was sealed with another key,
// since no new visitor could be served.
func (s *Certs) prepare(ctx context.Context) error {
	var sealed error
	err := s.patiently(ctx, "local authority not ready", func(ctx context.Context) error {
		_, err := s.local.get(ctx)
		if errors.Is(err, seal.ErrOpen) {
			sealed, err = err, nil
		}
		return err
	})
	return errors.Join(sealed, err)
}

// certify signs certificates for custom hosts and reports them until ctx ends, so that domains work before their first
// visitor. It runs if no public authority is configured.
func (s *Certs) certify(ctx context.Context) error {
	wake, stop := s.c.DB.Listen("live")
	defer stop()
	version := int64(-1)
	var all time.Time
	for {
		var err error
		if time.Since(all) > wantAll {
			start := time.Now()
			if version, err = s.certifyAbove(ctx, -1); err == nil {
				all = start
			}
		} else {
			version, err = s.certifyAbove(ctx, version)
		}
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "certificates of custom hosts not reported", "err", err)
		}
		if !woken(ctx, wake, wantPoll) {
			return nil
		}
	}
}

// certifyAbove signs for the custom hosts above a version whose certificate is missing or ends soon. It returns the
// highest version seen.
func (s *Certs) certifyAbove(ctx context.Context, above int64) (int64, error) {
	type host struct {
		name    string
		version int64
	}
	rows, err := s.c.DB.Query(ctx, `
		SELECT host, version FROM custom_hosts
		WHERE version > $1 AND state = 'active' AND certified_until < $2 ORDER BY version`, above, db.At(time.Now().Add(leafRenew)))
	all, err := db.Collect(rows, err, func(r db.Scanner) (h host, err error) {
		err = r.Scan(&h.name, &h.version)
		return h, err
	})
	if err != nil {
		return above, fmt.Errorf("read custom hosts: %w", err)
	}
	for _, h := range all {
		if err := s.certifyOne(ctx, h.name); err != nil {
			return above, err
		}
		above = h.version
	}
	return above, nil
}

func (s *Certs) certifyOne(ctx context.Context, host string) error {
	l, err := s.local.leaf(ctx, host)
	if err != nil || s.c.Domains == nil {
		return err
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var until db.Time
		rows, err := tx.Query(ctx, "SELECT certified_until FROM custom_hosts WHERE host = $1 AND state = 'active'", host)
		found, err := db.Collect(rows, err, func(r db.Scanner) (t db.Time, err error) {
			err = r.Scan(&t)
			return t, err
		})
		if err != nil || len(found) == 0 { // already gone
			return err
		}
		until = found[0]
		if until >= db.At(time.Now().Add(leafRenew)) {
			return nil // another node was faster
		}
		event := Issued
		if until != 0 {
			event = Renewed
		}
		return s.c.Domains.ReportTx(ctx, tx, Report{
			Host:      host,
			State:     Active,
			Issuer:    l.issuer,
			NotBefore: l.from,
			NotAfter:  l.until,
			Event:     event,
		})
	})
	if err != nil {
		return fmt.Errorf("report certificate of %s: %w", host, err)
	}
	return nil
}
