package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// Standing says how the backups of the whole installation go.
type Standing struct {
	Every     time.Duration // 0: they are taken by hand alone
	Since     db.Time       // when that was set
	Succeeded db.Time       // of the newest; 0: none yet
	Proven    db.Time       // when all that it holds was last known to be readable
	Failed    db.Time       // of the last failure
	Error     string        // why
	Damaged   []string      // ids of backups that need a missing or damaged object

	told db.Time
}

// maxUnproven is how long the content of scheduled backups may go unread.
const maxUnproven = 30 * 24 * time.Hour

// StandingOf reads how the backups of the whole installation go.
func StandingOf(ctx context.Context, r db.Reader) (s Standing, err error) {
	var every int64
	var damaged string
	err = r.QueryRow(ctx, `
		SELECT every, since, succeeded_at, proven_at, failed_at, error, damaged, told_at FROM installation_backup WHERE id = 1`).
		Scan(&every, &s.Since, &s.Succeeded, &s.Proven, &s.Failed, &s.Error, &damaged, &s.told)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read how backups go: %w", err)
	}
	s.Every = time.Duration(every) * time.Second
	if damaged != "" {
		s.Damaged = strings.Split(damaged, ",")
	}
	return s, nil
}

// Failing reports whether the last attempt failed.
func (s Standing) Failing() bool { return s.Failed > s.Succeeded }

// Age returns how old the newest backup is; where there is none, since when it is awaited.
func (s Standing) Age(now db.Time) time.Duration { return now.Sub(max(s.Succeeded, s.Since)) }

// Unproven returns how long ago the content of backups was last read.
func (s Standing) Unproven(now db.Time) time.Duration { return now.Sub(max(s.Proven, s.Since)) }

// Overdue reports whether a scheduled backup is late.
func (s Standing) Overdue(now db.Time) bool { return s.Every > 0 && s.Age(now) > 2*s.Every+time.Hour }

// Problems returns what operators should look into, a sentence each.
func (s Standing) Problems(now db.Time) (list []string) {
	if s.Failing() {
		list = append(list, fmt.Sprintf("The backup at %s failed: %s", s.Failed, s.Error))
	}
	if s.Overdue(now) {
		newest := "none yet"
		if s.Succeeded != 0 {
			newest = "the newest is of " + s.Succeeded.String()
		}
		list = append(list, fmt.Sprintf("A backup is due every %s, and %s", s.Every, newest))
	}
	if len(s.Damaged) > 0 {
		list = append(list, fmt.Sprintf("Stored objects of %s are missing or damaged: slipway backup repair", strings.Join(s.Damaged, ", ")))
	}
	if s.Every > 0 && s.Unproven(now) > maxUnproven {
		list = append(list, "The content of the backups was not read for more than 30 days: slipway backup verify")
	}
	return list
}

