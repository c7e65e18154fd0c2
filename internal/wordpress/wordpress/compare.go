package wordpress

import (
	"context"
	"errors"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/difference"
)

// Comparison is how two WordPress sites differ, as both say right now.
type Comparison struct {
	From, To Side
	// Since is when the content of both was the same: at the last clone or push of a database between them.
	// 0: it never was, as far as is known.
	Since   db.Time
	Options []string             // names of options that differ; nil where that is unknown
	Known   bool                 // whether Options is known
	Files   *difference.FileDiff // nil where that is unknown
}

// Side is one of two sites that are compared.
type Side struct {
	Site  site.Site
	State State
	Err   error // a fault: it doesn't say how it is
}

// Lost returns what of the second site is newer than the time when both were the same: a push replaces it.
func (c Comparison) Lost() []difference.Amount {
	if c.Since == 0 {
		return nil
	}
	to := c.To.State.Content
	out := slices.Clone(to.Posts)
	for _, x := range []struct {
		kind, name string
		of         *difference.Amount
	}{{"comment", "Comments", to.Comments}, {"user", "Users", to.Users}} {
		if x.of != nil {
			a := *x.of
			a.Type, a.Name = x.kind, x.name
			out = append(out, a)
		}
	}
	n := 0
	for _, a := range out {
		if a.Newer > 0 {
			out[n] = a
			n++
		}
	}
	return out[:n]
}

// compareAsk is how long two sites have to say how they are.
const compareAsk = 25 * time.Second

// newComparing bounds comparisons: each wakes two sites and reads their files.
func newComparing() *fair.Pool {
	// share: total 4 comparisons; owner 1; edge others wait, 4 of one owner and 64 in all
	return fair.New(fair.Config{Places: 4, Owner: 1, Waiting: 64, OwnerWaiting: 4})
}

// Compare asks two of the owner's WordPress sites how they are, waking them, and compares what they say and their
// files. What one of them doesn't say is unknown.
func (w *WordPress) Compare(ctx context.Context, owner account.OwnerID, from, to site.ID) (c Comparison, err error) {
	if from == to {
		return c, fault.New(fault.Invalid, "invalid_comparison", "A site can't be compared with itself", "to names another site")
	}
	ctx, done := context.WithTimeout(ctx, compareAsk)
	defer done()
	if c.From.Site, err = w.c.Sites.Get(ctx, owner, from); err != nil {
		return c, err
	}
	if c.To.Site, err = w.c.Sites.Get(ctx, owner, to); err != nil {
		return c, err
	}
	release, err := w.comparing.Take(ctx, fair.Who{Owner: string(owner), Site: string(to)})
	if err != nil {
		return c, &fault.Error{
			Kind: fault.Limited, Message: "Too many comparisons", Details: "wait until one of them finishes", Code: "too_many_comparisons",
			RetryAfter: 5 * time.Second,
		}
	}
	defer release()
	if c.Since, err = w.sameSince(ctx, from, to); err != nil {
		return c, err
	}
	var all panics.Group
	for _, s := range []*Side{&c.From, &c.To} {
		all.Go(func() {
			_, x, err := w.ofOwner(ctx, owner, s.Site.ID)
			var f facts
			if err == nil {
				f, err = w.learnSince(ctx, s.Site, c.Since, true)
			}
			if err == nil {
				s.State, err = w.state(ctx, owner, x, f)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				err = fault.New(fault.Unavailable, "wordpress_failed", "WordPress does not respond", "it took over 25 seconds")
			}
			s.Err = err
		})
	}
	var filesErr error
	all.Go(func() { c.Files, filesErr = difference.Files(ctx, w.tree(c.From.Site), w.tree(c.To.Site)) })
	all.Wait()
	for _, err := range []error{c.From.Err, c.To.Err} {
		if err != nil && fault.As(err) == nil {
			return c, err
		}
	}
	if filesErr != nil {
		w.c.Log.WarnContext(ctx, "files of two sites could not be compared", "from", from, "to", to, "err", filesErr)
	}
	a, b := c.From.State.Content.Options, c.To.State.Content.Options
	if c.Known = a != nil && b != nil; c.Known {
		c.Options = a.Differing(b)
	}
	return c, nil
}

// sameSince returns when two sites had the same content: one of them was cloned from the other, or its database
// was pushed to it.
func (w *WordPress) sameSince(ctx context.Context, a, b site.ID) (at db.Time, err error) {
	err = w.c.DB.QueryRow(ctx, `
		SELECT COALESCE(MAX(CASE WHEN synced_at > 0 THEN synced_at ELSE created_at END), 0) FROM wordpress_sites
		WHERE site_id = $1 AND origin = $2 OR site_id = $2 AND origin = $1`, a, b).Scan(&at)
	return at, err
}

// setSyncedTx notes that the database of a site is now that of another one of the time at, where one is the clone of the
// other.
func (w *WordPress) setSyncedTx(ctx context.Context, tx *db.Tx, a, b site.ID, at db.Time) error {
	_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET synced_at = $3 WHERE site_id = $1 AND origin = $2 OR site_id = $2 AND origin = $1`, a,
		b, at)
	return err
}
