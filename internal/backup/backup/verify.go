package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

// Verify is the job that proves that a backup can be restored.
type Verify struct {
	Backup    ID
	Operation operation.ID // empty: nobody waits for it
}

// Kind names the job.
func (Verify) Kind() string { return "backup.verify" }

func operationID(s operation.ID) operation.ID { return s }

func notCompleted(b Backup) error {
	return fault.New(fault.Conflict, "backup_not_completed", "The backup is not completed", "its status is "+string(b.Status))
}

// VerifyTx begins to verify the owner's backup.
func (s *Backups) VerifyTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (operation.Operation, error) {
	b, err := s.owned(ctx, tx, owner, id)
	if err != nil {
		return operation.Operation{}, err
	}
	if b.Status != Completed {
		return operation.Operation{}, notCompleted(b)
	}
	if err := s.possible(); err != nil {
		return operation.Operation{}, err
	}
	o, err := s.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
		Kind:   "backup.verify",
		Site:   b.Site,
		Unique: "verify/" + string(id),
	})
	if err != nil {
		return o, err
	}
	_, err = job.Enqueue(ctx, tx, Verify{id, o.ID}, job.Options{Queue: VerifyQueue, Share: string(owner)})
	return o, err
}

func (s *Backups) verify(ctx context.Context, v Verify, attempt int64) error {
	b, err := scan(s.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, v.Backup))
	if fault.Is(err, fault.NotFound) {
		return s.verified(ctx, v, "", "The backup was deleted")
	}
	if err != nil {
		return err
	}
	if v.Operation == "" {
		if again, err := s.waitTurn(ctx, v, b); err != nil || again {
			return err
		}
	}
	answer, err := s.check(ctx, b, attempt)
	switch {
	case err == nil:
		return s.verified(ctx, v, answer, "")
	case passing(err, attempt):
	case fault.As(err) != nil || errors.Is(err, repository.ErrDamaged) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, fs.ErrNotExist):
		s.c.Log.ErrorContext(ctx, "backup can't be restored", "backup", b.ID, "site", b.Site, "err", err)
		why := words(err)
		if errors.Is(err, fs.ErrNotExist) {
			why = "A stored file is missing"
		}
		return s.verified(ctx, v, answer, why)
	}
	return fmt.Errorf("verify %s: %w", b.ID, err)
}

// verifyLater is how soon a verification looks again whether the site's operations have ended.
const verifyLater = time.Second

// waitTurn puts a verification that nobody waits for off while an operation of the site is under
// way, such as the restore before which the backup was taken: that has the machine meanwhile.
func (s *Backups) waitTurn(ctx context.Context, v Verify, b Backup) (again bool, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if again, err = s.c.Operations.UnderTx(ctx, tx, b.Site); err != nil || !again {
			return err
		}
		_, err := job.Enqueue(ctx, tx, v, job.Options{Queue: VerifyQueue, Share: string(b.Owner), At: db.Now().Add(verifyLater)})
		return err
	})
	return again, err
}

// check reads all of a backup as a restore would, into a place beside the site: every
// file's digest, the release as it would be served, the program's files, and each database
// loaded into one of its own and compared. Then the program runs from that, and answer says
// in words how it answers.
func (s *Backups) check(ctx context.Context, b Backup, attempt int64) (answer string, err error) {
	r, err := s.reader(ctx, b)
	if err != nil {
		return "", err
	}
	t, answer, err := s.beginTrial(ctx, r, attempt)
	if err != nil {
		return answer, err
	}
	defer func() { t.close(ctx) }()
	if err := t.fill(ctx, r); disk.Full(err) {
		t.close(ctx)
		t, answer = nil, noRoom
	} else if fault.Is(err, fault.Unavailable) {
		t.close(ctx)
		t = nil
		if answer, err = s.untried(ctx, err, attempt); err != nil {
			return "", err
		}
	} else if err != nil {
		return answer, err
	}
	for _, f := range r.Manifest.Files { // in the order of their packs, as they were written
		if strings.HasPrefix(f.Path, snapshot.InDatabase) || f.Link != "" || t != nil && strings.HasPrefix(f.Path, snapshot.InStorage) {
			continue
		}
		if err := r.Copy(ctx, io.Discard, f); err != nil {
			return answer, err
		}
	}
	if r.Manifest.Live != nil {
		front, err := s.checkLive(ctx, r, *r.Manifest.Live)
		if err != nil {
			return answer, err
		}
		answer = cmp.Or(answer, front)
	}
	for _, f := range r.Manifest.Under(snapshot.InDatabase) {
		if s.cannotLoad() {
			return answer, noDatabases
		}
		l, err := s.load(ctx, r, f, true)
		if err != nil {
			return answer, err
		}
		if !t.takes(strings.TrimSuffix(f.Path, ".sql"), l) {
			l.Drop(ctx)
		}
	}
	if t == nil {
		return answer, nil
	}
	return s.tryOut(ctx, r, t, attempt)
}

