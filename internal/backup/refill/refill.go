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
	"slipway/internal/tenant/account"
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

// Sites has sites' own backups; [backup.Backups] is one.
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
			done, err := r.done(ctx, x)
			if err != nil {
				return err
			}
			return r.end(ctx, x, why.Error(), &done)
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
	Copy     backup.ID `json:"copy,omitempty"`     // of the installation
	Sites    int       `json:"sites"`              // whose storage is that of the backup
	Without  int       `json:"without"`            // sites that have no backup of their files
	Failed   int       `json:"failed"`             // sites that could not be restored
	Problems []string  `json:"problems,omitempty"` // why, of the first of them

	After     site.ID      `json:"after,omitempty"`     // the last site that was looked at
	Site      site.ID      `json:"site,omitempty"`      // the one that is being restored …
	Operation operation.ID `json:"operation,omitempty"` // … by an operation of its own, which keeps others of the site away
	Waits     db.Time      `json:"waits,omitempty"`     // since when another one of the next site does that
}

const (
	// maxProblems is how many sites' problems are told in words: all of it is written again for each site.
	maxProblems = 100
	// again is how soon it is looked whether another operation of a site has ended.
	again = 2 * time.Second
	// patience is how long that is waited for: one owner keeps the storage of all that follow back no longer.
	patience = 10 * time.Minute
)

// done reads how far an operation is.
func (r *Refills) done(ctx context.Context, x Refill) (done Done, err error) {
	o, err := r.c.Operations.Get(ctx, backup.OfInstallation, x.Operation)
	if err == nil && o.Step != "" {
		if err = json.Unmarshal([]byte(o.Step), &done); err != nil {
			err = fmt.Errorf("read how far it is: %w", err)
		}
	}
	return done, err
}

// end ends the operation, and that of the site at which it stopped.
func (r *Refills) end(ctx context.Context, x Refill, why string, done *Done) error {
	return r.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := r.endSiteTx(ctx, tx, done, "", why); err != nil {
			return err
		}
		result := Done{Copy: done.Copy, Sites: done.Sites, Without: done.Without, Failed: done.Failed, Problems: done.Problems}
		return r.c.Operations.EndTx(ctx, tx, x.Operation, "Completed", why, result)
	})
}

// endSiteTx ends the operation of the site that is being restored, if one is: that of another site than id was deleted meanwhile.
func (r *Refills) endSiteTx(ctx context.Context, tx *db.Tx, done *Done, id site.ID, why string) error {
	if done.Operation == "" {
		return nil
	}
	if done.Site != id {
		why = cmp.Or(why, "The site is not there any more")
	}
	return r.c.Operations.EndTx(ctx, tx, done.Operation, "Completed", why, map[string]any{"siteId": done.Site})
}

func (r *Refills) refill(ctx context.Context, x Refill, _ int64) error {
	o, err := r.c.Operations.Get(ctx, backup.OfInstallation, x.Operation)
	if err != nil || o.CompletedAt != 0 {
		return err
	}
	done, err := r.done(ctx, x)
	if err != nil {
		return err
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
		r.c.Log.InfoContext(ctx, "storage of sites put back", "backup", done.Copy, "sites", done.Sites, "failed", done.Failed)
	}
	return r.end(ctx, x, why, &done)
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
	all, from := slices.Sorted(maps.Keys(open)), r.c.Sites.NewestStored
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
			if open[id] == "" {
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
			if moved, err = r.site(ctx, x, stored, id, open[id], done); moved != nil {
				return moved, nil
			}
			if err == nil {
				done.Sites++
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		why := ""
		if err != nil {
			why = words(err)
			if done.Failed++; len(done.Problems) < maxProblems {
				done.Problems = append(done.Problems, fmt.Sprintf("Site %s: %s", id, why))
			}
			r.c.Log.WarnContext(ctx, "storage of a site not put back", "site", id, "err", err)
		}
		next := *done
		next.After, next.Site, next.Operation, next.Waits = id, "", "", 0
		err = r.c.DB.Write(ctx, func(tx *db.Tx) error {
			if err := r.endSiteTx(ctx, tx, done, id, why); err != nil {
				return err
			}
			return r.advanceTx(ctx, tx, x, float64(i+1)/float64(len(all)), &next, fmt.Sprintf("Restoring storage: %d of %d sites", i+1, len(all)))
		})
		if err != nil {
			return err, nil // the same site once more
		}
		*done = next
	}
	return nil, nil
}

// open lists the sites that are not deleted, with their owners.
func (r *Refills) open(ctx context.Context) (map[site.ID]account.OwnerID, error) {
	owners := map[site.ID]account.OwnerID{}
	rows, err := r.c.DB.Query(ctx, `SELECT id, owner_id FROM open_sites`)
	_, err = db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) {
		var owner account.OwnerID
		err = s.Scan(&id, &owner)
		owners[id] = owner
		return id, err
	})
	return owners, err
}

func (r *Refills) advanceTx(ctx context.Context, tx *db.Tx, x Refill, progress float64, done *Done, message string) error {
	step, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return r.c.Operations.AdvanceTx(ctx, tx, x.Operation, progress, string(step), message)
}

// claim opens the operation of a site that is to be restored. moved is what the job returns while another one of the site runs, whose
// files may be in the same place.
func (r *Refills) claim(ctx context.Context, x Refill, id site.ID, owner account.OwnerID, done *Done) (moved, err error) {
	if done.Operation != "" && done.Site == id { // of an attempt that a crash ended
		return nil, nil
	}
	next := *done
	next.Site, next.Waits = id, 0
	message := "Restoring storage of " + string(id)
	err = r.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := r.endSiteTx(ctx, tx, done, id, ""); err != nil {
			return err
		}
		o, err := r.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
			Kind: "backup.restore", Site: id, Unique: backup.RestoreKey(id), Apart: backup.ChangeKey(id),
		})
		if err != nil {
			return err
		}
		next.Operation = o.ID
		if err := r.c.Operations.AdvanceTx(ctx, tx, o.ID, -1, "", "The operator restores what the site stores"); err != nil {
			return err
		}
		return r.advanceTx(ctx, tx, x, -1, &next, message)
	})
	switch now := db.Now(); {
	case err == nil:
		*done = next
		return nil, nil
	case !fault.Is(err, fault.Conflict):
		return err, nil
	case done.Waits == 0:
		next = *done
		next.Waits = now
		err := r.c.DB.Write(ctx, func(tx *db.Tx) error {
			return r.advanceTx(ctx, tx, x, -1, &next, message+", once its other operation ends")
		})
		return cmp.Or(err, job.Later(again)), nil
	case now.Sub(done.Waits) < patience:
		return job.Later(again), nil
	}
	return nil, err
}

// site puts one site's folders back, where this is the node for that.
func (r *Refills) site(
	ctx context.Context, x Refill, stored *backup.Stored, id site.ID, owner account.OwnerID, done *Done,
) (moved, err error) {
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
	if moved, err = r.claim(ctx, x, id, owner, done); moved != nil || err != nil {
		return moved, err
	}
	err = stored.PutBack(ctx, r.c.Storage, id, func(ctx context.Context, id site.ID) error {
		moved = r.c.Programs.Renew(ctx, id) // by then what was stored is replaced: that is not told as a site that kept it
		return moved
	})
	return moved, err
}
