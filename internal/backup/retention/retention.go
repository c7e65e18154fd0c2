// Package retention owns how long the sites of accounts are kept whose subscription ended unpaid.
//
// Nothing is deleted unless the operator's settings say after how many days (deleteAfterDays) and mail can be sent. Then the account is
// told three times, its sites are backed up, and once each of those backups was verified, the sites are deleted. Every step is one
// transaction that begins with the owner's lock, which payments take too, and goes on only while the account still owes: one that pays,
// or has a payment under way, is never deleted. A step that was cut off by a crash is done again.
package retention

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

const (
	day = 24 * time.Hour

	firstBefore  = party.LeastDeleteAfterDays * day // the first notice comes so long before, at least
	secondBefore = 7 * day
	thirdBefore  = day

	runEvery = 10 * time.Minute
	atOnce   = 100 // accounts that are looked at, and sites that are deleted, in one go
)

// Config holds what Retention needs.
type Config struct {
	DB      *db.DB
	Billing *billing.Billing
	Sites   *site.Sites
	Backups *backup.Backups
	Hooks   *webhook.Webhooks
	Mail    account.Mailer // without mail nothing is deleted
	Log     *slog.Logger   // Optional.
	Clock   db.Clock       // Optional: the machine's.
}

// Retention is the service. It is safe for concurrent use.
type Retention struct{ c Config }

// New returns the service. It starts nothing: Work registers its job.
func New(c Config) *Retention {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Clock == nil {
		c.Clock = db.Machine{}
	}
	return &Retention{c}
}

// Run is the job that does what is due. One of it exists. Run twice, it finds nothing more to do.
type Run struct{}

// Kind names the job.
func (Run) Kind() string { return "retention.run" }

// Work registers the job.
func (s *Retention) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Run, _ int64) error {
		if err := s.Tick(ctx); err != nil {
			return err
		}
		return job.Later(runEvery)
	})
}

// Schedule makes sure that the job exists.
func (s *Retention) Schedule(ctx context.Context) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Run{}, job.Options{Unique: "retention.run"})
		return err
	})
}

// Plan says when an account's sites are deleted.
type Plan struct {
	DeleteAt db.Time
	Notices  int64 // that were sent, of three
}

// row is what is stored of a plan.
type row struct {
	Plan
	owner        id.Owner
	subscription billing.SubscriptionID
	ended        db.Time // when the subscription did
	backupsSince db.Time
}

// owing are the accounts that owe, with what is planned for them: no notices where nothing is yet.
const owing = `
	SELECT u.owner_id, u.subscription_id, u.ended_at, COALESCE(r.notices, 0), COALESCE(r.delete_at, 0), COALESCE(r.backups_since, 0)
	FROM unpaid_owners u JOIN owner_standing o ON o.owner_id = u.owner_id
	LEFT JOIN retention r ON r.owner_id = u.owner_id AND r.subscription_id = u.subscription_id`

func scan(r db.Scanner) (x row, err error) {
	return x, r.Scan(&x.owner, &x.subscription, &x.ended, &x.Notices, &x.DeleteAt, &x.backupsSince)
}

// Of returns what is planned for an account. It is false where nothing is.
func Of(ctx context.Context, r db.Reader, owner id.Owner) (Plan, bool, error) {
	x, err := scan(r.QueryRow(ctx, owing+` WHERE u.owner_id = $1`, owner))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Plan{}, false, fmt.Errorf("read retention: %w", err)
	}
	return x.Plan, x.Notices > 0, nil
}

// next returns when something is to be done for an account.
func (x row) next() db.Time {
	switch x.Notices {
	case 0:
		return 0
	case 1:
		return x.DeleteAt.Add(-secondBefore)
	case 2:
		return x.DeleteAt.Add(-thirdBefore)
	}
	return x.DeleteAt
}

// Tick does what is due. An account that a step fails for is logged, and holds up no other.
func (s *Retention) Tick(ctx context.Context) error {
	settings, err := s.c.Billing.Settings(ctx, s.c.DB, "")
	if err != nil {
		return err
	}
	if err := s.forget(ctx, settings.DeleteAfterDays > 0); err != nil || settings.DeleteAfterDays == 0 {
		return err
	}
	if !s.c.Mail.Mails() {
		s.c.Log.WarnContext(ctx, "sites of unpaid accounts are kept: without mail nobody can be told that they will be deleted")
		return nil
	}
	for last := id.Owner(""); ; {
		rows, err := s.c.DB.Query(ctx, owing+` WHERE u.owner_id > $1 ORDER BY u.owner_id LIMIT $2`, last, atOnce)
		list, err := db.Collect(rows, err, scan)
		if err != nil {
			return fmt.Errorf("find unpaid accounts: %w", err)
		}
		for _, x := range list {
			last = x.owner
			if x.next() > s.c.Clock.Now() {
				continue
			}
			if err := s.step(ctx, x.owner); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				s.c.Log.ErrorContext(ctx, "sites of an unpaid account not deleted yet, will be retried", "owner", x.owner, "err", err)
			}
		}
		if len(list) < atOnce {
			return nil
		}
	}
}