// noteTx changes columns of the one row. The values are $2, $3, ….
func noteTx(ctx context.Context, tx *db.Tx, set string, args ...any) error {
	if _, err := tx.Exec(ctx, `INSERT INTO installation_backup (id) VALUES (1) ON CONFLICT (id) DO NOTHING`); err != nil {
		return fmt.Errorf("note how backups go: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE installation_backup SET `+set+` WHERE id = $1`, append([]any{1}, args...)...); err != nil {
		return fmt.Errorf("note how backups go: %w", err)
	}
	return nil
}

// noteEndTx writes how a backup of the installation ended: with damaged ones among all, or with why it failed.
func noteEndTx(ctx context.Context, tx *db.Tx, c Copy, damaged []string, why string) error {
	if why != "" {
		return noteTx(ctx, tx, `failed_at = $2, error = $3`, db.Now(), why)
	}
	return noteTx(ctx, tx, `succeeded_at = $2, proven_at = $3, damaged = $4, error = ''`,
		db.Now(), max(db.At(c.Proven()), 0), strings.Join(damaged, ","))
}

// tellAgain is how soon operators are told again of a problem that lasts.
const tellAgain = 24 * time.Hour

// tellTx has the operators told of problems with the installation's backups, and of their end, by mail and in the audit log.
func (s *Backups) tellTx(ctx context.Context, tx *db.Tx, now db.Time) error {
	x, err := StandingOf(ctx, tx)
	if err != nil {
		return err
	}
	problems := x.Problems(now)
	told, subject, action := now, "Backups of this installation need attention", "installation.backup_failed"
	text := strings.Join(problems, ". ")
	switch {
	case len(problems) == 0 && x.told == 0, len(problems) > 0 && now.Sub(x.told) < tellAgain:
		return nil
	case len(problems) == 0:
		told, subject, action = 0, "Backups of this installation work again", "installation.backup_recovered"
		text = "The newest backup is of " + x.Succeeded.String()
	}
	if err := noteTx(ctx, tx, `told_at = $2`, told); err != nil {
		return err
	}
	if err := audit.WriteTx(ctx, tx, audit.Actor{}, audit.Event{Action: action, Detail: text}); err != nil || s.c.Operators == nil {
		return err
	}
	return s.c.Operators.TellOperatorsTx(ctx, tx, subject, text+".", "/operator")
}

// tendInstallation notes the schedule of the installation's backups, and has operators told when one is late.
func (s *Backups) tendInstallation(ctx context.Context, now db.Time) error {
	x, err := StandingOf(ctx, s.c.DB)
	if err != nil || x.Every == s.c.Every && x.told == 0 && len(x.Problems(now)) == 0 {
		return err
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if x.Every != s.c.Every {
			if err := noteTx(ctx, tx, `every = $2, since = $3`, int64(s.c.Every/time.Second), now); err != nil {
				return err
			}
		}
		return s.tellTx(ctx, tx, now)
	})
}

// Repair is what slipway backup repair did.
type Repair struct {
	Copy    Copy
	Damaged []string // backups of the installation that can't be restored whole
	Sites   int      // backups of sites that need a bad object, or whose own list is bad; they are verified again
}

// repairSites reads all objects that backups of sites need. Those that need a bad one are verified, so that their pages say so, and
// their sites are backed up, which stores again what they still have.
func (s *Backups) repairSites(ctx context.Context) (n int, err error) {
	if s.c.Repository == nil {
		return 0, nil
	}
	rows, err := s.c.DB.Query(ctx, `SELECT `+columns+` FROM backups WHERE status = 'completed' ORDER BY id`)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return 0, err
	}
	lists, all := map[ID][]string{}, []string{}
	for _, b := range list {
		switch m, err := s.c.Repository.Load(ctx, b.manifest, nil); {
		case err == nil:
			lists[b.ID] = m.Packs
			all = append(all, m.Packs...)
		case isBad(err):
			lists[b.ID] = []string{""}
		default:
			return 0, err
		}
	}
	bad, _, err := s.c.Repository.Examine(ctx, all, "", allOfIt)
	if err != nil {
		return 0, err
	}
	bad[""] = true
	var affected []Backup
	for _, b := range list {
		if needs(lists[b.ID], bad) {
			affected = append(affected, b)
		}
	}
	if len(affected) == 0 {
		return 0, nil
	}
	s.c.Log.WarnContext(ctx, "backups of sites need objects that are missing or damaged", "backups", len(affected))
	return len(affected), s.c.DB.Write(ctx, func(tx *db.Tx) error {
		again := map[string]bool{}
		for _, b := range affected {
			if err := s.verifyAgainTx(ctx, tx, b); err != nil {
				return err
			}
			if again[string(b.Site)] {
				continue
			}
			again[string(b.Site)] = true
			if _, err := s.CreateTx(ctx, tx, b.Owner, b.Site, NewBackup{Type: Scheduled}); err != nil && fault.As(err) == nil {
				return err
			}
		}
		return nil
	})
}
