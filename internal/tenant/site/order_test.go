package site_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A machine that hangs inside a transaction that creates or changes a site doesn't block other accounts' sites.
func TestStalledTransaction(t *testing.T) {
	t.Parallel()
	r := open(t)
	if r.db.Single() {
		t.Skip("SQLite writes one transaction at a time")
	}
	had := r.create(t, "ada", "had")
	stalled, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(stalled) })
	go func() {
		ended <- r.db.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := r.CreateTx(t.Context(), tx, "ada", site.NewSite{Name: "stalled", Type: "static", Repository: "git.test/acme/stalled"}); err != nil {
				return err
			}
			if err := r.DeleteTx(t.Context(), tx, "ada", had.ID); err != nil {
				return err
			}
			once()
			<-goOn
			return nil
		})
	}()
	<-stalled
	other := r.create(t, "bob", "other") // would fail after lock_timeout
	r.write(t, func(tx *db.Tx) error { return r.DeleteTx(t.Context(), tx, "bob", other.ID) })
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Versions become visible in order, so that a reader of versions above the last one it saw misses none.
func TestVersionsInOrder(t *testing.T) {
	t.Parallel()
	r := open(t)
	const writers, each = 6, 15
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	seen := map[string]bool{}
	read := make(chan error, 1)
	go func() {
		var above int64
		for len(seen) < writers*each && ctx.Err() == nil {
			rows, err := r.db.Query(ctx, `SELECT host_label, version FROM live WHERE version > $1 ORDER BY version`, above)
			_, err = db.Collect(rows, err, func(s db.Scanner) (struct{}, error) {
				var label string
				err := s.Scan(&label, &above)
				seen[label] = true
				return struct{}{}, err
			})
			if err != nil {
				read <- err
				return
			}
		}
		read <- ctx.Err()
	}()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				err := r.db.Write(ctx, func(tx *db.Tx) error {
					_, err := r.CreateTx(ctx, tx, account.OwnerID(fmt.Sprintf("owner%d", w)),
						site.NewSite{Name: fmt.Sprintf("w%dn%d", w, n), Type: "static", Repository: "git.test/acme/x"})
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := <-read; err != nil || len(seen) != writers*each {
		t.Errorf("%d of %d seen: %v", len(seen), writers*each, err)
	}
	var zero int
	if err := r.db.QueryRow(t.Context(), `SELECT count(*) FROM live WHERE version = 0`).Scan(&zero); err != nil || zero != 0 {
		t.Errorf("%d without a version, %v", zero, err)
	}
}
