package sso

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/audit"
)

const (
	lookupTime = 10 * time.Second // per domain
	checkers   = 4                // concurrent checks
	checkPoll  = 30 * time.Second
	checkLease = 10 * time.Minute
)

// Look returns the current values of a domain's TXT record. An error means that the query failed.
func (s *SSO) Look(ctx context.Context, d Domain) ([]string, error) {
	if s.c.Records == nil {
		return nil, errors.New("TXT records can't be looked up")
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return s.c.Records.TXT(ctx, d.Record())
}

// VerifyTx applies the result of Look and returns the updated domain. A domain proven by another team stays theirs
// while their record exists.
func (s *SSO) VerifyTx(ctx context.Context, tx *db.Tx, id DomainID, found []string, lookErr error) (Domain, error) {
	d, err := scanDomain(tx.QueryRow(ctx, `UPDATE sso_domains SET checked_at = checked_at WHERE id = $1 RETURNING `+domainColumns, id))
	if err != nil {
		return d, err
	}
	was, now := d, db.Now()
	d.CheckedAt, d.Problem = now, ""
	switch {
	case lookErr != nil: // unknown, so nothing changes
		d.Problem = "The name servers of " + d.Name + " didn't answer. Try again in a few minutes"
	case slices.Contains(found, d.Token):
		if d.VerifiedAt == 0 {
			if err := s.displaceTx(ctx, tx, &d, found); err != nil {
				return d, err
			}
		}
		d.Missing = 0
	case d.VerifiedAt == 0:
		d.Problem = "Add a TXT record " + d.Record() + " with the value " + d.Token
	case d.Missing == 0:
		d.Missing = now
		d.Problem = "The TXT record " + d.Record() + " was not found. Add it again with the value " + d.Token
	case now.Sub(d.Missing) > grace:
		d.VerifiedAt, d.Missing = 0, 0
		d.Problem = "The TXT record was missing for 3 days, so the domain is no longer verified. Add it again with the value " + d.Token
	default:
		d.Problem = was.Problem
	}
	switch {
	case d.Speaks():
		d.NextCheck = now.Add(recheck)
	case d.VerifiedAt > 0 || now.Sub(d.CreatedAt) < giveUp:
		d.NextCheck = now.Add(retry)
	default:
		d.NextCheck = 0
	}
	if _, err := tx.Exec(ctx, `
		UPDATE sso_domains SET verified_at = $2, missing_since = $3, checked_at = $4, next_check = $5, problem = $6 WHERE id = $1`,
		id, d.VerifiedAt, d.Missing, d.CheckedAt, d.NextCheck, d.Problem); db.Duplicate(err) {
		return d, fault.New(fault.Conflict, "domain_taken", "Another team verified "+d.Name+" just now",
			"check the domain again")
	} else if err != nil {
		return d, fmt.Errorf("store check of domain: %w", err)
	}
	return d, s.announceTx(ctx, tx, was, d)
}

// displaceTx assigns the domain to the team whose record was found, unless the current team's record also exists.
func (s *SSO) displaceTx(ctx context.Context, tx *db.Tx, d *Domain, found []string) error {
	holder, err := scanDomain(tx.QueryRow(ctx, `
		UPDATE sso_domains SET checked_at = checked_at WHERE name = $1 AND verified_at > 0 RETURNING `+domainColumns, d.Name))
	switch {
	case isMissing(err):
	case err != nil:
		return err
	case slices.Contains(found, holder.Token):
		d.Problem = "Another team has verified " + d.Name + ". Remove its TXT record from " + d.Record() + ", then check again"
		return nil
	default:
		was := holder
		holder.VerifiedAt, holder.Missing, holder.Problem = 0, 0, "Another team has verified this domain"
		if _, err := tx.Exec(ctx, `UPDATE sso_domains SET verified_at = 0, missing_since = 0, next_check = 0, problem = $2 WHERE id = $1`,
			holder.ID, holder.Problem); err != nil {
			return fmt.Errorf("displace domain: %w", err)
		}
		if err := s.announceTx(ctx, tx, was, holder); err != nil {
			return err
		}
	}
	d.VerifiedAt = db.Now()
	return nil
}

// announceTx writes the outcome of a check to the team's audit log and emails its people if necessary.
func (s *SSO) announceTx(ctx context.Context, tx *db.Tx, was, now Domain) error {
	e := audit.Event{Subject: string(now.ID), Detail: now.Name}
	subject, text := "", ""
	switch {
	case was.VerifiedAt == 0 && now.VerifiedAt > 0:
		e.Action = "sso_domain.verified"
	case was.VerifiedAt > 0 && now.VerifiedAt == 0:
		e.Action = "sso_domain.lost"
		e.Detail += ": " + now.Problem
		subject = now.Name + " is no longer verified for single sign-on"
		text = now.Problem + ".\n\nMembers who have linked their account can still sign in. New people are not added to the team."
	case was.Missing == 0 && now.Missing > 0:
		e.Action = "sso_domain.missing"
		subject = "The TXT record of " + now.Name + " is missing"
		text = now.Problem + ".\n\nUntil then new people can't join the team by single sign-on. After 3 days the domain is no longer verified."
	default:
		return nil
	}
	if err := s.c.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: now.Owner, Via: "the domain check"}, e); err != nil || subject == "" {
		return err
	}
	return s.c.Accounts.TellOwnerTx(ctx, tx, now.Owner, subject, text, "/")
}

// Run checks domains periodically until ctx ends. Several nodes may run it on one database.
func (s *SSO) Run(ctx context.Context) error {
	// share: total 4 domains checked at once; owner 20 domains of a team, each at most every 15 minutes; edge checked a little later
	job.Loop{
		Places: checkers, Poll: checkPoll,
		Lease: func(ctx context.Context) (func(), error) {
			d, err := s.due(ctx)
			if isMissing(err) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			return func() {
				if err := s.check(ctx, d); err != nil && ctx.Err() == nil {
					s.c.Log.ErrorContext(ctx, "sign-in domain not checked", "domain", d.Name, "err", err)
				}
			}, nil
		},
		Failed: func(ctx context.Context, err error) {
			s.c.Log.ErrorContext(ctx, "due sign-in domains not read", "err", err)
		},
	}.Run(ctx)
	return nil
}

// due leases the domain that is due the longest, or returns a NotFound fault.
func (s *SSO) due(ctx context.Context) (d Domain, err error) {
	now := db.Now()
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		d, err = scanDomain(tx.QueryRow(ctx, `
			UPDATE sso_domains SET next_check = $2 WHERE id = (
				SELECT id FROM sso_domains WHERE next_check > 0 AND next_check <= $1 ORDER BY next_check, id LIMIT 1) AND next_check <= $1
			RETURNING `+domainColumns, now, now.Add(checkLease)))
		return err
	})
	return d, err
}

func (s *SSO) check(ctx context.Context, d Domain) error {
	found, lookErr := s.Look(ctx, d)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := s.VerifyTx(ctx, tx, d.ID, found, lookErr)
		return err
	})
	if isMissing(err) { // deleted meanwhile
		return nil
	}
	return err
}
