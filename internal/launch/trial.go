package launch

import (
	"context"
	"fmt"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/snapshot"
)

// Trial reserves the place for trying a backup on this node. Only one is tried at a time, since a program takes as much
// memory as the site's. Close releases it.
func (l *Launch) Trial(ctx context.Context) (backup.Trial, error) {
	select {
	case l.trying <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := l.ForgetTrial(); err != nil {
		<-l.trying
		return nil, err
	}
	return trial{l}, nil
}

// ForgetTrial deletes what a crash left of this node's trial. It needs an Engine. It must run before [app.Apps.Adopt], which takes
// every folder of storage for a site's.
func (l *Launch) ForgetTrial() error { return l.c.Engine.ForgetStorage(l.trial) }

// trial is the place for trying a backup.
type trial struct{ l *Launch }

func (t trial) Folder(ctx context.Context, name string) (snapshot.Folder, error) {
	dir, err := t.l.c.Engine.MakeStorage(ctx, t.l.trial, name)
	return snapshot.Folder{Name: name, Dir: dir}, err
}

func (t trial) Close() {
	t.l.c.Databases.CloseSocket(t.l.trial)
	if err := t.l.c.Engine.ForgetStorage(t.l.trial); err != nil {
		t.l.c.Log.Warn("storage of a backup's trial not removed", "err", err)
	}
	<-t.l.trying
}

// Answer runs the program in a backup and describes its response.
func (t trial) Answer(ctx context.Context, held backup.Tried) (string, error) {
	w, err := t.l.Tried(ctx, held)
	if err != nil {
		return "", err
	}
	if err := t.l.c.Engine.KeepStorage(ctx, t.l.trial); err != nil {
		return "", err
	}
	status, err := t.l.c.Apps.Try(ctx, w)
	if err != nil {
		return "", err
	}
	path := w.HealthPath
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("Restored copy: GET %s returned %d", path, status), nil
}
