package backup

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook/event"
)

// QueueName is the queue of this package's jobs: they read and write gigabytes, so few run
// at once.
const QueueName = "backup"

// VerifyQueue is the queue of verifications, which hold up no backup and no restore.
const VerifyQueue = "verify"

// Take is the job that takes a backup.
type Take struct{ Backup ID }

// Kind names the job.
func (Take) Kind() string { return "backup.take" }

// Work registers this service's jobs.
func (s *Backups) Work(j *job.Jobs) {
	policy := func(givenUp func(ctx context.Context, args []byte, why error) error) job.Policy {
		return job.Policy{
			Timeout:  6 * time.Hour,
			Attempts: 4,
			Backoff:  func(n int) time.Duration { return time.Duration(n) * 2 * time.Second },
			GivenUp:  givenUp,
		}
	}
	job.Handle(j, policy(func(ctx context.Context, args []byte, why error) error {
		var t Take
		if err := json.Unmarshal(args, &t); err != nil {
			return err
		}
		return s.fail(ctx, t.Backup, words(why))
	}), s.take)
	job.Handle(j, policy(func(ctx context.Context, args []byte, why error) error {
		var v Verify
		if err := json.Unmarshal(args, &v); err != nil {
			return err
		}
		return s.verified(ctx, v, "", words(why))
	}), s.verify)
	restoring := policy(func(ctx context.Context, args []byte, why error) error {
		var r Restore
		if err := json.Unmarshal(args, &r); err != nil {
			return err
		}
		return s.endRestore(ctx, r, words(why), nil)
	})
	job.Handle(j, restoring, s.restore)
	job.Handle(j, restoring, func(ctx context.Context, r restoreTables, n int64) error { return s.restore(ctx, r.Restore, n) })
	job.Handle(j, job.Policy{
		Timeout:  24 * time.Hour,
		Attempts: 20,
		Backoff:  func(int) time.Duration { return 10 * time.Second },
		GivenUp: func(ctx context.Context, args []byte, why error) error {
			var b BackUpInstallation
			if err := json.Unmarshal(args, &b); err != nil {
				return err
			}
			return s.installationGivenUp(ctx, b, why)
		},
	}, s.backUpInstallation)
	job.Handle(j, job.Policy{Timeout: time.Hour, Attempts: 1 << 30}, s.tend)
}

// words returns what an owner reads of an error: its own where it is meant for them.
func words(err error) string {
	if f := fault.As(err); f != nil {
		if f.Details != "" {
			return f.Message + ": " + f.Details
		}
		return f.Message
	}
	if errors.Is(err, repository.ErrDamaged) || errors.Is(err, blob.ErrCorrupt) {
		return "A stored file is damaged"
	}
	return "Internal error; try again"
}

// take is safe to repeat: what an attempt stored is found again by the next one.
func (s *Backups) take(ctx context.Context, t Take, attempt int64) error {
	b, err := s.begin(ctx, t.Backup)
	if err != nil || b.Status != Running {
		return err
	}
	if slices.Contains(b.Includes, Files) || slices.Contains(b.Includes, Databases) {
		if err := s.c.Places.Here(ctx, b.Site); fault.As(err) != nil {
			return s.fail(ctx, b.ID, words(err))
		} else if err != nil {
			return err
		}
	}
	m, w, err := s.collect(ctx, b)
	if (fault.As(err) != nil || errors.Is(err, blob.ErrCorrupt)) && !passing(err, attempt) {
		return s.fail(ctx, b.ID, words(err))
	}
	if err != nil {
		return fmt.Errorf("back up %s: %w", b.Site, err)
	}
	return s.complete(ctx, b, m, w)
}

// passing reports whether an error is a database server's that is away, and started again, or
// that had no time for a moment: the first attempts are not the last word.
func passing(err error, attempt int64) bool {
	f := fault.As(err)
	return f != nil && (f.Code == "database_unavailable" && attempt < 4 || f.Code == "database_slow" && attempt < 3)
}

// builtOn is how many earlier backups one looks into for what is stored already: after a
// restore the newest may hold little of what is there again.
const builtOn = 3

// begin marks a backup as running, on top of the newest that its site has.
func (s *Backups) begin(ctx context.Context, id ID) (b Backup, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if b, err = scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, id)); err != nil {
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return err
		}
		if b.Status == Completed || b.Status == Failed {
			return nil
		}
		rows, err := tx.Query(
			ctx,
			`SELECT manifest FROM backups WHERE site_id = $1 AND status = 'completed' ORDER BY id DESC LIMIT $2`,
			b.Site,
			builtOn,
		)
		names, err := db.Collect(rows, err, func(s db.Scanner) (name string, err error) { return name, s.Scan(&name) })
		if err != nil {
			return fmt.Errorf("find earlier backups of %s: %w", id, err)
		}
		base := strings.Join(names, ",")
		b.Status, b.base = Running, base
		tx.Notify(b.Owner.Topic())
		_, err = tx.Exec(ctx, `UPDATE backups SET status = 'running', base = $2, progress = 0 WHERE id = $1`, id, base)
		return err
	})
	return b, err
}

