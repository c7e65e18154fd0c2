package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
)

// retry lists the waits after the first, second, … failed attempt. Authorities allow five failures per hour, which the
// first five waits respect.
var retry = []time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour,
}

const (
	attemptBudget = 2 * time.Minute
	tellEvery     = 24 * time.Hour // how often ssl.failed is sent for one name

	undelegatedWait = 10 * time.Minute // how often a missing record is looked up again
)

// attempt is one try to get a certificate for a name, from any of the authorities.
type attempt struct {
	row
	previous *x509.Certificate // certificate to renew, or nil
	stored   map[string][]byte // what certmagic stored: certificate, key and metadata

	invalid bool      // an authority looked for the proof and didn't find it
	errs    []string  // one message per authority
	until   time.Time // time before which limits forbid every authority. Zero: no limit applied.
	told    time.Time // time until which the last authority asks not to be contacted
	asked   int       // number of authorities contacted
	causes  []error
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// work orders due certificates until ctx ends, one attempt per worker. An order may take longer than a lease, so work
// renews the lease. If a node dies, another takes over within seconds.
func (s *Certs) work(ctx context.Context, magic *certmagic.Config) error {
	wake, stop := s.c.DB.Listen(topic)
	defer stop()
	leases := &job.Leases{DB: s.c.DB, Log: s.c.Log, Renew: renewLease}
	var renewing sync.WaitGroup
	defer renewing.Wait()
	// uncaught: renews leases
	renewing.Go(func() { leases.Run(ctx) })
	// share: total Config.Workers (4) orders of certificates at once; owner in turn, see the ledger's limits of an owner; edge waits until it is due
	job.Loop{
		Places: s.c.Workers, Wake: wake, Poll: time.Second,
		Lease: func(ctx context.Context) (func(), error) {
			r, found, err := s.due(ctx)
			if !found {
				return nil, err
			}
			return func() {
				held, release := leases.Hold(ctx, r.host, r.attempts)
				defer release()
				s.try(held, magic, r)
			}, nil
		},
		Failed: func(ctx context.Context, err error) {
			s.c.Log.ErrorContext(ctx, "due certificates not read", "err", err)
		},
	}.Run(ctx)
	return nil
}

func renewLease(ctx context.Context, tx *db.Tx, host string, attempt int64, until db.Time) error {
	n, err := tx.Exec(ctx,
		`UPDATE certificates SET lease_until = $3 WHERE host = $1 AND attempts = $2 AND state <> 'gone'`, host, attempt,
		until)
	if err == nil && n == 0 {
		return job.ErrLost
	}
	return err
}

// due claims the next due name, in this order: owners without running orders first, then the control plane's and sites'
// names before custom hosts, then names without a certificate before renewals, then the longest wait. One owner gets at
// most half of the workers. The caller renews the lease; the attempt number fences off a node that lost it.
func (s *Certs) due(ctx context.Context) (r row, found bool, err error) {
	now := s.c.DB.Now()
	var n int
	err = s.c.DB.QueryRow(ctx,
		"SELECT count(*) FROM (SELECT 1 FROM certificates WHERE next_at <> 0 AND next_at <= $1 AND lease_until < $1 LIMIT 1) AS due",
		now).Scan(&n)
	if err != nil || n == 0 {
		return row{}, false, err
	}
	busy, err := s.busy(ctx, now)
	if err != nil {
		return row{}, false, err
	}
	full, some := []string{""}, []string{""}
	for owner, n := range busy {
		if n >= max(1, s.c.Workers/2) {
			full = append(full, owner)
		} else {
			some = append(some, owner)
		}
	}
	args := db.Args{now, now.Add(job.LeaseTime)}
	atLimit, underWay := db.AddList(&args, full), db.AddList(&args, some)
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `
			UPDATE certificates SET lease_until = $2, attempts = attempts + 1
			WHERE host = (SELECT host FROM certificates WHERE next_at <> 0 AND next_at <= $1 AND lease_until < $1
			    AND (owner_id = '' OR owner_id NOT IN (`+atLimit+`))
			  ORDER BY CASE WHEN owner_id IN (`+underWay+`) AND owner_id <> '' THEN 1 ELSE 0 END,
			    CASE kind WHEN 'custom' THEN 1 ELSE 0 END, CASE material WHEN '' THEN 0 ELSE 1 END, next_at
			  LIMIT 1`+tx.SkipLocked()+`)
			RETURNING `+columns, args...)
		got, err := db.Collect(rows, err, scan)
		found = len(got) == 1
		if found {
			r = got[0]
		}
		return err
	})
	return r, found, err
}

