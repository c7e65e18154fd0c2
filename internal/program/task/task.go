// Package task owns what sites have beside their programs: the workers and scheduled commands of what a site serves, which node runs a
// worker, and when a command's next time is. It runs nothing: package app does.
package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/cron"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/placement"
)

// Command is something that a deployment's files hold, run beside its program: in the same
// sandbox, with the same variables and limits, and without a port.
type Command struct {
	Argv  []string `json:"argv,omitempty"` // exactly one of Argv and Shell is set
	Shell string   `json:"shell,omitempty"`
	Dir   string   `json:"dir,omitempty"`
}

// String returns the command as somebody would type it.
func (c Command) String() string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}

// Task is something that runs beside a site's program while the deployment is live.
type Task struct {
	Kind     string // worker, cron
	Name     string
	Schedule string // of a cron
	Command  Command
}

// The kinds of tasks.
const (
	Worker = "worker"
	Cron   = "cron"
)

// Declared is a task of what a site serves.
type Declared struct {
	Task
	Site       id.Site
	Deployment id.Deployment
	Owner      id.Owner
	Next       db.Time // of a cron
	Last       db.Time // of a cron: when its last run began; 0: it has none
	LastExit   int     // below 0: it runs, or was interrupted
}

// Key names the task among those of its kind.
func (t Declared) Key() string { return string(t.Site) + "/" + t.Name }

// lease is how long a node holds a worker that it does not renew.
const lease = 30 * time.Second

// Config holds what Tasks needs.
type Config struct {
	DB     *db.DB
	Places *placement.Places // Optional: nil is an installation of one node.
	Node   string            // this one, among others that hold workers
}

// Tasks are those of all sites. It is safe for concurrent use.
type Tasks struct{ c Config }

// New returns the tasks that are kept in a database.
func New(c Config) *Tasks { return &Tasks{c} }

// Topic is notified after tasks were written.
const Topic = "app-tasks"

// Declare writes the tasks of what sites serve, wherever they were last written for
// another deployment. It may run on several nodes at once: they write the same. of returns
// those of a deployment, and who owns its site; where it can't, there are none.
func (s *Tasks) Declare(ctx context.Context, of func(context.Context, id.Deployment) ([]Task, id.Owner, error)) error {
	type row struct {
		site       id.Site
		deployment id.Deployment
	}
	rows, err := s.c.DB.Query(ctx, `
		SELECT l.site_id, l.deployment_id FROM live l LEFT JOIN app_declared d ON d.site_id = l.site_id
		WHERE l.state = 'live' AND (l.backend = 'program' OR d.site_id IS NOT NULL) AND COALESCE(d.deployment_id, '') <> l.deployment_id
		LIMIT 200`)
	list, err := db.Collect(rows, err, func(x db.Scanner) (r row, err error) { return r, x.Scan(&r.site, &r.deployment) })
	if err != nil {
		return fmt.Errorf("find new deployments: %w", err)
	}
	for _, r := range list {
		tasks, owner, err := of(ctx, r.deployment)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			tasks, owner = nil, "" // it runs nothing that is stored
		}
		if err := s.declare(ctx, r.site, r.deployment, owner, tasks); err != nil {
			return fmt.Errorf("write tasks of %s: %w", r.site, err)
		}
	}
	return nil
}

