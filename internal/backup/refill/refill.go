// Package refill owns putting back what sites store while the installation runs, where that alone was lost: from their own backups or
// from one of the whole installation. A restore into a data directory doesn't reach the volumes of a cluster.
package refill

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Config holds what Refills need.
type Config struct {
	DB         *db.DB
	Operations *operation.Operations
	Places     *placement.Places // nil: there is no other node
	Storage    snapshot.Storage  // nil: this node runs no programs
	Programs   Programs
	Sites      Sites
	// Copies has the backups of the whole installation.
	Copies Copies
	Log    *slog.Logger // Optional.
}

// Programs are those of sites.
type Programs interface {
	// Renew ends a site's programs: they start again with what is stored then.
	Renew(ctx context.Context, id site.ID) error
}

// Sites has sites' own backups; backup.Backups is one.
type Sites interface {
	NewestStored(ctx context.Context, id site.ID) (*backup.Stored, error)
}

// Copies opens places of backups of the whole installation.
type Copies interface {
	// Read opens the repository at a place to read it, until done is called.
	Read(from string) (r *repository.Repository, done func(), err error)
}

// Refills put back what sites store. They are safe for concurrent use.
type Refills struct{ c Config }

// New returns Refills. It starts nothing: Work registers their job.
func New(c Config) *Refills {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Refills{c}
}

// Refill is the job. Site after site is restored at the node that has it, so the job moves; the operation's step says how far it is.
type Refill struct {
	Operation operation.ID
	From      string    // place of backups of the installation; empty: each site's own newest backup
	Copy      backup.ID // of the installation; empty: the newest
}

// Kind names the job.
func (Refill) Kind() string { return "backup.refill" }

// Work registers the job.
func (r *Refills) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Timeout:  24 * time.Hour,
		Attempts: 20,
		Backoff:  func(int) time.Duration { return 10 * time.Second },
		GivenUp: func(ctx context.Context, args []byte, why error) error {
			var x Refill
			if err := json.Unmarshal(args, &x); err != nil {
				return err
			}
			return r.end(ctx, x, why.Error(), nil)
		},
	}, r.refill)
}

// BeginTx has what sites store replaced by what backups have.
func BeginTx(ctx context.Context, tx *db.Tx, ops *operation.Operations, from string, id backup.ID) (operation.Operation, error) {
	o, err := ops.OpenTx(ctx, tx, backup.OfInstallation, operation.NewOperation{Kind: "installation.refill", Unique: "installation.refill"})
	if err != nil {
		return o, err
	}
	_, err = job.Enqueue(ctx, tx, Refill{o.ID, from, id}, job.Options{Queue: backup.QueueName, Group: "installation"})
	return o, err
}

// Done is the result of such an operation, and its step while it goes on.
type Done struct {
	Copy     backup.ID `json:"copy,omitempty"` // of the installation
	Sites    int       `json:"sites"`          // whose storage is that of the backup
	Without  int       `json:"without"`        // sites that have no backup of their files
	Problems []string  `json:"problems,omitempty"`

	After site.ID `json:"after,omitempty"` // the last site that was looked at
}

func (r *Refills) end(ctx context.Context, x Refill, why string, result any) error {
	return r.c.DB.Write(ctx, func(tx *db.Tx) error { return r.c.Operations.EndTx(ctx, tx, x.Operation, "Completed", why, result) })
}

func (r *Refills) refill(ctx context.Context, x Refill, _ int64) error {
	o, err := r.c.Operations.Get(ctx, backup.OfInstallation, x.Operation)
	if err != nil || o.CompletedAt != 0 {
		return err
	}
	var done Done
	if o.Step != "" {
		if err := json.Unmarshal([]byte(o.Step), &done); err != nil {
			return fmt.Errorf("read how far it is: %w", err)
		}
	}
	moved, err := r.sites(ctx, x, &done)
	why := ""
	switch {
	case moved != nil:
		return moved
	case err != nil && ctx.Err() != nil:
		return err // the service is stopping: it goes on later
	case err != nil:
		why = words(err)
		r.c.Log.ErrorContext(ctx, "storage of sites not put back", "err", err)
	default:
		r.c.Log.InfoContext(ctx, "storage of sites put back", "backup", done.Copy, "sites", done.Sites, "problems", len(done.Problems))
	}
	done.After = ""
	return r.end(ctx, x, why, done)
}

// words returns what the operator reads of an error.
func words(err error) string {
	if f := fault.As(err); f != nil {
		return fault.Sentence(err).Error()
	}
	return err.Error()
}

// sites goes on with the sites that are left. moved is what the job returns where it has to go on elsewhere, or later.
func (r *Refills) sites(ctx context.Context, x Refill, done *Done) (moved, err error) {
	if r.c.Storage == nil {
		return nil, errors.New("the node that was asked runs no programs")
	}
	open, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	all, from := open, r.c.Sites.NewestStored
	if x.From != "" {
		repo, closes, err := r.c.Copies.Read(x.From)
		if err != nil {
			return nil, err
		}
		defer closes()
		c, err := backup.OpenCopy(ctx, repo, cmp.Or(done.Copy, x.Copy))
		if err != nil {
			return nil, err
		}
		stored, err := c.Stored()
		if err != nil {
			return nil, err
		}
		done.Copy = c.Copy.ID
		all = slices.Sorted(maps.Keys(stored))
		from = func(_ context.Context, id site.ID) (*backup.Stored, error) {
			if _, there := slices.BinarySearch(open, id); !there {
				return nil, fault.Missing("site")
			}
			return stored[id], nil
		}
	}
	for i, id := range all {
		if id <= done.After {
			continue
		}
		stored, err := from(ctx, id)
		switch {
		case err != nil:
		case stored == nil:
			done.Without++
		case len(stored.Folders) > 0:
			if moved, err = r.site(ctx, stored, id); moved != nil {
				return moved, nil
			}
			if err == nil {
				done.Sites++
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			done.Problems = append(done.Problems, fmt.Sprintf("Site %s: %s", id, words(err)))
			r.c.Log.WarnContext(ctx, "storage of a site not put back", "site", id, "err", err)
		}
		done.After = id
		if err := r.advance(ctx, x.Operation, i+1, len(all), done); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// open lists the sites that are not deleted.
func (r *Refills) open(ctx context.Context) ([]site.ID, error) {
	rows, err := r.c.DB.Query(ctx, `SELECT id FROM open_sites`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
	slices.Sort(list)
	return list, err
}

func (r *Refills) advance(ctx context.Context, op operation.ID, n, all int, done *Done) error {
	step, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return r.c.DB.Write(ctx, func(tx *db.Tx) error {
		text := fmt.Sprintf("Restoring storage: %d of %d sites", n, all)
		return r.c.Operations.AdvanceTx(ctx, tx, op, float64(n)/float64(all), string(step), text)
	})
}

// site puts one site's folders back, where this is the node for that.
func (r *Refills) site(ctx context.Context, stored *backup.Stored, id site.ID) (moved, err error) {
	err = r.c.Places.Here(ctx, id)
	if err == nil {
		err = r.c.Places.Follow(r.c.Places.Take(ctx, id, placement.Files))
	}
	switch {
	case err != nil && fault.As(err) == nil:
		return err, nil
	case err != nil:
		return nil, err
	}
	return nil, stored.PutBack(ctx, r.c.Storage, id, r.c.Programs.Renew)
}
