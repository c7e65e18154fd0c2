// Package cleanup owns freeing disk space when the operator asks for it: the collection of garbage that otherwise runs
// every hour, as an operation whose result says what it freed.
package cleanup

import (
	"context"
	"encoding/json"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/operation"
)

// Config holds what a Cleanup needs.
type Config struct {
	DB         *db.DB
	Operations *operation.Operations
	Garbage    *gc.Collector
}

// Cleanup runs collections. It is safe for concurrent use.
type Cleanup struct{ c Config }

// New returns a Cleanup. It starts nothing: Work registers its job.
func New(c Config) *Cleanup { return &Cleanup{c} }

// Collect is the job. It may run twice: what the first attempt freed isn't in the result then.
type Collect struct{ Operation operation.ID }

// Kind names the job.
func (Collect) Kind() string { return kind }

const kind = "installation.gc"

// BeginTx has garbage collected by whichever node serves.
func BeginTx(ctx context.Context, tx *db.Tx, ops *operation.Operations) (operation.Operation, error) {
	o, err := ops.OpenTx(ctx, tx, backup.OfInstallation, operation.NewOperation{Kind: kind, Unique: kind})
	if err != nil {
		return o, err
	}
	_, err = job.Enqueue(ctx, tx, Collect{o.ID}, job.Options{})
	return o, err
}

// Work registers the job.
func (c *Cleanup) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Timeout:  6 * time.Hour,
		Attempts: 5, // the hourly collection may be under way
		Backoff:  func(int) time.Duration { return 5 * time.Second },
		GivenUp: func(ctx context.Context, args []byte, why error) error {
			var x Collect
			if err := json.Unmarshal(args, &x); err != nil {
				return err
			}
			return c.end(ctx, x, why.Error(), nil)
		},
	}, c.collect)
}

func (c *Cleanup) collect(ctx context.Context, x Collect, _ int64) error {
	if _, err := c.c.Operations.Get(ctx, backup.OfInstallation, x.Operation); fault.Is(err, fault.NotFound) {
		return nil // restored from a backup, without it
	}
	freed, err := c.c.Garbage.Collect(ctx)
	if err != nil {
		return err
	}
	return c.end(ctx, x, "", freed)
}

func (c *Cleanup) end(ctx context.Context, x Collect, why string, result any) error {
	return c.c.DB.Write(ctx, func(tx *db.Tx) error {
		return c.c.Operations.EndTx(ctx, tx, x.Operation, "Completed", why, result)
	})
}
