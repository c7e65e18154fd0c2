package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

const (
	wantPoll = time.Second
	wantAll  = 5 * time.Minute
	wantPage = 200 // names per transaction
)

// want keeps the rows in step with the view custom_hosts: it applies changes at once and compares everything now and
// then. Several nodes may run it; every step is repeatable.
func (s *Certs) want(ctx context.Context) error {
	wake, stop := s.c.DB.Listen("live")
	defer stop()
	var version int64
	var all time.Time
	for {
		var err error
		if time.Since(all) > wantAll {
			start := time.Now()
			if version, err = s.compare(ctx, 0); err == nil {
				if err = s.forsake(ctx); err == nil {
					all = start
				}
			}
		} else {
			version, err = s.compare(ctx, version)
		}
		if err == nil {
			err = s.control(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "custom hosts not read", "err", err)
		}
		if !woken(ctx, wake, wantPoll) {
			return nil
		}
	}
}

// route is a custom host joined with the row of its certificate.
type route struct {
	host, state string
	version     int64
	certified   db.Time // end of the certificate that its domain knows of
	owner       id.Owner
	delegated   bool
	have        string // state of the certificate's row, empty if there is none
	kind        string
	seen        int64 // route version in the certificate's row
}

// wants reports whether a certificate must be requested. A wildcard whose proof can't be found isn't ordered; its route
// changes once that is fixed.
func (h route) wants() bool {
	switch {
	case h.state != "active":
		return false
	case h.have == "" || h.have == string(gone):
		return h.delegated || !strings.HasPrefix(h.host, "*.")
	}
	return h.seen < h.version || h.have == string(Active) && h.certified == 0
}

// compare applies the custom hosts above a version and returns the highest seen. Unchanged rows cost no write.
func (s *Certs) compare(ctx context.Context, above int64) (int64, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := s.c.DB.Query(ctx, `
		SELECT h.host, h.state, h.version, h.certified_until, COALESCE(d.owner_id, ''), COALESCE(d.delegated, TRUE),
		       COALESCE(c.state, ''), COALESCE(c.kind, ''), COALESCE(c.route, 0)
		FROM custom_hosts h LEFT JOIN certificates c ON c.host = h.host LEFT JOIN domain_holders d ON d.host = h.host
		WHERE h.version > $1 ORDER BY h.version`, floor)
	all, err := db.Collect(rows, err, func(r db.Scanner) (h route, err error) {
		err = r.Scan(&h.host, &h.state, &h.version, &h.certified, &h.owner, &h.delegated, &h.have, &h.kind, &h.seen)
		return h, err
	})
	if err != nil {
		return above, fmt.Errorf("read custom hosts: %w", err)
	}
	var changes []route
	end := above
	for _, h := range all {
		end = max(end, h.version)
		if h.wants() || h.state != "active" && h.kind == kindCustom && h.have != string(gone) {
			changes = append(changes, h)
		}
	}
	highest := above
	for len(changes) > 0 {
		page := changes[:min(len(changes), wantPage)]
		changes = changes[len(page):]
		err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			for _, h := range page {
				var err error
				switch {
				case h.state != "active":
					err = s.dropTx(ctx, tx, h.host)
				case orderable(h.host):
					err = s.askTx(ctx, tx, ask{host: h.host, kind: kindCustom, owner: h.owner, route: h.version, unknown: h.certified == 0})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return highest, err
		}
		highest = page[len(page)-1].version
	}
	return end, nil
}

// control requests certificates for the control plane's additional hosts.
func (s *Certs) control(ctx context.Context) error {
	rows, err := s.c.DB.Query(ctx, `
		SELECT h.host FROM control_hosts h LEFT JOIN certificates c ON c.host = h.host AND c.state <> 'gone' WHERE c.host IS NULL`)
	hosts, err := db.Collect(rows, err, column)
	if err != nil {
		return fmt.Errorf("read hosts of the control plane: %w", err)
	}
	for _, host := range hosts {
		if !orderable(host) {
			continue
		}
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.askTx(ctx, tx, ask{host: host, kind: kindControl}) }); err != nil {
			return err
		}
	}
	return nil
}

// forsake drops custom hosts that are no longer in the view.
func (s *Certs) forsake(ctx context.Context) error {
	rows, err := s.c.DB.Query(ctx, `
		SELECT c.host FROM certificates c LEFT JOIN custom_hosts h ON h.host = c.host AND h.state = 'active'
		WHERE c.kind = 'custom' AND c.state <> 'gone' AND h.host IS NULL`)
	hosts, err := db.Collect(rows, err, column)
	if err != nil {
		return fmt.Errorf("read forsaken certificates: %w", err)
	}
	for _, host := range hosts {
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.dropTx(ctx, tx, host) }); err != nil {
			return err
		}
	}
	return nil
}