// collect reads all that the backup is to hold, stores what is new, and returns the list, and
// what has stored it. Where that fails, nothing of it stays.
func (s *Backups) collect(ctx context.Context, b Backup) (_ *snapshot.Manifest, w *repository.Writer, err error) {
	config, err := s.c.Sites.Export(ctx, b.Site)
	if fault.Is(err, fault.NotFound) {
		return nil, nil, &fault.Error{Kind: fault.Conflict, Message: "The site was deleted"}
	}
	if err != nil {
		return nil, w, err
	}
	w = repository.NewWriter(ctx, s.c.Repository)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abandon())
		}
	}()
	base, affected, err := s.buildOn(ctx, b, w)
	if err != nil {
		return nil, w, err
	}
	read, stop := s.report(ctx, b.ID)
	defer stop()
	w.OnRead(func(n int64) { read.Add(n) })
	m := &snapshot.Manifest{ID: b.ID, Site: b.Site, Includes: b.Includes}
	if slices.Contains(b.Includes, Settings) {
		m.Config = &config
	}
	if s.c.WordPress != nil && (m.Config != nil || slices.Contains(b.Includes, Databases)) {
		if m.Extra, err = s.c.WordPress.Export(ctx, b.Site); err != nil {
			return nil, w, err
		}
	}
	c := s.collection(w, m, base)
	// What can change is of one moment; the release and the program never change, so they
	// come after it, whatever has been deployed since.
	if slices.Contains(b.Includes, Files) {
		if m.Live, err = s.c.Deployments.LiveOf(ctx, b.Site); err != nil {
			return nil, w, err
		}
	}
	if err := c.Moment(ctx, b.Site, slices.Contains(b.Includes, Files), slices.Contains(b.Includes, Databases)); err != nil {
		return nil, w, err
	}
	if m.Live != nil {
		if err := s.collectBlobs(ctx, c, *m.Live); err != nil {
			return nil, w, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, w, err
	}
	if len(affected) > 0 { // their pages say what can be restored, now that all was mended that could be
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.verifyEarlierTx(ctx, tx, b, affected, w.Bad()) }); err != nil {
			return nil, w, err
		}
	}
	w.List(&m.Contents)
	return m, w, nil
}

// collection returns what fills a backup.
func (s *Backups) collection(w *repository.Writer, m, base *snapshot.Manifest) *snapshot.Collection {
	return &snapshot.Collection{Storage: s.c.Storage, Databases: s.c.Databases, Writer: w, Manifest: m, Base: base, Briefly: s.brief}
}

// buildOn lets the writer use what the site's last backups hold, and returns the newest of
// them that can be read, or nil. affected is the result of [Backups.healSite].
func (s *Backups) buildOn(
	ctx context.Context, b Backup, w *repository.Writer,
) (newest *snapshot.Manifest, affected map[ID][]string, err error) {
	if b.base == "" {
		return nil, nil, nil
	}
	names := strings.Split(b.base, ",")
	list := make([]*snapshot.Manifest, len(names))
	loads, loading := errgroup.WithContext(ctx)
	for i, name := range names {
		loads.Go(panics.Safe(func() (err error) {
			list[i], err = snapshot.Load(loading, s.c.Repository, name)
			if isBad(err) {
				s.c.Log.WarnContext(ctx, "earlier backup not reused", "backup", b.ID, "err", err)
				return nil // what it has is stored anew
			}
			return err
		}))
	}
	if err := loads.Wait(); err != nil {
		return nil, nil, err
	}
	if affected, err = s.healSite(ctx, b, list, w); err != nil {
		return nil, nil, err
	}
	for _, m := range list {
		if m != nil {
			w.Adopt(&m.Contents)
			newest = cmp.Or(newest, m)
		}
	}
	return newest, affected, nil
}

// report writes how much was read, while it is being read.
func (s *Backups) report(ctx context.Context, id ID) (read *atomic.Int64, stop func()) {
	read = &atomic.Int64{}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	// uncaught: writes a number
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if n := read.Load(); n != last {
				last = n
				err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `UPDATE backups SET progress = $2 WHERE id = $1 AND status = 'running'`, id, n)
					return err
				})
				if err != nil && ctx.Err() == nil {
					s.c.Log.WarnContext(ctx, "progress of backup not noted", "err", err)
				}
			}
		}
	}()
	return read, func() { cancel(); <-done }
}