// forget ends what was planned for accounts that don't owe any more, or for all.
func (s *Retention) forget(ctx context.Context, on bool) error {
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		q := `DELETE FROM retention`
		if on {
			q += ` WHERE NOT EXISTS (SELECT 1 FROM unpaid_owners u
				WHERE u.owner_id = retention.owner_id AND u.subscription_id = retention.subscription_id)`
		}
		_, err := tx.Exec(ctx, q)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget retention: %w", err)
	}
	return nil
}

// step does what is due for an account.
func (s *Retention) step(ctx context.Context, owner id.Owner) error {
	for {
		more := false
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
			more, err = s.stepTx(ctx, tx, owner)
			return err
		}); err != nil || !more {
			return err
		}
	}
}

// stepTx does one thing for an account that still owes. It reports whether there may be more to do right away.
func (s *Retention) stepTx(ctx context.Context, tx *db.Tx, owner id.Owner) (more bool, err error) {
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return false, err
	}
	settings, err := s.c.Billing.Settings(ctx, tx, "")
	if err != nil || settings.DeleteAfterDays == 0 {
		return false, err
	}
	x, err := scan(tx.QueryRow(ctx, owing+` WHERE u.owner_id = $1`, owner))
	if errors.Is(err, sql.ErrNoRows) { // paid meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read retention: %w", err)
	}
	now := s.c.Clock.Now()
	if x.next() > now {
		return false, nil
	}
	switch x.Notices {
	case 0:
		x.DeleteAt = max(x.ended.Add(time.Duration(settings.DeleteAfterDays)*day), now.Add(firstBefore))
	case 1:
		x.DeleteAt = max(x.DeleteAt, now.Add(secondBefore)) // this program may have been down
	case 2:
		x.DeleteAt = max(x.DeleteAt, now.Add(thirdBefore))
	default:
		return s.deleteTx(ctx, tx, x)
	}
	x.Notices++
	if err := s.writeTx(ctx, tx, x); err != nil {
		return false, err
	}
	return false, s.announceTx(ctx, tx, x)
}

func (s *Retention) writeTx(ctx context.Context, tx *db.Tx, x row) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO retention (owner_id, subscription_id, notices, delete_at, backups_since) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (owner_id) DO UPDATE SET subscription_id = excluded.subscription_id, notices = excluded.notices,
			delete_at = excluded.delete_at, backups_since = excluded.backups_since`,
		x.owner, x.subscription, x.Notices, x.DeleteAt, x.backupsSince)
	if err != nil {
		return fmt.Errorf("write retention: %w", err)
	}
	tx.Notify(x.owner.Topic())
	return nil
}

// announceTx tells an account, and its webhooks, when its sites are deleted.
func (s *Retention) announceTx(ctx context.Context, tx *db.Tx, x row) error {
	on := x.DeleteAt.Time().UTC().Format("2 January 2006")
	if err := s.c.Mail.TellOwnerTx(ctx, tx, x.owner, "Your sites will be deleted on "+on,
		"An invoice is unpaid and the subscription has ended. On "+on+" (UTC) the sites of the account are backed up and then deleted, "+
			"with their files, databases and domains. Pay the open invoices before then to keep them.",
		"/account/invoices"); err != nil {
		return err
	}
	sub, err := s.c.Billing.Ended(ctx, tx, x.subscription)
	if err != nil {
		return err
	}
	return s.c.Hooks.EmitTx(ctx, tx, x.owner, event.DeletionScheduled(sub, x.DeleteAt))
}

// deleteTx backs up the sites of an account; once all of these backups are verified, it deletes some of the sites.
func (s *Retention) deleteTx(ctx context.Context, tx *db.Tx, x row) (more bool, err error) {
	if x.backupsSince == 0 {
		x.backupsSince = tx.Now()
		if err := s.writeTx(ctx, tx, x); err != nil {
			return false, err
		}
	}
	rows, err := tx.Query(ctx, `SELECT id FROM open_sites WHERE owner_id = $1 ORDER BY id`, x.owner)
	sites, err := db.Collect(rows, err, func(r db.Scanner) (site id.Site, err error) { return site, r.Scan(&site) })
	if err != nil {
		return false, fmt.Errorf("find sites: %w", err)
	}
	all := true
	for _, site := range sites {
		safe, err := s.c.Backups.BeforeDeletionTx(ctx, tx, x.owner, site, x.backupsSince)
		if err != nil {
			return false, fmt.Errorf("back up %s: %w", site, err)
		}
		all = all && safe
	}
	if !all {
		return false, nil
	}
	for _, site := range sites[:min(len(sites), atOnce)] {
		if err := s.c.Sites.DeleteTx(ctx, tx, x.owner, site); err != nil {
			return false, fmt.Errorf("delete %s: %w", site, err)
		}
	}
	if len(sites) > atOnce {
		return true, nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM retention WHERE owner_id = $1`, x.owner); err != nil {
		return false, fmt.Errorf("end retention: %w", err)
	}
	s.c.Log.InfoContext(ctx, "sites of an unpaid account deleted", "owner", x.owner, "subscription", x.subscription)
	return false, s.c.Mail.TellOwnerTx(ctx, tx, x.owner, "Your sites were deleted",
		"An invoice stayed unpaid, so the sites of the account were backed up and deleted. The backups can be downloaded or restored for "+
			"30 days.", "/deleted")
}
