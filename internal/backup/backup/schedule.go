package backup

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Schedule says when a site is backed up, and how many of its backups stay.
type Schedule struct {
	Every string // off, hourly, daily or weekly
	At    string // time of day, UTC, such as 03:00; of weekly ones that of Sunday
	Keep  Keep
}

// Keep says how many scheduled backups stay: the newest of each of so many days, weeks and
// months (grandfather, father, son). The newest of all stays anyway, and hourly ones of the
// last 24 hours do.
type Keep struct{ Daily, Weekly, Monthly int }

// DefaultSchedule is the schedule of a site without settings of its own.
var DefaultSchedule = Schedule{Every: "off", At: "03:00", Keep: Keep{Daily: 7, Weekly: 4, Monthly: 3}}

// unverifiedAfter is how long a site with a schedule may be without a verified backup
// before its owner is told, in its intervals, where the operator has set nothing.
const unverifiedAfter = 3

// alarmAfter is that time for a schedule.
func (s *Backups) alarmAfter(every string) time.Duration {
	return cmp.Or(s.c.Alarm, unverifiedAfter*(Schedule{Every: every}).interval())
}

var clock = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

func (s Schedule) check() error {
	bad := func(details string, received any) error {
		return fault.New(fault.Invalid, "invalid_schedule", "Invalid backup schedule", details).Got(received)
	}
	if !slices.Contains([]string{"off", "hourly", "daily", "weekly"}, s.Every) {
		return bad("every must be off, hourly, daily or weekly", s.Every)
	}
	if !clock.MatchString(s.At) {
		return bad("at must be a time of day in UTC, such as 03:00", s.At)
	}
	for _, n := range []int{s.Keep.Daily, s.Keep.Weekly, s.Keep.Monthly} {
		if n < 0 || n > 366 {
			return bad("keep.daily, keep.weekly and keep.monthly must be 0 to 366", n)
		}
	}
	return nil
}

func (s Schedule) interval() time.Duration {
	switch s.Every {
	case "hourly":
		return time.Hour
	case "weekly":
		return 7 * 24 * time.Hour
	}
	return 24 * time.Hour
}

// next returns when the first backup after a moment is due. Sites are spread over the
// quarter of an hour that follows, by their ids.
func (s Schedule) next(id site.ID, after time.Time) time.Time {
	after = after.UTC()
	h, _ := strconv.Atoi(s.At[:2])
	m, _ := strconv.Atoi(s.At[3:])
	spread := time.Duration(0)
	for _, c := range id {
		spread = (spread*31 + time.Duration(c)) % 900
	}
	t := time.Date(after.Year(), after.Month(), after.Day(), h, m, 0, 0, time.UTC)
	switch s.Every {
	case "hourly":
		t = time.Date(after.Year(), after.Month(), after.Day(), after.Hour(), m, 0, 0, time.UTC)
	case "weekly":
		t = t.AddDate(0, 0, -int(t.Weekday()))
	}
	t = t.Add(spread * time.Second)
	for !t.After(after) {
		t = t.Add(s.interval())
	}
	return t
}

// ScheduleOf returns a site's schedule.
func (s *Backups) ScheduleOf(ctx context.Context, r db.Reader, id site.ID) (Schedule, error) {
	v := DefaultSchedule
	err := r.QueryRow(ctx, `SELECT every, at, daily, weekly, monthly FROM backup_schedules WHERE site_id = $1`, id).Scan(
		&v.Every,
		&v.At,
		&v.Keep.Daily,
		&v.Keep.Weekly,
		&v.Keep.Monthly,
	)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return v, fmt.Errorf("read backup schedule: %w", err)
	}
	return v, nil
}

// Schedules holds the schedules of those sites that have settings of their own.
type Schedules map[site.ID]Schedule

// Of returns the schedule of one of the sites.
func (s Schedules) Of(id site.ID) Schedule {
	if own, ok := s[id]; ok {
		return own
	}
	return DefaultSchedule
}

// Schedules returns the schedules of the owner's sites.
func (s *Backups) Schedules(ctx context.Context, r db.Reader, owner account.OwnerID, sites []site.ID) (Schedules, error) {
	const columns = `SELECT site_id, every, at, daily, weekly, monthly FROM backup_schedules WHERE `
	// An owner mostly has fewer of them than a page has sites: reading them all takes less than a list of ids.
	if few := len(sites); few > 1 {
		rows, err := r.Query(ctx, columns+`owner_id = $1 LIMIT $2 + 0`, owner, few+1)
		if out, err := readSchedules(rows, err); err != nil || len(out) <= few {
			return out, err
		}
	}
	var args db.Args
	rows, err := r.Query(ctx, columns+`site_id IN (`+db.AddList(&args, sites)+`)`, args...)
	return readSchedules(rows, err)
}

func readSchedules(rows *sql.Rows, err error) (Schedules, error) {
	out := Schedules{}
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var id site.ID
		var v Schedule
		err := row.Scan(&id, &v.Every, &v.At, &v.Keep.Daily, &v.Keep.Weekly, &v.Keep.Monthly)
		out[id] = v
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read backup schedules: %w", err)
	}
	return out, nil
}

