package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/cron"
	"slipway/internal/platform/db"
)

// Task is something that runs beside a site's program while the deployment is live.
type Task struct {
	Kind     string // worker, cron
	Name     string
	Schedule string // of a cron
	Command  Command
}

// The kinds of tasks.
const (
	worker   = "worker"
	cronKind = "cron"
)

// declare writes the tasks of what sites serve, wherever they were last written for
// another deployment. It may run on several nodes at once: they write the same.
func (a *Apps) declare(ctx context.Context) error {
	rows, err := a.c.DB.Query(ctx, `
		SELECT l.site_id, l.deployment_id, l.state FROM live l LEFT JOIN app_declared d ON d.site_id = l.site_id
		WHERE l.state = 'live' AND (l.backend = 'program' OR d.site_id IS NOT NULL) AND COALESCE(d.deployment_id, '') <> l.deployment_id LIMIT 200`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (r row, err error) { return r, s.Scan(&r.site, &r.deployment, &r.state) })
	if err != nil {
		return fmt.Errorf("find new deployments: %w", err)
	}
	for _, r := range list {
		want, err := a.c.Launch.Wanted(ctx, r.deployment)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			want = Wanted{} // it runs nothing that is stored
		}
		if err := a.declareOne(ctx, r, want); err != nil {
			return fmt.Errorf("write tasks of %s: %w", r.site, err)
		}
	}
	return nil
}

func (a *Apps) declareOne(ctx context.Context, r row, want Wanted) error {
	return a.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(taskTopic)
		if _, err := tx.Exec(ctx, `
			INSERT INTO app_declared (site_id, deployment_id) VALUES ($1, $2)
			ON CONFLICT (site_id) DO UPDATE SET deployment_id = excluded.deployment_id`, r.site, r.deployment); err != nil {
			return err
		}
		names := map[string]bool{}
		for _, t := range want.Tasks {
			names[t.Kind+"/"+t.Name] = true
			command, err := json.Marshal(t.Command)
			if err != nil {
				return err
			}
			next, err := nextTime(t)
			if err != nil {
				return err
			}
			// A schedule that stays keeps its next time: a deployment a minute must not put it off for ever.
			if _, err := tx.Exec(ctx, `
				INSERT INTO app_tasks (site_id, kind, name, deployment_id, owner_id, schedule, command, next_at, node, lease_until)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', 0)
				ON CONFLICT (site_id, kind, name) DO UPDATE SET deployment_id = excluded.deployment_id, command = excluded.command, schedule = excluded.schedule,
					next_at = CASE WHEN app_tasks.schedule = excluded.schedule AND app_tasks.next_at > 0 THEN app_tasks.next_at ELSE excluded.next_at END`,
				r.site, t.Kind, t.Name, r.deployment, want.Owner, t.Schedule, string(command), next); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, `SELECT kind, name FROM app_tasks WHERE site_id = $1`, r.site)
		have, err := db.Collect(rows, err, func(s db.Scanner) (t Task, err error) { return t, s.Scan(&t.Kind, &t.Name) })
		if err != nil {
			return err
		}
		for _, t := range have {
			if names[t.Kind+"/"+t.Name] {
				continue
			}
			if _, err := tx.Exec(
				ctx, `DELETE FROM app_tasks WHERE site_id = $1 AND kind = $2 AND name = $3`, r.site, t.Kind, t.Name,
			); err != nil {
				return err
			}
		}
		return nil
	})
}

// taskTopic is notified after tasks were written.
const taskTopic = "app-tasks"

func nextTime(t Task) (db.Time, error) {
	if t.Kind != cronKind {
		return 0, nil
	}
	s, err := cron.Parse(t.Schedule)
	if err != nil {
		return 0, err
	}
	return db.Time(s.Next(db.Now().Time()).UnixMilli()), nil
}

// declared is a row of app_tasks.
type declared struct {
	site       id.Site
	deployment id.Deployment
	owner      id.Owner
	schedule   string
	name       string
	command    Command
	next       db.Time
	node       string
	last       db.Time // of a cron: when its last run began; 0: it has none
	lastExit   int     // below 0: it runs, or was interrupted
}

func (t declared) key() string { return string(t.site) + "/" + t.name }

// tasks returns the tasks of one kind that are in force: those of what sites serve now.
func (a *Apps) tasks(ctx context.Context, r db.Reader, kind, where string, args ...any) ([]declared, error) {
	rows, err := r.Query(ctx, `
		SELECT t.site_id, t.deployment_id, t.owner_id, t.name, t.schedule, t.command, t.next_at, t.node, t.last_at, t.last_exit
		FROM app_tasks t JOIN live l ON l.site_id = t.site_id AND l.deployment_id = t.deployment_id
		WHERE l.state = 'live' AND t.kind = $1 `+where, append([]any{kind}, args...)...)
	list, err := db.Collect(rows, err, func(s db.Scanner) (t declared, err error) {
		var command string
		if err := s.Scan(
			&t.site,
			&t.deployment,
			&t.owner,
			&t.name,
			&t.schedule,
			&command,
			&t.next,
			&t.node,
			&t.last,
			&t.lastExit,
		); err != nil {
			return t, err
		}
		return t, json.Unmarshal([]byte(command), &t.command)
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return list, nil
}

// Tasks lists the tasks of what a site serves, workers first.
func (a *Apps) Tasks(ctx context.Context, site id.Site) ([]TaskState, error) {
	var out []TaskState
	for _, kind := range []string{worker, cronKind} {
		list, err := a.tasks(ctx, a.c.DB, kind, `AND t.site_id = $2 ORDER BY t.name`, string(site))
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			s := TaskState{Task: Task{kind, t.name, t.schedule, t.command}, Next: t.next, Last: t.last, LastExit: t.lastExit}
			if kind == worker {
				s.State, s.Message, s.Restarts = a.workerState(t.key())
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// TaskState is a task and how it is.
type TaskState struct {
	Task
	Next     db.Time // of a cron
	Last     db.Time // of a cron: when its last run began; 0: it has none
	LastExit int     // of that run; below 0: it runs, or was interrupted
	State    State   // of a worker, on this machine
	Message  string
	Restarts int
}

// forgetTasksTx drops the tasks of a deleted site.
func forgetTasksTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	for _, table := range []string{"app_tasks", "app_declared"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE site_id = $1`, site); err != nil {
			return fmt.Errorf("forget tasks: %w", err)
		}
	}
	return nil
}

// String returns the command as somebody would type it.
func (c Command) String() string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
