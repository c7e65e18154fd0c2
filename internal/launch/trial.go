package launch

import (
	"context"
	"fmt"

	"slipway/internal/backup"
)

// Trial makes the place where a backup is tried on this node, one after the other: a program takes as
// much memory as the site's. Close gives it back.
func (l *Launch) Trial(ctx context.Context) (*backup.Trial, error) {
	select {
	case l.trying <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	engine := l.c.Engine
	if err := engine.ForgetStorage(TrialSite); err != nil { // what a crash left there
		<-l.trying
		return nil, err
	}
	return &backup.Trial{
		Folder: func(ctx context.Context, name string) (backup.Folder, error) {
			dir, err := engine.MakeStorage(ctx, TrialSite, name)
			return backup.Folder{Name: name, Dir: dir}, err
		},
		Answer: l.try,
		Close: func() {
			l.c.Databases.CloseSocket(TrialSite)
			if err := engine.ForgetStorage(TrialSite); err != nil {
				l.c.Log.Warn("storage of a backup's trial not removed", "err", err)
			}
			<-l.trying
		},
	}, nil
}

// try runs what a backup holds and says how it answers.
func (l *Launch) try(ctx context.Context, t backup.Tried) (string, error) {
	w, err := l.Tried(ctx, t)
	if err != nil {
		return "", err
	}
	status, err := l.c.Apps.Try(ctx, w)
	if err != nil {
		return "", err
	}
	path := w.HealthPath
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("Run from the copy, it answers %s with %d", path, status), nil
}
