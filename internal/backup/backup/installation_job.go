package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

// BackUpInstallation is the job that backs the whole installation up. It may run twice: what
// the first attempt stored is found again.
type BackUpInstallation struct {
	Operation operation.ID
	To        string // place; empty: that of the settings
	Scheduled bool
	Repair    bool // read all objects that backups need, and store again what is missing or damaged
}

// Kind names the job.
func (BackUpInstallation) Kind() string { return "backup.installation" }

// OfInstallation is the owner of operations that are the operator's.
const OfInstallation = account.OwnerID("installation")

// installationBackup is the kind of the operation, of which one is open at a time.
const installationBackup = "installation.backup"

// EndCopied ends the backup of the installation that is under way in a database that comes from one: its job would back what was
// restored up to the old one's place again, before all of it is there.
func EndCopied(ctx context.Context, d *db.DB) error {
	ops := operation.New(operation.Config{DB: d})
	o, err := ops.Open(ctx, OfInstallation, installationBackup)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.Write(ctx, func(tx *db.Tx) error {
		return ops.EndTx(ctx, tx, o.ID, "", "The installation was restored from this backup", nil)
	})
}

// BackUpInstallationTx has the installation backed up by whichever node serves it.
func BackUpInstallationTx(
	ctx context.Context,
	tx *db.Tx,
	ops *operation.Operations,
	to string,
	scheduled bool,
) (operation.Operation, error) {
	return beginInstallationTx(ctx, tx, ops, BackUpInstallation{To: to, Scheduled: scheduled})
}

// RepairInstallationTx has all objects read that backups need, and what is missing or damaged stored again, by whichever node serves.
func RepairInstallationTx(ctx context.Context, tx *db.Tx, ops *operation.Operations, to string) (operation.Operation, error) {
	return beginInstallationTx(ctx, tx, ops, BackUpInstallation{To: to, Repair: true})
}

func beginInstallationTx(ctx context.Context, tx *db.Tx, ops *operation.Operations, b BackUpInstallation) (operation.Operation, error) {
	o, err := ops.OpenTx(ctx, tx, OfInstallation, operation.NewOperation{Kind: installationBackup, Unique: installationBackup})
	if err != nil {
		return o, err
	}
	b.Operation = o.ID
	_, err = job.Enqueue(ctx, tx, b, job.Options{Queue: QueueName, Group: "installation"})
	return o, err
}

func (s *Backups) backUpInstallation(ctx context.Context, b BackUpInstallation, _ int64) error {
	switch o, err := s.c.Operations.Get(ctx, OfInstallation, b.Operation); {
	case err != nil && !fault.Is(err, fault.NotFound):
		return err
	case err != nil || o.CompletedAt != 0: // as EndCopied leaves it
		return nil
	}
	done, err := s.takeInstallation(ctx, b)
	c, why := done.Copy, ""
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the service is stopping: it begins again
	case fault.As(err) != nil:
		why = words(err)
	case err != nil:
		why = err.Error() // its reader is the operator
	}
	if why != "" {
		s.c.Log.ErrorContext(ctx, "installation not backed up", "err", err)
	} else {
		s.c.Log.InfoContext(
			ctx, "installation backed up", "backup", c.ID, "bytes", c.Size, "stored", c.Stored, "seconds", c.Took,
			"problems",
			len(c.Problems),
		)
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := s.endInstallationTx(ctx, tx, b, done, why); err != nil {
			return err
		}
		if b.Repair {
			return s.c.Operations.EndTx(ctx, tx, b.Operation, "Completed", why, done)
		}
		return s.c.Operations.EndTx(ctx, tx, b.Operation, "Completed", why, c)
	})
}

// endInstallationTx notes how a backup of the installation ended, and has operators told. One to another place than that of the settings
// says nothing of the schedule.
func (s *Backups) endInstallationTx(ctx context.Context, tx *db.Tx, b BackUpInstallation, done Repair, why string) error {
	if b.To != "" {
		return nil
	}
	if err := noteEndTx(ctx, tx, done.Copy, done.Damaged, why); err != nil {
		return err
	}
	return s.tellTx(ctx, tx, db.Now())
}

// installationGivenUp ends a backup of the installation whose job failed too often.
func (s *Backups) installationGivenUp(ctx context.Context, b BackUpInstallation, why error) error {
	o, err := s.c.Operations.Get(ctx, OfInstallation, b.Operation)
	if fault.Is(err, fault.NotFound) || err == nil && o.CompletedAt != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := s.endInstallationTx(ctx, tx, b, Repair{}, why.Error()); err != nil {
			return err
		}
		return s.c.Operations.EndTx(ctx, tx, b.Operation, "", why.Error(), nil)
	})
}

func (s *Backups) takeInstallation(ctx context.Context, b BackUpInstallation) (done Repair, err error) {
	if s.c.Installation == nil {
		return done, errors.New("this node can't back the installation up")
	}
	if n, err := s.c.Places.Others(ctx); err != nil {
		return done, err
	} else if n > 0 {
		return done, fault.New(fault.Conflict, "several_nodes",
			fmt.Sprintf("%d sites have their files on other nodes, which this backup would not hold", n),
			"give these sites a backup schedule instead")
	}
	repo, source, err := s.c.Installation.Open(b.To)
	if err != nil {
		return done, err
	}
	source.All = b.Repair
	source.Progress = func(text string, bytes int64) {
		err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			return s.c.Operations.AdvanceTx(ctx, tx, b.Operation, -1, "", fmt.Sprintf("%s: %d MiB", text, bytes>>20))
		})
		if err != nil && ctx.Err() == nil {
			s.c.Log.WarnContext(ctx, "progress of backup not noted", "err", err)
		}
	}
	if done.Copy, err = TakeCopy(ctx, repo, source, b.Scheduled); err != nil {
		return done, err
	}
	if b.Repair {
		if done.Sites, err = s.repairSites(ctx); err != nil {
			return done, err
		}
	}
	if _, err := PruneCopies(ctx, repo, DefaultSchedule.Keep); err != nil {
		return done, err
	}
	if err := s.SweepPlace(ctx, repo); err != nil { // the next one does it
		s.c.Log.WarnContext(ctx, "place of backups not swept", "err", err)
	}
	list, err := Copies(ctx, repo)
	for _, c := range list {
		if c.Damaged {
			done.Damaged = append(done.Damaged, string(c.ID))
		}
		if c.ID == done.Copy.ID { // as it is listed
			done.Copy.VerifiedAt = c.VerifiedAt
		}
	}
	return done, err
}

// installationDue begins a scheduled backup of the installation, on whichever node comes
// first.
func (s *Backups) installationDue(ctx context.Context, now time.Time) error {
	if s.c.Every == 0 || s.c.Installation == nil {
		return nil
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			INSERT INTO backup_sweeps (id, at) VALUES (2, $1)
			ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE backup_sweeps.at <= $2`, db.At(now), db.At(now.Add(-s.c.Every)))
		if err != nil || n == 0 {
			return err
		}
		_, err = BackUpInstallationTx(ctx, tx, s.c.Operations, "", true)
		if fault.Is(err, fault.Conflict) { // one is under way
			return nil
		}
		return err
	})
}
