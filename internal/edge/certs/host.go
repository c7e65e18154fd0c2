package certs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Reasons why a name gets a certificate.
const (
	kindCustom  = "custom"  // a custom host that is verified and routed
	kindSite    = "site"    // a site's own address that had a visitor
	kindControl = "control" // a name of the control plane
)

// row is a name's row in certificates.
type row struct {
	host, kind          string
	owner               id.Owner
	route               int64
	state               State
	material, issuer    string
	notBefore, notAfter db.Time
	attempts, failures  int64
	err                 string
	nextAt, toldAt      db.Time
	warned, version     int64
}

const columns = `host, kind, owner_id, route, state, material, issuer, not_before, not_after, attempts, failures, error,
	next_at, told_at, warned, version`

func scan(s db.Scanner) (row, error) {
	var r row
	err := s.Scan(&r.host, &r.kind, &r.owner, &r.route, &r.state, &r.material, &r.issuer, &r.notBefore, &r.notAfter,
		&r.attempts, &r.failures, &r.err, &r.nextAt, &r.toldAt, &r.warned, &r.version)
	return r, err
}

// orderable reports whether a public authority can certify a name. IP addresses and names of this machine aren't
// orderable.
func orderable(host string) bool {
	host = strings.TrimPrefix(host, "*.")
	return net.ParseIP(host) == nil && host != "localhost" && !strings.HasSuffix(host, ".localhost")
}

// ask is a request for a certificate.
type ask struct {
	host, kind string
	owner      id.Owner
	route      int64 // version of the custom host's row
	unknown    bool  // the holder of the custom host doesn't know that a certificate exists
}

// askTx makes sure that a name gets a certificate. A failed name is retried at once if its route is newer than the one
// it failed with. A name that its owner gave up and requests again gets its old certificate back while that is valid:
// authorities issue only a few per name.
func (s *Certs) askTx(ctx context.Context, tx *db.Tx, a ask) error {
	// Lock the row as it is read.
	rows, err := tx.Query(ctx, "UPDATE certificates SET host = host WHERE host = $1 RETURNING "+columns, a.host)
	have, err := db.Collect(rows, err, scan)
	if err != nil {
		return fmt.Errorf("ask for certificate of %s: %w", a.host, err)
	}
	now := tx.Now()
	r := row{host: a.host, kind: a.kind, owner: a.owner, route: a.route, state: Pending, nextAt: now}
	if len(have) == 1 {
		old := have[0]
		again := old.state == gone
		switch {
		case !again && old.route >= a.route && !(a.unknown && old.state == Active):
			return nil
		case again && old.material != "" && (old.owner != a.owner || old.notAfter <= now):
			if err := s.removeTx(ctx, tx, old.material); err != nil {
				return err
			}
		case again && old.material == "":
		default:
			r.state, r.material, r.issuer, r.notBefore, r.notAfter = old.state, old.material, old.issuer, old.notBefore, old.notAfter
			r.failures, r.err, r.toldAt, r.warned = old.failures, old.err, old.toldAt, old.warned
			switch {
			case again:
				r.state, r.nextAt = Active, db.At(renewBetween(old.notBefore.Time(), old.notAfter.Time()))
			case old.state == Active:
				r.nextAt = old.nextAt
			}
		}
	}
	_, err = tx.Exec(
		ctx,
		`
		INSERT INTO certificates (host, kind, owner_id, route, state, material, issuer, not_before, not_after, failures, error,
		next_at, told_at, warned, version, changed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, $15)
		ON CONFLICT (host) DO UPDATE SET kind = excluded.kind, owner_id = excluded.owner_id, route = excluded.route, state = excluded.state,
		  material = excluded.material, issuer = excluded.issuer, not_before = excluded.not_before, not_after = excluded.not_after,
		  failures = excluded.failures, error = excluded.error, next_at = excluded.next_at, told_at = excluded.told_at, warned = excluded.warned,
		  changed_at = excluded.changed_at`,
		r.host, r.kind, r.owner, r.route, r.state, r.material, r.issuer, r.notBefore, r.notAfter, r.failures, r.err,
		r.nextAt, r.toldAt, r.warned, now,
	)
	if err != nil {
		return fmt.Errorf("ask for certificate of %s: %w", a.host, err)
	}
	nextVersion(tx, a.host)
	if r.state == Active && a.unknown {
		return s.reportTx(ctx, tx, r, Issued)
	}
	return nil
}

// RetryTx makes the next attempt for a custom host due now, for owners who have fixed the cause. The authorities'
// limits still apply, and repeated requests wait longer: 1, 4, 9, … seconds after the last attempt.
//
// It needs no [Certs], because the caller may be another process than the one that orders.
func RetryTx(ctx context.Context, tx *db.Tx, host string) error {
	n, err := tx.Exec(ctx, `
		UPDATE certificates SET next_at = CASE WHEN next_at < changed_at + $3 * failures * failures THEN next_at
		  WHEN changed_at + $3 * failures * failures > $2 THEN changed_at + $3 * failures * failures ELSE $2 END
		WHERE host = $1 AND failures > 0 AND state <> 'gone'`, host, tx.Now(), time.Second.Milliseconds())
	if err != nil {
		return fmt.Errorf("retry certificate of %s: %w", host, err)
	}
	if n > 0 {
		tx.Notify(topic)
	}
	return nil
}

// keptMax caps how many certificates of names that an owner gave up are kept.
const keptMax = 100

