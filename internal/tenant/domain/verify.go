package domain

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

const (
	topic = "domain" // wakes Run

	lease           = time.Minute        // how long other nodes leave a leased check alone
	giveUp          = 7 * 24 * time.Hour // how long a domain may stay pending
	forget          = 7 * 24 * time.Hour // how long an unproven failed claim is kept
	misdirectedMax  = 3 * 24 * time.Hour // how long an active domain may point elsewhere
	everyDay        = 24 * time.Hour
	whenMisdirected = time.Hour
)

// backoff lists the delays after each unsuccessful check of a pending domain. The last one repeats.
var backoff = []time.Duration{
	10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

// restart resets a failed claim to pending and makes checks frequent.
const restart = `tries = 0,
	pending_at = CASE WHEN status = 'failed' THEN $3 ELSE pending_at END,
	status = CASE WHEN status = 'failed' THEN 'pending' ELSE status END`

// Verify checks the owner's domain now and returns the result. It takes at most about 10 s. A failed domain becomes
// pending again. Fault: NotFound.
func (d *Domains) Verify(ctx context.Context, owner account.OwnerID, id ID) (Domain, error) {
	var dom Domain
	err := d.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		dom, err = scan(tx.QueryRow(ctx, "UPDATE domains SET "+restart+`, checks = checks + 1, lease_until = $4
			WHERE id = $1 AND owner_id = $2 RETURNING `+columns, id, owner, tx.Now(), tx.Now().Add(lease)))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, fault.Missing("domain")
	}
	if err != nil {
		return Domain{}, fmt.Errorf("verify domain %s: %w", id, err)
	}
	if err := d.check(ctx, dom); err != nil {
		return Domain{}, err
	}
	dom, err = d.Get(ctx, d.c.DB, owner, id)
	if err != nil || d.c.Certificates == nil || !dom.Proven() || dom.SSL == SSLActive && dom.Certificate.LastError == "" {
		return dom, err
	}
	// The owner has probably also fixed what prevented the certificate.
	return dom, d.c.DB.Write(ctx, func(tx *db.Tx) error { return d.c.Certificates.RetryTx(ctx, tx, dom.Name) })
}

// due leases the domain that has been due the longest, or returns false. A domain may be leased again once the lease
// expires: checks only read, and outdated results are discarded.
func (d *Domains) due(ctx context.Context) (Domain, bool, error) {
	now := d.c.DB.Now()
	const waiting = "SELECT id FROM domains WHERE next_check_at <> 0 AND next_check_at <= $1 AND lease_until <= $1 ORDER BY " +
		"next_check_at LIMIT 1"
	var id ID
	err := d.c.DB.QueryRow(ctx, waiting, now).Scan(&id) // a read first, so that idle nodes don't write
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, false, nil
	}
	if err != nil {
		return Domain{}, false, fmt.Errorf("look for due domains: %w", err)
	}
	var dom Domain
	err = d.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		dom, err = scan(tx.QueryRow(ctx, "UPDATE domains SET checks = checks + 1, lease_until = $2 WHERE id = ("+
			waiting+tx.SkipLocked()+") RETURNING "+columns, now, now.Add(lease)))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, false, nil // another node was faster
	}
	if err != nil {
		return Domain{}, false, fmt.Errorf("lease due domain: %w", err)
	}
	return dom, true, nil
}

// check observes a leased domain's DNS and stores the result.
func (d *Domains) check(ctx context.Context, dom Domain) error {
	target, err := d.target(ctx, d.c.DB, dom.Owner, dom.SiteID)
	if fault.Is(err, fault.NotFound) {
		// The site was deleted; the job that deletes its domains is still to run.
		return d.c.DB.Write(ctx, func(tx *db.Tx) error { return d.later(ctx, tx, dom, everyDay) })
	}
	if err != nil {
		return fmt.Errorf("check domain %s: %w", dom.Name, err)
	}
	var token string
	if err := d.c.DB.QueryRow(ctx, "SELECT token FROM domain_tokens WHERE owner_id = $1",
		dom.Owner).Scan(&token); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read domain token: %w", err)
	}
	done, err := d.observing.Take(ctx, fair.Who{Owner: string(dom.Owner)})
	if err != nil {
		return err
	}
	s := d.observe(ctx, dom.Name, target, token)
	done()
	if ctx.Err() != nil { // an interrupted observation is incomplete
		return ctx.Err()
	}
	settle := func(tx *db.Tx) error { return d.settle(ctx, tx, dom.ID, dom.checks, s) }
	err = d.c.DB.Write(ctx, settle)
	if db.Duplicate(err) { // a concurrent check proved it for another account, which holds it now
		err = d.c.DB.Write(ctx, settle)
	}
	if err != nil {
		return fmt.Errorf("settle domain %s: %w", dom.Name, err)
	}
	return nil
}

func (d *Domains) later(ctx context.Context, tx *db.Tx, dom Domain, wait time.Duration) error {
	_, err := tx.Exec(ctx, "UPDATE domains SET next_check_at = $3, lease_until = 0 WHERE id = $1 AND checks = $2",
		dom.ID, dom.checks, soon(wait))
	return err
}

// soon returns the time after wait, varied by 10% so that checks spread out.
func soon(wait time.Duration) db.Time {
	return db.Now().Add(wait - wait/10 + time.Duration(rand.Int64N(int64(wait/5)+1)))
}