// SchedulePatch changes what is not nil.
type SchedulePatch struct {
	Every, At              *string
	Daily, Weekly, Monthly *int
}

// ScheduleTx changes the schedule of the owner's site.
func (s *Backups) ScheduleTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, p SchedulePatch) (Schedule, error) {
	if _, err := s.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return Schedule{}, err
	}
	v, err := s.ScheduleOf(ctx, tx, id)
	if err != nil {
		return v, err
	}
	before := v
	v.Every, v.At = *cmp.Or(p.Every, &v.Every), *cmp.Or(p.At, &v.At)
	v.Keep = Keep{*cmp.Or(p.Daily, &v.Keep.Daily), *cmp.Or(p.Weekly, &v.Keep.Weekly), *cmp.Or(p.Monthly, &v.Keep.Monthly)}
	if err := v.check(); err != nil {
		return v, err
	}
	if v == before {
		return v, nil
	}
	next := db.Time(0)
	if v.Every != "off" {
		if err := s.possible(); err != nil {
			return v, err
		}
		next = db.At(v.next(id, time.Now()))
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO backup_schedules (site_id, owner_id, every, at, daily, weekly, monthly, next_at, since, warned)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, FALSE)
		ON CONFLICT (site_id) DO UPDATE SET every = excluded.every, at = excluded.at, daily = excluded.daily, weekly = excluded.weekly,
			monthly = excluded.monthly, next_at = excluded.next_at, warned = FALSE,
			since = CASE WHEN backup_schedules.every = excluded.every THEN backup_schedules.since ELSE excluded.since END`,
		id, owner, v.Every, v.At, v.Keep.Daily, v.Keep.Weekly, v.Keep.Monthly, next, db.Now())
	if err != nil {
		return v, fmt.Errorf("change backup schedule: %w", err)
	}
	tx.Notify(owner.Topic())
	return v, nil
}

// Tend is the job that begins scheduled backups, ends those whose time is over and sweeps
// the repository. One exists; it runs again and again.
type Tend struct{}

// Kind names the job.
func (Tend) Kind() string { return "backup.tend" }

const (
	tendEvery  = time.Minute
	sweepEvery = 6 * time.Hour
)

// Schedule makes sure that the recurring job exists.
func (s *Backups) Schedule(ctx context.Context) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Tend{}, job.Options{Unique: Tend{}.Kind(), At: db.Now().Add(tendEvery)})
		return err
	})
}

func (s *Backups) tend(ctx context.Context, _ Tend, _ int64) error {
	now := time.Now()
	if err := s.installationDue(ctx, now); err != nil {
		return err
	}
	if err := s.tendInstallation(ctx, db.At(now)); err != nil {
		return err
	}
	if s.c.Repository == nil {
		return job.Later(tendEvery)
	}
	if err := s.begins(ctx, now); err != nil {
		return err
	}
	if err := s.expire(ctx, now); err != nil {
		return err
	}
	if err := s.warn(ctx, now); err != nil {
		return err
	}
	if err := s.sweepDue(ctx, now); err != nil {
		s.c.Log.WarnContext(ctx, "backups not swept", "err", err)
	}
	return job.Later(tendEvery)
}

// dueBatch is how many schedules one transaction begins.
const dueBatch = 50

// begins begins the backups that are due. One that can't be begun is tried again at its
// next time.
func (s *Backups) begins(ctx context.Context, now time.Time) error {
	for {
		n := 0
		err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			type due struct {
				id    site.ID
				owner account.OwnerID
				Schedule
			}
			rows, err := tx.Query(
				ctx,
				`SELECT site_id, owner_id, every, at FROM backup_schedules WHERE every <> 'off' AND next_at <= $1 ORDER BY next_at LIMIT $2`,
				db.At(now),
				dueBatch,
			)
			list, err := db.Collect(rows, err, func(s db.Scanner) (d due, err error) { return d, s.Scan(&d.id, &d.owner, &d.Every, &d.At) })
			if err != nil {
				return fmt.Errorf("find due backups: %w", err)
			}
			n = len(list)
			for _, d := range list {
				if _, err := tx.Exec(
					ctx,
					`UPDATE backup_schedules SET next_at = $2 WHERE site_id = $1`,
					d.id,
					db.At(d.next(d.id, now)),
				); err != nil {
					return fmt.Errorf("note next backup: %w", err)
				}
				if _, err := s.CreateTx(ctx, tx, d.owner, d.id, NewBackup{Type: Scheduled}); err != nil {
					if fault.As(err) == nil {
						return err
					}
					s.c.Log.InfoContext(ctx, "scheduled backup not started", "site", d.id, "err", err)
				}
			}
			return nil
		})
		if err != nil || n < dueBatch {
			return err
		}
	}
}

// expire deletes backups whose time is over: those with an end, and scheduled ones that
// the site's schedule doesn't keep.
func (s *Backups) expire(ctx context.Context, now time.Time) error {
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`DELETE FROM backups WHERE expires_at > 0 AND expires_at <= $1 AND status IN ('completed', 'failed')`,
			db.At(now),
		)
		return err
	})
	if err != nil {
		return fmt.Errorf("expire backups: %w", err)
	}
	rows, err := s.c.DB.Query(
		ctx,
		`SELECT site_id FROM backups WHERE type = 'scheduled' AND status IN ('completed', 'failed') GROUP BY site_id HAVING count(*) > 1`,
	)
	sites, err := db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("expire backups: %w", err)
	}
	for _, id := range sites {
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.pruneTx(ctx, tx, id, now) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Backups) pruneTx(ctx context.Context, tx *db.Tx, id site.ID, now time.Time) error {
	v, err := s.ScheduleOf(ctx, tx, id)
	if err != nil {
		return err
	}
	rows, err := tx.Query(
		ctx,
		`SELECT `+columns+` FROM backups WHERE site_id = $1 AND type = 'scheduled' AND status IN ('completed', 'failed') ORDER BY id DESC`,
		id,
	)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return fmt.Errorf("prune backups: %w", err)
	}
	keep := v.kept(list, now)
	for _, b := range list {
		if !keep[b.ID] {
			if _, err := tx.Exec(ctx, `DELETE FROM backups WHERE id = $1`, b.ID); err != nil {
				return fmt.Errorf("prune backups: %w", err)
			}
		}
	}
	return nil
}

// kept says which of a site's scheduled backups, the newest first, stay. A failed one stays
// a week, so that people see it; it takes nobody's place.
func (s Schedule) kept(list []Backup, now time.Time) map[ID]bool {
	keep := map[ID]bool{}
	seen := map[string]bool{}
	first := true
	for _, b := range list {
		at := b.CreatedAt.Time()
		if b.Status == Failed {
			keep[b.ID] = now.Sub(at) < 7*24*time.Hour
			continue
		}
		year, week := at.ISOWeek()
		for _, g := range []struct {
			slot  string
			since time.Time
			most  int
		}{
			{at.Format("d 2006-01-02"), now.AddDate(0, 0, -s.Keep.Daily), s.Keep.Daily},
			{fmt.Sprintf("w %d-%02d", year, week), now.AddDate(0, 0, -7*s.Keep.Weekly), s.Keep.Weekly},
			{at.Format("m 2006-01"), now.AddDate(0, -s.Keep.Monthly, 0), s.Keep.Monthly},
		} {
			if g.most > 0 && at.After(g.since) && !seen[g.slot] {
				seen[g.slot], keep[b.ID] = true, true
			}
		}
		if first || s.Every == "hourly" && now.Sub(at) < 24*time.Hour {
			keep[b.ID] = true
		}
		first = false
	}
	return keep
}

// warn tells owners, once, whose site has a schedule and no backup that was verified of late.
func (s *Backups) warn(ctx context.Context, now time.Time) error {
	rows, err := s.c.DB.Query(ctx, `
		SELECT p.site_id, p.owner_id, p.every,
			COALESCE((SELECT MAX(b.verified_at) FROM backups b WHERE b.site_id = p.site_id AND b.status = 'completed'), 0),
			CASE WHEN p.since > 0 THEN p.since ELSE COALESCE((SELECT MIN(b.created_at) FROM backups b WHERE b.site_id = p.site_id), 0) END
		FROM backup_schedules p WHERE p.every <> 'off' AND NOT p.warned`)
	type late struct {
		id              site.ID
		owner           account.OwnerID
		every           string
		verified, since db.Time // since when the schedule is so
	}
	list, err := db.Collect(rows, err, func(s db.Scanner) (l late, err error) {
		return l, s.Scan(&l.id, &l.owner, &l.every, &l.verified, &l.since)
	})
	if err != nil {
		return fmt.Errorf("find unverified backups: %w", err)
	}
	for _, l := range list {
		since := max(l.verified, l.since)
		if since == 0 || now.Sub(since.Time()) < s.alarmAfter(l.every) {
			continue
		}
		err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			x, err := s.c.Sites.GetTx(ctx, tx, l.owner, l.id)
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.tellLate(ctx, tx, l.owner, x.Name, l.verified); err != nil {
				return err
			}
			s.c.Log.WarnContext(ctx, "no verified backup within the limit", "site", l.id, "since", l.verified)
			_, err = tx.Exec(ctx, `UPDATE backup_schedules SET warned = TRUE WHERE site_id = $1`, l.id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tellLate mails the owner of a site that has had no verified backup since then.
func (s *Backups) tellLate(ctx context.Context, tx *db.Tx, owner account.OwnerID, name string, since db.Time) error {
	if s.c.Mail == nil {
		return nil
	}
	last := "No backup of it has been verified yet."
	if since != 0 {
		last = fmt.Sprintf("Its last verified backup was taken at %s.", since)
	}
	return s.c.Mail.TellOwnerTx(
		ctx,
		tx,
		owner,
		"A site has no verified backup",
		fmt.Sprintf(
			"Site %q has a backup schedule, but has had no verified backup for some time. %s\n\nSee its backups and why they failed:",
			name,
			last,
		),
		"/sites",
	)
}
