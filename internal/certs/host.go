package certs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"slipway/internal/db"
)

// Why a name should have a certificate.
const (
	kindCustom  = "custom"  // somebody proved it and it is routed
	kindSite    = "site"    // a visitor came to a site's own address
	kindControl = "control" // the control plane's
)

// row is a name's row.
type row struct {
	host, kind          string
	route               int64
	state               State
	material, issuer    string
	notBefore, notAfter db.Time
	attempts, failures  int64
	err                 string
	nextAt, toldAt      db.Time
	warned, version     int64
}

const columns = `host, kind, route, state, material, issuer, not_before, not_after, attempts, failures, error, next_at, told_at, warned, version`

func scan(s db.Scanner) (row, error) {
	var r row
	err := s.Scan(&r.host, &r.kind, &r.route, &r.state, &r.material, &r.issuer, &r.notBefore, &r.notAfter, &r.attempts, &r.failures,
		&r.err, &r.nextAt, &r.toldAt, &r.warned, &r.version)
	return r, err
}

// orderable reports whether an authority could know a name: addresses and names of this
// very machine it can't.
func orderable(host string) bool {
	host = strings.TrimPrefix(host, "*.")
	return net.ParseIP(host) == nil && host != "localhost" && !strings.HasSuffix(host, ".localhost")
}

// askTx sees to it that a name gets a certificate. A name that failed is tried again at
// once when its route is newer than the one it failed with.
func (s *Certs) askTx(ctx context.Context, tx *db.Tx, host, kind string, route int64) error {
	v, err := nextVersion(ctx, tx)
	if err != nil {
		return err
	}
	now := db.Now()
	_, err = tx.Exec(ctx, `
		INSERT INTO certificates (host, kind, route, state, next_at, version, changed_at) VALUES ($1, $2, $3, 'pending', $4, $5, $4)
		ON CONFLICT (host) DO UPDATE SET kind = excluded.kind, route = excluded.route, version = excluded.version, changed_at = excluded.changed_at,
		  next_at = CASE WHEN certificates.state = 'active' THEN certificates.next_at ELSE excluded.next_at END,
		  state = CASE WHEN certificates.state = 'gone' THEN 'pending' ELSE certificates.state END
		WHERE certificates.state = 'gone' OR certificates.route < excluded.route`, host, kind, route, now, v)
	if err != nil {
		return fmt.Errorf("ask for certificate of %s: %w", host, err)
	}
	return nil
}

// RetryTx makes the next attempt for a custom host due now, for an owner who has put
// right what was wrong. The limits of the authorities stay in force, and whoever asks again
// and again waits longer each time: a second, 4, 9, … after the last attempt.
//
// It needs no Certs: whoever is asked may be another process than the one that orders.
func RetryTx(ctx context.Context, tx *db.Tx, host string) error {
	n, err := tx.Exec(ctx, `
		UPDATE certificates SET next_at = CASE WHEN next_at < changed_at + $3 * failures * failures THEN next_at
		  WHEN changed_at + $3 * failures * failures > $2 THEN changed_at + $3 * failures * failures ELSE $2 END
		WHERE host = $1 AND failures > 0 AND state <> 'gone'`, host, db.Now(), time.Second.Milliseconds())
	if err != nil {
		return fmt.Errorf("retry certificate of %s: %w", host, err)
	}
	if n > 0 {
		tx.Notify(topic)
	}
	return nil
}