var noDatabases = fault.New(fault.Conflict, "databases_unavailable",
	"The backup contains databases, which are not available on this server",
	"restore includes config and files alone")

// cannotLoad reports whether dumps can't be loaded on this node.
func (s *Backups) cannotLoad() bool { return s.c.Databases == nil || s.c.Databases.Unavailable() != "" }

// load loads a dump into a database of its own.
func (s *Backups) load(ctx context.Context, r *snapshot.Reader, f repository.File, check bool) (l snapshot.Loaded, err error) {
	whole := f
	whole.Path = snapshot.InDatabase + f.Path
	err = r.Pipe(ctx, whole, func(in io.Reader) (err error) {
		l, err = s.c.Databases.Load(ctx, r.Owner, in, check)
		return err
	})
	if err != nil {
		if l != nil { // loaded, but not what was stored
			l.Drop(ctx)
		}
		return nil, fmt.Errorf("database %s: %w", f.Path, err)
	}
	return l, nil
}

// checkLive looks at the release and the program in the backup itself. front says how the
// front page is answered where that is a file.
func (s *Backups) checkLive(ctx context.Context, r *snapshot.Reader, l deployment.Live) (front string, err error) {
	store := r.Stored()
	if l.Release != "" {
		tree, err := s.releases(store).Load(ctx, l.Release)
		if err != nil {
			return "", fmt.Errorf("release: %w", err)
		}
		if _, ok := r.Manifest.File(snapshot.InBlobs + string(l.Release)); !ok {
			return "", fmt.Errorf("release: %w", repository.ErrDamaged)
		}
		for f := range tree.Files() {
			if _, ok := r.Manifest.File(snapshot.InBlobs + f.Body.Digest.String()); !ok {
				return "", fmt.Errorf("release file %s: %w", f.Path, fs.ErrNotExist)
			}
		}
		if a := tree.Resolve(rules.Request{Path: "/"}); a.Kind == release.Found {
			if _, err := s.releases(store).Peek(ctx, a.File, 1<<20); err != nil {
				return "", fmt.Errorf("front page: %w", err)
			}
			front = "The front page is whole"
		}
	}
	if l.Bundle == "" {
		return front, nil
	}
	bundles, done, err := s.scratchBundles(store)
	if err != nil {
		return "", err
	}
	defer done()
	for f, err := range bundles.Files(ctx, l.Bundle) {
		if err != nil {
			return "", fmt.Errorf("program: %w", err)
		}
		if f.Link != "" {
			continue
		}
		if _, ok := r.Manifest.File(snapshot.InBlobs + f.Digest.String()); !ok {
			return "", fmt.Errorf("program file %s: %w", f.Path, fs.ErrNotExist)
		}
	}
	return front, nil
}

// verified writes the end of a verification; why is empty when it was good.
func (s *Backups) verified(ctx context.Context, v Verify, answer, why string) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		at := db.Now()
		if why != "" {
			at = 0
		}
		b, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, v.Backup))
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err == nil {
			known := b.Error == why
			b.VerifiedAt, b.Error = at, why
			if _, err := tx.Exec(
				ctx, `UPDATE backups SET verified_at = $2, error = $3, answer = $4 WHERE id = $1`, v.Backup, at, why, answer,
			); err != nil {
				return fmt.Errorf("note verification: %w", err)
			}
			tx.Notify(b.Owner.Topic())
			if why != "" && !known { // its owner counts on it
				if err := s.emitTx(ctx, tx, b); err != nil {
					return err
				}
			}
		}
		if why == "" { // the next time that there is none for long is told again
			if _, err := tx.Exec(
				ctx,
				`UPDATE backup_schedules SET warned = FALSE WHERE site_id = (SELECT site_id FROM backups WHERE id = $1)`,
				v.Backup,
			); err != nil {
				return fmt.Errorf("note verification: %w", err)
			}
		}
		if v.Operation == "" {
			return nil
		}
		message := "The backup can be restored"
		if why != "" {
			message = ""
		}
		return s.c.Operations.EndTx(ctx, tx, v.Operation, message, why, map[string]any{"backupId": v.Backup})
	})
}
