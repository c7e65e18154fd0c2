package app

import (
	"context"
	"maps"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a site's workers and crons to another owner.
func (a *Apps) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	return a.tasks.MoveSiteTx(ctx, tx, id, to)
}

// declare writes the tasks of what sites serve.
func (a *Apps) declare(ctx context.Context) error {
	return a.tasks.Declare(ctx, func(ctx context.Context, deployment id.Deployment) ([]task.Task, id.Owner, error) {
		want, err := a.c.Launch.Wanted(ctx, deployment)
		return want.Tasks, want.Owner, err
	})
}

// Tasks lists the tasks of what a site serves, workers first.
func (a *Apps) Tasks(ctx context.Context, site id.Site) ([]TaskState, error) {
	list, err := a.tasks.Of(ctx, site)
	if err != nil {
		return nil, err
	}
	var out []TaskState
	for _, t := range list {
		s := TaskState{Task: t.Task, Next: t.Next, Last: t.Last, LastExit: t.LastExit}
		if t.Kind == task.Worker {
			s.State, s.Message, s.Restarts = a.workerState(t.Key())
		}
		out = append(out, s)
	}
	return out, nil
}

// TaskState is a task and how it is.
type TaskState struct {
	task.Task
	Next     db.Time // of a cron
	Last     db.Time // of a cron: when its last run began; 0: it has none
	LastExit int     // of that run; below 0: it runs, or was interrupted
	State    State   // of a worker, on this machine
	Message  string
	Restarts int
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