// dropTx ends a name's certificate: its key is removed, and nodes forget it.
func (s *Certs) dropTx(ctx context.Context, tx *db.Tx, host string) error {
	var material string
	err := tx.QueryRow(ctx, "SELECT material FROM certificates WHERE host = $1 AND state <> 'gone'", host).Scan(&material)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop certificate of %s: %w", host, err)
	}
	if material != "" {
		if err := s.removeTx(ctx, tx, material); err != nil {
			return err
		}
	}
	v, err := nextVersion(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		UPDATE certificates SET state = 'gone', material = '', issuer = '', not_before = 0, not_after = 0, failures = 0, error = '', next_at = 0,
		  lease_until = 0, told_at = 0, warned = 0, route = 0, attempts = attempts + 1, version = $2, changed_at = $3
		WHERE host = $1`, host, v, db.Now())
	if err != nil {
		return fmt.Errorf("drop certificate of %s: %w", host, err)
	}
	return nil
}

// removeTx removes what certmagic stored of one certificate.
func (s *Certs) removeTx(ctx context.Context, tx *db.Tx, material string) error {
	certificate, key, meta := files(material)
	if _, err := tx.Exec(ctx, "DELETE FROM acme_storage WHERE key IN ($1, $2, $3)", certificate, key, meta); err != nil {
		return fmt.Errorf("remove %s: %w", material, err)
	}
	return nil
}

// files are the keys of a certificate in the storage, as certmagic's KeyBuilder names them.
func files(material string) (certificate, key, meta string) {
	base := path.Join(material, path.Base(material))
	return base + ".crt", base + ".key", base + ".json"
}

// wanted reports whether a name should still have a certificate, now that an order is due.
func (s *Certs) wanted(ctx context.Context, r row) (bool, error) {
	if r.kind == kindControl {
		for _, h := range s.c.Hosts {
			if strings.EqualFold(h, r.host) {
				return true, nil
			}
		}
		return false, nil
	}
	q, arg := "SELECT count(*) FROM custom_hosts WHERE host = $1 AND state = 'active'", r.host
	if r.kind == kindSite {
		if r.host == s.wildcard() {
			return s.dns(), nil
		}
		if shared := s.held.get(s.wildcard()); s.dns() && shared != nil && shared.cert != nil {
			return false, nil // it is what handshakes get
		}
		q, arg = "SELECT count(*) FROM live WHERE host_label = $1 AND state <> 'deleted'", strings.TrimSuffix(r.host, "."+s.c.SiteDomain)
	}
	var n int
	if err := s.c.DB.QueryRow(ctx, q, arg).Scan(&n); err != nil {
		return false, fmt.Errorf("look up %s: %w", r.host, err)
	}
	return n > 0, nil
}

const (
	wantPoll = time.Second
	wantAll  = 5 * time.Minute
	wantPage = 200 // names per transaction
)

// want keeps the rows like the view custom_hosts: changes at once, everything now and
// then. Several nodes may do the same at once; each step can be repeated.
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
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "custom hosts not read", "err", err)
		}
		if !wait(ctx, wake, wantPoll) {
			return nil
		}
	}
}

type route struct {
	host, state string
	version     int64
	have        string // state of the certificate's row, '' where there is none
	kind        string
	seen        int64 // version that the row knows
}

// compare takes over the custom hosts above a version and returns the highest seen. Rows
// that are known already cost no write.
func (s *Certs) compare(ctx context.Context, above int64) (int64, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := s.c.DB.Query(ctx, `
		SELECT h.host, h.state, h.version, COALESCE(c.state, ''), COALESCE(c.kind, ''), COALESCE(c.route, 0)
		FROM custom_hosts h LEFT JOIN certificates c ON c.host = h.host
		WHERE h.version > $1 ORDER BY h.version`, floor)
	all, err := db.Collect(rows, err, func(r db.Scanner) (h route, err error) {
		err = r.Scan(&h.host, &h.state, &h.version, &h.have, &h.kind, &h.seen)
		return h, err
	})
	if err != nil {
		return above, fmt.Errorf("read custom hosts: %w", err)
	}
	var changes []route
	end := above
	for _, h := range all {
		end = max(end, h.version)
		if h.state == "active" && (h.have == "" || h.have == string(gone) || h.seen < h.version) ||
			h.state != "active" && h.kind == kindCustom && h.have != string(gone) {
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
					err = s.askTx(ctx, tx, h.host, kindCustom, h.version)
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

// forsake drops custom hosts whose row vanished from the view.
func (s *Certs) forsake(ctx context.Context) error {
	rows, err := s.c.DB.Query(ctx, `
		SELECT c.host FROM certificates c LEFT JOIN custom_hosts h ON h.host = c.host AND h.state = 'active'
		WHERE c.kind = 'custom' AND c.state <> 'gone' AND h.host IS NULL`)
	hosts, err := db.Collect(rows, err, text)
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

// text reads a row of one column.
func text(r db.Scanner) (s string, err error) {
	err = r.Scan(&s)
	return s, err
}