// collectBlobs adds what a release and a bundle consist of.
func (s *Backups) collectBlobs(ctx context.Context, c *snapshot.Collection, l deployment.Live) error {
	seen := map[blob.Digest]bool{}
	add := func(d blob.Digest) error {
		if seen[d] {
			return nil
		}
		seen[d] = true
		name := d.String()
		return c.File(snapshot.InBlobs+name, name, 0, func() (io.ReadCloser, error) {
			r, _, err := s.c.Blobs.Open(ctx, d)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, &fault.Error{
					Kind:    fault.Conflict,
					Message: "A file of the site is missing in the store",
					Details: "deploy the site again, then back it up",
				}
			}
			return r, err
		})
	}
	if l.Release != "" {
		for d, err := range s.releases(s.c.Blobs).Digests(ctx, l.Release) {
			if err == nil {
				err = add(d)
			}
			if err != nil {
				return err
			}
		}
	}
	if l.Bundle == "" {
		return nil
	}
	if err := c.Writer.Share(); err != nil { // a program that many sites have is stored once
		return err
	}
	bundles, done, err := s.scratchBundles(s.c.Blobs)
	if err != nil {
		return err
	}
	defer done()
	for d, err := range bundles.Blobs(ctx, l.Bundle) {
		if err == nil {
			err = add(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete writes the manifest and the end, and has the backup verified.
func (s *Backups) complete(ctx context.Context, b Backup, m *snapshot.Manifest, w *repository.Writer) error {
	raw, err := m.Encode()
	if err != nil {
		return errors.Join(err, w.Abandon())
	}
	name, n, err := s.c.Repository.Put(ctx, raw)
	if err != nil {
		return errors.Join(fmt.Errorf("store manifest: %w", err), w.Abandon())
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		now := db.Now()
		wrote, err := tx.Exec(ctx, `
			UPDATE backups SET status = 'completed', size_bytes = $2, stored_bytes = $3, manifest = $4, checksum = $5, base = '', completed_at = $6
			WHERE id = $1 AND status = 'running'`, b.ID, m.Size(), w.Stored()+n, name, checksum(raw), now)
		if err != nil || wrote == 0 {
			return err
		}
		b.Status, b.Size, b.CompletedAt = Completed, m.Size(), now
		if err := s.verifyAgainTx(ctx, tx, b); err != nil {
			return err
		}
		if err := s.emitTx(ctx, tx, b); err != nil {
			return err
		}
		return s.deleteSiteTx(ctx, tx, b)
	})
}

func checksum(raw []byte) string {
	d := blob.Sum(raw)
	return hex.EncodeToString(d[:])
}

// fail writes why a backup was not taken.
func (s *Backups) fail(ctx context.Context, id ID, why string) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		b, err := scan(tx.QueryRow(ctx, `
			UPDATE backups SET status = 'failed', error = $2, base = '', completed_at = $3
			WHERE id = $1 AND status IN ('pending', 'running') RETURNING `+columns, id, why, db.Now()))
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if b.thenDelete != "" {
			if err := s.c.Operations.EndTx(
				ctx,
				tx,
				operationID(b.thenDelete),
				"",
				"The site was not deleted, because its backup failed: "+why,
				nil,
			); err != nil {
				return err
			}
		}
		return s.emitTx(ctx, tx, b)
	})
}

// emitTx tells webhooks of the end of a backup.
func (s *Backups) emitTx(ctx context.Context, tx *db.Tx, b Backup) error {
	tx.Notify(b.Owner.Topic())
	of := event.Site{ID: b.Site, Name: b.SiteName}
	what := event.Backup{
		ID:         b.ID,
		Type:       string(b.Type),
		Status:     string(b.Status),
		Size:       b.Size,
		VerifiedAt: b.VerifiedAt,
		Error:      b.Error,
	}
	if b.Status == Completed && b.Error == "" {
		return s.c.Hooks.EmitTx(ctx, tx, b.Owner, event.BackupCompleted(of, what))
	}
	title := "Backup of " + b.SiteName + " failed"
	if b.Status == Completed {
		title = "Backup of " + b.SiteName + " can't be restored"
	}
	if s.c.Notify != nil {
		err := s.c.Notify.TellTx(ctx, tx, b.Owner, b.Site, notify.Message{
			Event: notify.BackupFailed,
			Title: title,
			Text:  b.Error,
			Path:  "/sites/" + string(b.Site) + "/backups",
		})
		if err != nil {
			return err
		}
	}
	return s.c.Hooks.EmitTx(ctx, tx, b.Owner, event.BackupFailed(of, what))
}
