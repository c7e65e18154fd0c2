package server

import (
	"context"
	"fmt"

	"slipway/internal/backup"
	"slipway/internal/launch"
)

// trials makes the places where backups are tried on this node, one after the other: a
// program takes as much memory as the site's.
func (h *node) trials() func(ctx context.Context) (*backup.Trial, error) {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context) (*backup.Trial, error) {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := h.engine.ForgetStorage(launch.TrialSite); err != nil { // what a crash left there
			<-turn
			return nil, err
		}
		return &backup.Trial{
			Folder: func(ctx context.Context, name string) (backup.Folder, error) {
				dir, err := h.engine.MakeStorage(ctx, launch.TrialSite, name)
				return backup.Folder{Name: name, Dir: dir}, err
			},
			Answer: h.tryBackup,
			Close: func() {
				h.databases.CloseSocket(launch.TrialSite)
				if err := h.engine.ForgetStorage(launch.TrialSite); err != nil {
					h.s.Log.Warn("storage of a backup's trial not removed", "err", err)
				}
				<-turn
			},
		}, nil
	}
}

// tryBackup runs what a backup holds and says how it answers.
func (h *node) tryBackup(ctx context.Context, t backup.Tried) (string, error) {
	w, err := h.launch.Tried(ctx, t)
	if err != nil {
		return "", err
	}
	status, err := h.apps.Try(ctx, w)
	if err != nil {
		return "", err
	}
	path := w.HealthPath
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("Run from the copy, it answers %s with %d", path, status), nil
}
