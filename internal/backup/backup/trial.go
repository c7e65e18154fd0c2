package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Trial is a place beside all sites in which what a backup holds runs, so that it is seen to
// answer. It has neither a network nor mail: nobody outside hears of it.
type Trial interface {
	// Folder makes an empty storage folder of that name.
	Folder(ctx context.Context, name string) (snapshot.Folder, error)
	// Answer runs the program and says in words how it answers. A fault says why it doesn't;
	// one that is Unavailable, why it could not be tried.
	Answer(ctx context.Context, t Tried) (string, error)
	Close()
}

// Tried holds what runs in a trial.
type Tried struct {
	Site      site.ID // that it was of
	Owner     account.OwnerID
	Config    site.Export
	Live      deployment.Live
	Extra     json.RawMessage
	Databases map[string]snapshot.Loaded // by name
	Places    map[string]int64
}

// trial is a Trial that is being filled; nil where nothing is to run.
type trial struct {
	Trial
	databases map[string]snapshot.Loaded
}

// beginTrial opens the place where what a backup holds can run. why says in words why it
// can't, where it has a program.
func (s *Backups) beginTrial(ctx context.Context, r *snapshot.Reader, attempt int64) (t *trial, why string, err error) {
	m := r.Manifest
	if s.c.Programs == nil || s.c.Storage == nil || m.Live == nil || m.Live.Bundle == "" || m.Config == nil {
		return nil, "", nil
	}
	var need int64
	for _, f := range m.Under(snapshot.InStorage) {
		if need += m.OnDisk(f); m.FolderOf(f.Path) == "" {
			return nil, "Not run: the backup doesn't name its storage folders", nil
		}
	}
	if m.Config.Type == site.WordPress && (len(m.Places) == 0 || m.Extra == nil) {
		return nil, "Not run: the backup has no database of the WordPress", nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.c.Scratch, &disk); err == nil && need > int64(disk.Bavail)*disk.Bsize/2 {
		return nil, noRoom, nil
	}
	x, err := s.c.Programs.Trial(ctx)
	if err != nil {
		why, err = s.untried(ctx, err, attempt)
		return nil, why, err
	}
	return &trial{x, map[string]snapshot.Loaded{}}, "", nil
}

// untried says in words why a trial could not take place, once the server has been asked often
// enough. Until then it is an error that is no fault: the job is repeated.
func (s *Backups) untried(ctx context.Context, err error, attempt int64) (why string, _ error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if attempt < trialAttempts {
		return "", fmt.Errorf("run what the backup holds: %v", err)
	}
	if f := fault.As(err); f != nil {
		return "Not run: " + f.Message, nil
	}
	s.c.Log.ErrorContext(ctx, "backup not tried", "err", err)
	return "Not run: internal error", nil
}

const noRoom = "Not run: the server has no room for a copy of the stored files"

// trialAttempts is how often a server that is too busy for a trial is asked.
const trialAttempts = 3

// fill restores the storage folders.
func (t *trial) fill(ctx context.Context, r *snapshot.Reader) error {
	if t == nil {
		return nil
	}
	for _, name := range r.Manifest.Folders {
		f, err := t.Folder(ctx, name)
		if err != nil {
			return err
		}
		if err := r.Write(ctx, f.Dir, f.Dir, r.Manifest.Under(snapshot.InStorage+name+"/"), nil); err != nil {
			return err
		}
		if err := snapshot.OwnLike(f.Dir, f.Dir); err != nil {
			return err
		}
	}
	return nil
}

// takes keeps a loaded database for the program, and reports whether there is one.
func (t *trial) takes(name string, l snapshot.Loaded) bool {
	if t == nil {
		return false
	}
	t.databases[name] = l
	return true
}

func (t *trial) close(ctx context.Context) {
	if t == nil {
		return
	}
	t.Close()
	for _, l := range t.databases {
		l.Drop(context.WithoutCancel(ctx))
	}
}

// tryOut runs the program. A WordPress must answer, for all that it needs is in the backup;
// of an application, which may need what lies outside, the answer says that it didn't.
func (s *Backups) tryOut(ctx context.Context, r *snapshot.Reader, t *trial, attempt int64) (answer string, err error) {
	if err := s.haveBlobs(ctx, r); err != nil {
		return "", err
	}
	m := r.Manifest
	answer, err = t.Answer(ctx, Tried{
		Site:      m.Site,
		Owner:     r.Owner,
		Config:    *m.Config,
		Live:      *m.Live,
		Extra:     m.Extra,
		Databases: t.databases,
		Places:    m.Places,
	})
	f := fault.As(err)
	switch {
	case err == nil:
		return answer, nil
	case f == nil || f.Kind == fault.Unavailable || ctx.Err() != nil:
		return s.untried(ctx, err, attempt)
	case m.Config.Type == site.WordPress:
		return "", fault.New(fault.Conflict, "backup_does_not_answer",
			"All files and tables are there, but WordPress doesn't answer from them",
			words(f))
	}
	return "It did not answer when it ran without a network: " + words(f), nil
}

// haveBlobs puts what the program runs from back into the store, where that lacks any of it.
func (s *Backups) haveBlobs(ctx context.Context, r *snapshot.Reader) error {
	for _, f := range r.Manifest.Under(snapshot.InBlobs) {
		d, err := blob.ParseDigest(f.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
		}
		in, _, err := s.c.Blobs.Open(ctx, d)
		if errors.Is(err, fs.ErrNotExist) {
			return s.putBlobs(ctx, r, "")
		}
		if err != nil {
			return err
		}
		_ = in.Close()
	}
	return nil
}