// settle turns an observation into the domain's new state in one transaction: proof, route, events and the next check's
// time. It does nothing if the domain was deleted, or leased again since the observation began.
func (d *Domains) settle(ctx context.Context, tx *db.Tx, id ID, checks int64, s observed) error {
	dom, err := scan(tx.QueryRow(ctx, "SELECT "+columns+" FROM domains WHERE id = $1 AND checks = $2", id, checks))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	target, err := d.target(ctx, tx, dom.Owner, dom.SiteID)
	if fault.Is(err, fault.NotFound) {
		return d.later(ctx, tx, dom, everyDay)
	}
	if err != nil {
		return err
	}
	token, err := tokenOf(ctx, tx, dom.Owner)
	if err != nil {
		return err
	}
	rival, err := rivalry(ctx, tx, dom.Name, dom.Owner)
	if err != nil {
		return err
	}
	j := diagnose(d.claim(dom.Name, token, target, rival, dom.Proven()), s)
	now := db.Now()
	before := dom
	served, err := routed(ctx, tx, dom)
	if err != nil {
		return err
	}
	served = served && dom.Proven()
	var events []string

	if j.proof != "" && !dom.Proven() {
		holder, err := holderOf(ctx, tx, dom.Name, dom.Owner)
		if err != nil {
			return err
		}
		won := true
		if holder != "" { // so the proof is a TXT record: see rivalry
			if won, err = d.displace(ctx, tx, holder, dom, s.tokens); err != nil {
				return err
			}
		}
		if won {
			dom.provenAt = now
			events = append(events, Verified)
		} else {
			j.reason = "The verification record of the account that owns the name is still there: remove it from " + proofName(dom.Name)
		}
	}
	if j.proof != "" {
		dom.proof = j.proof
	}
	if slices.Contains(s.tokens, token) {
		dom.proofToken = token // the owner's own record, which others must now beat
	}
	// The owner wants it served before visitors arrive. Failed queries don't revoke that.
	ahead := dom.Proven() && (j.ahead || served && j.quiet)
	switch {
	case dom.Proven() && j.points:
		dom.Status, dom.Reason, dom.misdirectedAt = Active, "", 0
	case dom.Status == Active && j.unknown:
		// Failed queries don't deactivate a domain.
	case dom.Status == Active:
		if dom.misdirectedAt == 0 {
			dom.misdirectedAt = now
		}
		if now.Sub(dom.misdirectedAt) >= misdirectedMax {
			dom.Status, dom.Reason = Failed, j.reason
			events = append(events, GaveUp)
			break
		}
		dom.Reason = fmt.Sprintf("%s. Unless this is fixed, the domain stops being served at %s", j.reason,
			dom.misdirectedAt.Add(misdirectedMax).Time().UTC().Format("2006-01-02 15:04 UTC"))
	case dom.Status == Pending && now.Sub(dom.pendingAt) >= giveUp && !ahead:
		dom.Status, dom.Reason = Failed, "Verification failed. "+j.reason
		events = append(events, GaveUp)
	default:
		dom.Reason = j.reason
	}

	dom.Verification, dom.DNS, dom.Challenge, dom.Problems = j.Verification, j.DNS, j.Challenge, j.Problems
	dom.CheckedAt, dom.UpdatedAt = now, now
	dom.NextCheckAt = dom.next(j)
	dom.tries++
	seen, err := json.Marshal(j.findings)
	if err != nil {
		return fmt.Errorf("keep findings: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		UPDATE domains SET status = $2, reason = $3, proof = $4, proven_at = $5, astray_at = $6, findings = $7, tries = $8,
		  checked_at = $9, next_check_at = $10, lease_until = 0, updated_at = $9, delegated = $11, proof_token = $12 WHERE id = $1`,
		dom.ID, dom.Status, dom.Reason, dom.proof, dom.provenAt, dom.misdirectedAt, string(seen), dom.tries, now, dom.NextCheckAt, j.delegated,
		dom.proofToken); err != nil {
		return err
	}
	tx.Notify(dom.Owner.Topic())
	switch {
	case dom.Status == Active && (before.Status != Active || before.delegated != j.delegated), // order the certificate again
		dom.Status == Pending && ahead && !served:
		err = route(ctx, tx, dom)
	case served && (dom.Status == Failed || dom.Status == Pending && !ahead):
		err = unroute(ctx, tx, dom)
	}
	if err != nil {
		return err
	}
	if j.delegated && slices.ContainsFunc(before.Problems, func(p Problem) bool { return p.Code == "challenge" }) &&
		d.c.Certificates != nil {
		if err := d.c.Certificates.RetryTx(ctx, tx, dom.Name); err != nil {
			return err
		}
	}
	for _, e := range events {
		if err := d.emit(ctx, tx, e, dom); err != nil {
			return err
		}
	}
	if dom.Status != before.Status {
		d.c.Log.InfoContext(ctx, "domain status changed", "domain", dom.Name, "site", dom.SiteID, "status", dom.Status,
			"reason", dom.Reason)
	}
	return nil
}

// next returns the time of the next check, or 0 for never.
func (d Domain) next(j diagnosis) db.Time {
	switch {
	case d.Status == Active && !j.delegated: // its owner is about to add a record
		return soon(backoff[min(int(d.tries), len(backoff)-1)])
	case d.Status == Active && (j.unknown || d.misdirectedAt != 0):
		return soon(whenMisdirected)
	case d.Status == Active, d.Status == Failed && d.Proven():
		return soon(everyDay)
	case d.Status == Failed:
		return 0
	default:
		return soon(backoff[min(int(d.tries), len(backoff)-1)])
	}
}