// busy counts running orders on all nodes, by owner.
func (s *Certs) busy(ctx context.Context, now db.Time) (map[string]int, error) {
	rows, err := s.c.DB.Query(ctx, "SELECT owner_id FROM certificates WHERE lease_until <> 0 AND lease_until >= $1 AND owner_id <> ''", now)
	owners, err := db.Collect(rows, err, column)
	if err != nil {
		return nil, fmt.Errorf("read orders under way: %w", err)
	}
	out := map[string]int{}
	for _, owner := range owners {
		out[owner]++
	}
	return out, nil
}

// try makes one attempt and stores its result. It may run again after a crash, which costs one order.
func (s *Certs) try(ctx context.Context, magic *certmagic.Config, r row) {
	a := &attempt{row: r, stored: map[string][]byte{}}
	bounded, cancel := context.WithTimeout(ctx, attemptBudget)
	defer cancel()
	wanted, err := s.wanted(bounded, &a.row)
	if err == nil && !wanted {
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.dropTx(ctx, tx, r.host) }); err != nil {
			s.c.Log.ErrorContext(ctx, "certificate not removed", "host", r.host, "err", err)
		}
		return
	}
	if err == nil {
		err = s.order(bounded, magic, a)
	}
	if errors.Is(err, errUndelegated) {
		a.errs = append(
			a.errs,
			fmt.Sprintf("No certificate is ordered until the CNAME record at _acme-challenge.%s points to %s.",
				strings.TrimPrefix(a.host, "*."), s.Delegation(a.host)),
		)
		a.until = time.Now().Add(undelegatedWait)
	}
	if ctx.Err() != nil {
		// The service stops. The lease ends by itself or at the next start.
		return
	}
	if err == nil {
		err = s.succeed(ctx, a)
	} else {
		err = s.fail(ctx, a, err)
	}
	if err != nil {
		s.c.Log.ErrorContext(ctx, "certificate attempt not recorded", "host", r.host, "err", err)
	}
}

// order lets certmagic get a certificate into a.stored.
func (s *Certs) order(ctx context.Context, magic *certmagic.Config, a *attempt) error {
	if strings.HasPrefix(a.host, "*.") && !s.dns() {
		return errNoDNS
	}
	if a.material != "" {
		if pair, err := s.open(ctx, a.material); err == nil {
			a.previous = pair.Leaf
		}
	}
	if err := magic.RenewCertSync(context.WithValue(ctx, attemptKey{}, a), a.host, true); err != nil {
		return err
	}
	if len(a.stored) == 0 {
		return errors.New("another attempt was faster")
	}
	return nil
}

// succeed activates a new certificate in one transaction: it stores it, schedules the renewal and reports it.
func (s *Certs) succeed(ctx context.Context, a *attempt) error {
	var material string
	for key := range a.stored {
		material = path.Dir(key)
	}
	pair, err := parse(a.stored, material)
	if err != nil {
		return fmt.Errorf("read new certificate: %w", err)
	}
	leaf := pair.Leaf
	before := a.row
	a.state, a.material, a.issuer = Active, material, issuerName(leaf)
	a.notBefore, a.notAfter = db.At(leaf.NotBefore), db.At(leaf.NotAfter)
	a.failures, a.err, a.toldAt, a.warned = 0, "", 0, 0
	a.nextAt = db.At(renewAt(leaf))
	event := Issued
	if before.material != "" {
		event = Renewed
	}
	kept := false
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if kept, err = s.noteTx(ctx, tx, a.row); err != nil || !kept {
			return err
		}
		if before.material != "" && before.material != material {
			if err := s.removeTx(ctx, tx, before.material); err != nil {
				return err
			}
		}
		for key, value := range a.stored {
			if err := s.storage.storeTx(ctx, tx, key, value); err != nil {
				return err
			}
		}
		return s.reportTx(ctx, tx, a.row, event)
	})
	if err == nil && kept {
		s.metrics.orders.WithLabelValues("success").Inc()
		s.c.Log.InfoContext(ctx, "certificate obtained", "host", a.host, "issuer", a.issuer, "until", leaf.NotAfter,
			"renewal", event == Renewed)
	}
	return err
}