func (s *Tasks) declare(ctx context.Context, site id.Site, deployment id.Deployment, owner id.Owner, tasks []Task) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(Topic)
		if _, err := tx.Exec(ctx, `
			INSERT INTO app_declared (site_id, deployment_id) VALUES ($1, $2)
			ON CONFLICT (site_id) DO UPDATE SET deployment_id = excluded.deployment_id`, site, deployment); err != nil {
			return err
		}
		names := map[string]bool{}
		for _, t := range tasks {
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
				ON CONFLICT (site_id, kind, name) DO UPDATE SET deployment_id = excluded.deployment_id, command = excluded.command,
				schedule = excluded.schedule,
					next_at = CASE WHEN app_tasks.schedule = excluded.schedule AND app_tasks.next_at > 0 THEN app_tasks.next_at ELSE excluded.next_at END`,
				site, t.Kind, t.Name, deployment, owner, t.Schedule, string(command), next); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, `SELECT kind, name FROM app_tasks WHERE site_id = $1`, site)
		have, err := db.Collect(rows, err, func(x db.Scanner) (t Task, err error) { return t, x.Scan(&t.Kind, &t.Name) })
		if err != nil {
			return err
		}
		for _, t := range have {
			if names[t.Kind+"/"+t.Name] {
				continue
			}
			if _, err := tx.Exec(
				ctx, `DELETE FROM app_tasks WHERE site_id = $1 AND kind = $2 AND name = $3`, site, t.Kind, t.Name,
			); err != nil {
				return err
			}
		}
		return nil
	})
}

func nextTime(t Task) (db.Time, error) {
	if t.Kind != Cron {
		return 0, nil
	}
	s, err := cron.Parse(t.Schedule)
	if err != nil {
		return 0, err
	}
	return db.Time(s.Next(db.Now().Time()).UnixMilli()), nil
}

// list returns the tasks of one kind that are in force: those of what sites serve now.
func list(ctx context.Context, r db.Reader, kind, where string, args ...any) ([]Declared, error) {
	rows, err := r.Query(ctx, `
		SELECT t.site_id, t.deployment_id, t.owner_id, t.name, t.schedule, t.command, t.next_at, t.last_at, t.last_exit
		FROM app_tasks t JOIN live l ON l.site_id = t.site_id AND l.deployment_id = t.deployment_id
		WHERE l.state = 'live' AND t.kind = $1 `+where, append([]any{kind}, args...)...)
	all, err := db.Collect(rows, err, func(x db.Scanner) (t Declared, err error) {
		var command string
		t.Kind = kind
		if err := x.Scan(
			&t.Site,
			&t.Deployment,
			&t.Owner,
			&t.Name,
			&t.Schedule,
			&command,
			&t.Next,
			&t.Last,
			&t.LastExit,
		); err != nil {
			return t, err
		}
		return t, json.Unmarshal([]byte(command), &t.Command)
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return all, nil
}

// Workers returns the workers of all sites.
func (s *Tasks) Workers(ctx context.Context) ([]Declared, error) {
	return list(ctx, s.c.DB, Worker, `ORDER BY t.site_id, t.name`)
}

// Due returns the scheduled commands whose time has come.
func (s *Tasks) Due(ctx context.Context, now db.Time) ([]Declared, error) {
	return list(ctx, s.c.DB, Cron, `AND t.next_at > 0 AND t.next_at <= $2 ORDER BY t.next_at LIMIT 200`, now)
}

// Of returns the tasks of a site, workers first.
func (s *Tasks) Of(ctx context.Context, site id.Site) (all []Declared, err error) {
	for _, kind := range []string{Worker, Cron} {
		part, err := list(ctx, s.c.DB, kind, `AND t.site_id = $2 ORDER BY t.name`, string(site))
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	return all, nil
}

// CronTx returns a scheduled command of a site, or a NotFound fault.
func (s *Tasks) CronTx(ctx context.Context, tx *db.Tx, site id.Site, name string) (Declared, error) {
	all, err := list(ctx, tx, Cron, `AND t.site_id = $2 AND t.name = $3`, string(site), name)
	if err != nil {
		return Declared{}, err
	}
	if len(all) == 0 {
		return Declared{}, fault.New(fault.NotFound, "cron_not_found", "Scheduled command not found",
			"GET /sites/:id/crons lists those of the live deployment")
	}
	return all[0], nil
}

// MoveOnTx moves a scheduled command to its next time, and reports whether nobody else has.
func (s *Tasks) MoveOnTx(ctx context.Context, tx *db.Tx, t Declared, now db.Time) (bool, error) {
	times, err := cron.Parse(t.Schedule)
	if err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, `UPDATE app_tasks SET next_at = $4 WHERE site_id = $1 AND kind = 'cron' AND name = $2 AND next_at = $3`,
		t.Site, t.Name, t.Next, db.Time(times.Next(now.Time()).UnixMilli()))
	return n == 1, err
}

// Hold takes or renews the lease of a worker. There is nobody else where the database
// serves one node.
func (s *Tasks) Hold(ctx context.Context, t Declared) (bool, error) {
	if s.c.DB.Single() {
		return true, nil
	}
	switch err := s.c.Places.Take(ctx, t.Site, placement.Nothing); {
	case fault.As(err) != nil: // another node has the site, or will
		return false, nil
	case err != nil:
		return false, err
	}
	now, held := s.c.DB.Now(), false
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			UPDATE app_tasks SET node = $3, lease_until = $4
			WHERE site_id = $1 AND kind = 'worker' AND name = $2 AND (node = $3 OR lease_until < $5 OR EXISTS (SELECT 1 FROM live_nodes n
			WHERE n.id = app_tasks.node AND n.lease_until < $5))`,
			t.Site, t.Name, s.c.Node, now.Add(lease), now)
		held = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("hold worker %s: %w", t.Key(), err)
	}
	return held, nil
}

// LetGo ends the lease of a worker that has ended, so that another node need not wait for it.
func (s *Tasks) LetGo(ctx context.Context, t Declared) error {
	if s.c.DB.Single() {
		return nil
	}
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(Topic)
		_, err := tx.Exec(ctx, `UPDATE app_tasks SET lease_until = 0 WHERE site_id = $1 AND kind = 'worker' AND name = $2 AND node = $3`,
			t.Site, t.Name, s.c.Node)
		return err
	})
	if err != nil {
		return fmt.Errorf("let go of worker %s: %w", t.Key(), err)
	}
	return nil
}

// Last returns when a scheduled command last began; 0: it has not, or there is none of that name.
func (s *Tasks) Last(ctx context.Context, site id.Site, name string) (at db.Time, err error) {
	err = s.c.DB.QueryRow(ctx, `
		SELECT COALESCE(MAX(last_at), 0) FROM app_tasks WHERE site_id = $1 AND kind = 'cron' AND name = $2`, site, name).Scan(&at)
	if err != nil {
		return 0, fmt.Errorf("read start of scheduled command: %w", err)
	}
	return at, nil
}

// Ran writes that a scheduled command began at a moment, or how it ended where at is 0.
func (s *Tasks) Ran(ctx context.Context, site id.Site, name string, at db.Time, exit int) error {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`UPDATE app_tasks SET last_exit = $3, last_at = CASE WHEN CAST($4 AS BIGINT) > 0 THEN CAST($4 AS BIGINT) ELSE last_at END
				WHERE site_id = $1 AND kind = 'cron' AND name = $2`,
			site, name, exit, at,
		)
		return err
	})
}

// MoveSiteTx gives a site's tasks to another owner, and returns how many there are.
func (s *Tasks) MoveSiteTx(ctx context.Context, tx *db.Tx, site id.Site, to id.Owner) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE app_tasks SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, site, to)
	if err != nil {
		return 0, fmt.Errorf("move workers of site: %w", err)
	}
	return n, nil
}

// PurgeTx forgets the tasks of a deleted site.
func (s *Tasks) PurgeTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	for _, table := range []string{"app_tasks", "app_declared"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE site_id = $1`, site); err != nil {
			return fmt.Errorf("forget tasks: %w", err)
		}
	}
	return nil
}