// dropTx withdraws a name's certificate from all nodes. The newest keptMax certificates of each owner are kept until
// they expire.
func (s *Certs) dropTx(ctx context.Context, tx *db.Tx, host string) error {
	rows, err := tx.Query(ctx, "UPDATE certificates SET host = host WHERE host = $1 AND state <> 'gone' RETURNING "+columns, host)
	have, err := db.Collect(rows, err, scan)
	if err != nil {
		return fmt.Errorf("drop certificate of %s: %w", host, err)
	}
	if len(have) == 0 {
		return nil
	}
	r := have[0]
	if r.material != "" && r.notAfter <= db.Now() {
		if err := s.removeTx(ctx, tx, r.material); err != nil {
			return err
		}
		r.material, r.issuer, r.notBefore, r.notAfter = "", "", 0, 0
	}
	_, err = tx.Exec(ctx, `
		UPDATE certificates SET state = 'gone', material = $3, issuer = $4, not_before = $5, not_after = $6, failures = 0,
		error = '', next_at = 0,
		  lease_until = 0, told_at = 0, warned = 0, route = 0, attempts = attempts + 1, changed_at = $2
		WHERE host = $1`, host, db.Now(), r.material, r.issuer, r.notBefore, r.notAfter)
	if err != nil {
		return fmt.Errorf("drop certificate of %s: %w", host, err)
	}
	nextVersion(tx, host)
	rows, err = tx.Query(ctx, fmt.Sprintf(`
		SELECT host, material FROM certificates WHERE owner_id = $1 AND state = 'gone' AND material <> ''
		ORDER BY changed_at DESC LIMIT 100 OFFSET %d`, keptMax), r.owner)
	return s.purgeTx(ctx, tx, rows, err)
}

// purgeTx deletes withdrawn certificates from the storage; rows holds host and material.
func (s *Certs) purgeTx(ctx context.Context, tx *db.Tx, rows *sql.Rows, err error) error {
	type kept struct{ host, material string }
	all, err := db.Collect(rows, err, func(r db.Scanner) (k kept, err error) {
		err = r.Scan(&k.host, &k.material)
		return k, err
	})
	if err != nil {
		return fmt.Errorf("read certificates that are gone: %w", err)
	}
	for _, k := range all {
		if err := s.removeTx(ctx, tx, k.material); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			"UPDATE certificates SET material = '', issuer = '', not_before = 0, not_after = 0 WHERE host = $1 AND state = 'gone'",
			k.host); err != nil {
			return fmt.Errorf("purge certificate of %s: %w", k.host, err)
		}
	}
	return nil
}

// removeTx deletes what certmagic stored for one certificate.
func (s *Certs) removeTx(ctx context.Context, tx *db.Tx, material string) error {
	certificate, key, meta := files(material)
	if _, err := tx.Exec(ctx, "DELETE FROM acme_storage WHERE key IN ($1, $2, $3)", certificate, key, meta); err != nil {
		return fmt.Errorf("remove %s: %w", material, err)
	}
	return nil
}

// files returns the storage keys of a certificate, as certmagic's KeyBuilder names them.
func files(material string) (certificate, key, meta string) {
	base := path.Join(material, path.Base(material))
	return base + ".crt", base + ".key", base + ".json"
}

// wanted reports whether a name still needs a certificate when its order is due, and updates r with its owner.
// errUndelegated means that it does, but that an authority wouldn't find its proof.
func (s *Certs) wanted(ctx context.Context, r *row) (bool, error) {
	one := func(q, arg string, to ...any) (bool, error) {
		err := s.c.DB.QueryRow(ctx, q, arg).Scan(to...)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up %s: %w", r.host, err)
		}
		return true, nil
	}
	switch {
	case r.kind == kindControl:
		r.owner = ""
		if slices.ContainsFunc(s.c.Hosts, func(h string) bool { return strings.EqualFold(h, r.host) }) {
			return true, nil
		}
		return one("SELECT host FROM control_hosts WHERE host = $1", r.host, &r.host)
	case r.kind == kindSite && r.host == s.wildcard():
		r.owner = ""
		return s.dns(), s.delegated(ctx, r.host)
	case r.kind == kindSite:
		if shared := s.held.get(s.wildcard()); s.dns() && shared != nil && shared.cert != nil {
			return false, nil // the handshake of a wildcard's certificate covers it
		}
		return one("SELECT owner_id FROM open_sites WHERE subdomain = $1", strings.TrimSuffix(r.host, "."+s.c.SiteDomain), &r.owner)
	}
	found, err := one(`
		SELECT COALESCE(d.owner_id, '') FROM custom_hosts h LEFT JOIN domain_holders d ON d.host = h.host
		WHERE h.host = $1 AND h.state = 'active'`, r.host, &r.owner)
	if err == nil && found {
		err = s.delegated(ctx, r.host)
	}
	return found, err
}

// delegated returns errUndelegated for a wildcard whose proof an authority wouldn't find: the order would only count as
// a failure. A DNS query without an answer isn't a reason.
func (s *Certs) delegated(ctx context.Context, host string) error {
	if s.c.Domains == nil || !s.dns() || !strings.HasPrefix(host, "*.") {
		return nil
	}
	if ok, err := s.c.Domains.Delegated(ctx, host); err == nil && !ok {
		return errUndelegated
	}
	return nil
}

// column scans a row of one column.
func column(r db.Scanner) (s string, err error) {
	err = r.Scan(&s)
	return s, err
}
