package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
)

// Earlier versions had one server for all owners. What it holds is moved to the owners' own
// servers, an owner at a time: their programs wait meanwhile. Then it goes.

// sharedDir is where that server's files are.
func (d *Databases) sharedDir() string { return filepath.Join(d.c.Dir, "server") }

// shared returns that server while it is there, else nil.
func (d *Databases) shared() *server {
	d.servers.mu.Lock()
	defer d.servers.mu.Unlock()
	s := d.servers.list[d.servers.base]
	if s == nil || s.outside != nil {
		return nil
	}
	return s
}

// leaveShared moves all owners' databases to servers of their own. What can't be moved stays
// where it is, and is tried again after retry.
func (d *Databases) leaveShared(ctx context.Context) {
	const retry = time.Hour
	for from := d.shared(); from != nil && ctx.Err() == nil; {
		rows, err := d.c.DB.Query(
			ctx,
			`SELECT DISTINCT owner_id FROM databases WHERE server = $1 AND status <> 'deleting' ORDER BY owner_id`,
			from.name,
		)
		owners, err := db.Collect(rows, err, func(s db.Scanner) (o account.OwnerID, err error) { return o, s.Scan(&o) })
		left := err != nil
		for _, owner := range owners {
			if err := d.moveOwner(ctx, from, owner); err != nil && ctx.Err() == nil {
				d.c.Log.ErrorContext(
					ctx, "databases stay on the server that all owners share, and will be moved later", "owner", owner,
					"err", err,
				)
				left = true
			}
		}
		if n, err := d.held(ctx, from.name); err == nil && n == 0 {
			d.endShared(from)
			return
		}
		wait := 12 * d.c.Tick // what was moved is dropped there once oldLife has passed
		if left {
			wait = retry
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// endShared forgets the server. Its files go when it has fallen asleep: run removes them.
func (d *Databases) endShared(from *server) {
	d.servers.mu.Lock()
	delete(d.servers.list, from.name)
	d.servers.mu.Unlock()
	from.mu.Lock()
	running := from.running
	from.mu.Unlock()
	if !running {
		_ = os.RemoveAll(from.dir)
	}
}

// moveOwner moves an owner's databases. They keep their names and passwords, so that programs
// need not be started again; who connects meanwhile waits.
func (d *Databases) moveOwner(ctx context.Context, from *server, owner account.OwnerID) error {
	to, err := d.named(d.servers.base + "/" + string(owner))
	if err != nil {
		return err
	}
	moved := d.closeTo(owner)
	defer moved()
	rows, err := d.c.DB.Query(
		ctx,
		`SELECT `+columns+` FROM databases WHERE server = $1 AND owner_id = $2 AND status <> 'deleting'`,
		from.name,
		owner,
	)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return fmt.Errorf("list databases to move: %w", err)
	}
	for _, x := range list {
		d.c.Logs.Note(x.Site, "The database "+x.Name+" is being moved to a server of its owner's own")
		if err := d.move(ctx, from, to, x); err != nil {
			return fmt.Errorf("move database %s: %w", x.ID, err)
		}
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, x := range list {
			if _, err := tx.Exec(
				ctx, `UPDATE databases SET server = $2 WHERE id = $1 AND server = $3`, x.ID, to.name, from.name,
			); err != nil {
				return fmt.Errorf("note moved database: %w", err)
			}
			if err := noteTx(ctx, tx, x.Schema, from.name, db.Now().Add(oldLife)); err != nil {
				return fmt.Errorf("note moved database: %w", err)
			}
		}
		return nil
	})
}

// move copies a database from one server to another.
func (d *Databases) move(ctx context.Context, from, to *server, x Database) error {
	a, done, err := from.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	a.kick(ctx, x.Schema) // a statement may go on after its connection
	r, w := io.Pipe()
	dumped := make(chan error, 1)
	go func() {
		err := panics.Call(func() error { return d.dump(ctx, from, x, w) })
		w.CloseWithError(err)
		dumped <- err
	}()
	err = d.refill(ctx, to, x, r)
	r.CloseWithError(errors.New("the copy has ended"))
	if failed := <-dumped; failed != nil && err != nil {
		return failed
	}
	return err
}