// renewAt returns when a third of the certificate's life is left, minus a random part so that renewals spread out.
func renewAt(leaf *x509.Certificate) time.Time { return renewBetween(leaf.NotBefore, leaf.NotAfter) }

func renewBetween(from, until time.Time) time.Time {
	life := until.Sub(from)
	early := time.Duration(rand.Int64N(int64(max(life/50, 0)) + 1))
	return until.Add(-life/3 - early)
}

// fail stores why there is no certificate and when the next attempt is due.
func (s *Certs) fail(ctx context.Context, a *attempt, cause error) error {
	now := time.Now()
	limited := a.asked == 0 && !a.until.IsZero()
	if !limited {
		a.failures++
		pause := s.c.Retry[min(int(a.failures)-1, len(s.c.Retry)-1)]
		pause += time.Duration(rand.Int64N(int64(pause/5)+1)) - pause/10
		a.nextAt = db.At(now.Add(pause))
	} else {
		a.nextAt = db.At(a.until.Add(time.Duration(rand.Int64N(int64(time.Minute)))))
	}
	a.err = a.words(cause)
	event := Nothing
	if a.notAfter <= db.At(now) {
		a.state = Failed
	}
	left := a.notAfter.Time().Sub(now)
	warn := a.overdue(left)
	if warn != 0 {
		a.warned = int64(warn)
	}
	if warn != 0 || now.Sub(a.toldAt.Time()) > tellEvery {
		event, a.toldAt = Failure, db.At(now)
	}
	if a.state == Active && a.warned != 0 {
		a.err = text.Clip(fmt.Sprintf("The certificate ends in %s and can't be renewed. %s", remaining(left), a.err), 600)
	}
	kept := false
	err := s.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if kept, err = s.noteTx(ctx, tx, a.row); err != nil || !kept {
			return err
		}
		return s.reportTx(ctx, tx, a.row, event)
	})
	if err != nil || !kept {
		return err
	}
	s.metrics.orders.WithLabelValues("failure").Inc()
	why := errors.Join(append(a.causes, cause)...)
	switch {
	case warn != 0:
		s.c.Log.WarnContext(ctx, "certificate expires soon", "host", a.host, "until", a.notAfter, "days", int(left.Hours()/24), "err", why)
	case len(a.causes) == 0 && !errors.Is(cause, errNoDNS) &&
		!errors.Is(cause, errUndelegated), errors.Is(why, errAccount) && problem(why) != nil:
		// No authority judged the name, so the cause is on our side.
		s.c.Log.ErrorContext(ctx, "certificate not ordered", "host", a.host, "failures", a.failures, "next", a.nextAt, "err", why)
	default:
		s.c.Log.InfoContext(ctx, "certificate not obtained", "host", a.host, "failures", a.failures, "next", a.nextAt, "err", why)
	}
	return nil
}

// noteTx stores the result of an attempt. kept is false if another node took the name over or no certificate is wanted
// any more.
func (s *Certs) noteTx(ctx context.Context, tx *db.Tx, r row) (kept bool, err error) {
	n, err := tx.Exec(ctx, `
		UPDATE certificates SET state = $3, material = $4, issuer = $5, not_before = $6, not_after = $7, failures = $8, error = $9,
		  next_at = $10, told_at = $11, warned = $12, changed_at = $13, owner_id = $14, lease_until = 0
		WHERE host = $1 AND attempts = $2 AND state <> 'gone'`,
		r.host, r.attempts, r.state, r.material, r.issuer, r.notBefore, r.notAfter, r.failures, r.err,
		r.nextAt, r.toldAt, r.warned, db.Now(), r.owner)
	if err != nil {
		return false, fmt.Errorf("note certificate of %s: %w", r.host, err)
	}
	if n == 1 {
		nextVersion(tx, r.host)
	}
	return n == 1, nil
}

// reportTx reports an event to the owner of a custom host.
func (s *Certs) reportTx(ctx context.Context, tx *db.Tx, r row, event Event) error {
	if s.c.Domains == nil || r.kind != kindCustom {
		return nil
	}
	err := s.c.Domains.ReportTx(ctx, tx, Report{
		Host:        r.host,
		State:       r.state,
		Issuer:      r.issuer,
		NotBefore:   r.notBefore.Time(),
		NotAfter:    r.notAfter.Time(),
		LastError:   r.err,
		NextAttempt: r.nextAt.Time(),
		Event:       event,
	})
	if err != nil {
		return fmt.Errorf("report certificate of %s: %w", r.host, err)
	}
	return nil
}
