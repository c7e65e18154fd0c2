// Package operation owns the progress of work that outlives a request and is not a
// deployment: its kind, progress and result.
//
// A service opens an operation in the transaction that enqueues its job (OpenTx), updates its
// progress (AdvanceTx) and ends it once (EndTx). Clients poll it until it has ended. The
// package doesn't do the work and knows no service.
package operation

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// ID names an operation: "op_" and 26 characters.
type ID = id.Operation

// Status says where an operation stands.
type Status string

// The states. The last three are final.
const (
	Pending  Status = "pending"
	Running  Status = "running"
	Success  Status = "success"
	Failed   Status = "failed"
	Canceled Status = "canceled"
)

// Operation is one operation as its owner sees it.
type Operation struct {
	ID          ID
	Owner       account.OwnerID
	Site        id.Site // id of the site that it concerns; empty: none, or several
	Kind        string  // such as webhook.redeliver
	Status      Status
	Progress    float64 // 0 to 1; -1: unknown
	Step        string  // where its worker goes on after a crash
	Message     string
	Error       string
	Result      json.RawMessage // nil: none
	CreatedAt   db.Time
	CompletedAt db.Time
}

// NewOperation holds what an operation is opened with.
type NewOperation struct {
	Kind   string
	Site   id.Site // Optional.
	Unique string  // Optional: a second one with the same key is a Conflict while the first is open
	Apart  string  // Optional: key of others; while one with it is open this one is a Conflict
}

// Config holds what operations stand on. DB is required.
type Config struct {
	DB   *db.DB
	Log  *slog.Logger
	Keep time.Duration // how long ended ones are remembered. Optional: 0 means 30 days.
}

// Operations holds all operations. It is safe for concurrent use.
type Operations struct{ c Config }

// New returns Operations. It starts nothing.
func New(c Config) *Operations {
	if c.Keep == 0 {
		c.Keep = 30 * 24 * time.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Operations{c}
}

const columns = `id, owner_id, site_id, kind, status, progress, step, message, error, result, created_at, completed_at`

func scan(row db.Scanner) (o Operation, err error) {
	var progress int64
	var result string
	err = row.Scan(
		&o.ID, &o.Owner, &o.Site, &o.Kind, &o.Status, &progress, &o.Step, &o.Message, &o.Error, &result,
		&o.CreatedAt, &o.CompletedAt,
	)
	if errors.Is(err, sql.ErrNoRows) {
		return Operation{}, fault.Missing("operation")
	}
	if err != nil {
		return Operation{}, fmt.Errorf("read operation: %w", err)
	}
	o.Progress = float64(progress) / 1000
	if progress < 0 {
		o.Progress = -1
	}
	if result != "" {
		o.Result = json.RawMessage(result)
	}
	return o, nil
}

// OpenTx writes a pending operation in the caller's transaction.
func (o *Operations) OpenTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewOperation) (Operation, error) {
	for _, key := range []string{n.Unique, n.Apart} {
		if key == "" {
			continue
		}
		var id ID
		err := tx.QueryRow(ctx, `SELECT id FROM operations WHERE uniq = $1 AND completed_at = 0`, key).Scan(&id)
		switch {
		case err == nil && key == n.Unique:
			return Operation{}, running(id)
		case err == nil:
			return Operation{}, fault.New(fault.Conflict, "operation_running", "Another operation of this site is running",
				"wait for "+string(id)+" to finish")
		case !errors.Is(err, sql.ErrNoRows):
			return Operation{}, fmt.Errorf("open operation: %w", err)
		}
	}
	op := Operation{ID: db.ID[ID]("op"), Owner: owner, Site: n.Site, Kind: n.Kind, Status: Pending, Progress: -1, CreatedAt: db.Now()}
	_, err := tx.Exec(ctx, `
		INSERT INTO operations (id, owner_id, site_id, kind, uniq, status, progress, step, message, error, result, created_at, completed_at)
		VALUES ($1, $2, $3, $4, $5, $6, -1, '', '', '', '', $7, 0)`, op.ID, owner, n.Site, n.Kind, n.Unique, op.Status, op.CreatedAt)
	if db.Duplicate(err) {
		return Operation{}, running("")
	}
	if err != nil {
		return Operation{}, fmt.Errorf("open operation: %w", err)
	}
	return op, nil
}

func running(id ID) error {
	f := fault.New(fault.Conflict, "operation_running", "An operation of this kind is already running", "wait until it finishes")
	if id != "" {
		f.Details = "wait for " + string(id) + " to finish"
	}
	return f
}

// GetTx returns an operation whoever owns it, for the job that does it, and holds its row.
func (o *Operations) GetTx(ctx context.Context, tx *db.Tx, id ID) (Operation, error) {
	return scan(tx.QueryRow(ctx, `UPDATE operations SET id = id WHERE id = $1 RETURNING `+columns, id))
}

// AdvanceTx notes how far an operation is, from 0 to 1, or -1 where that is unknown. step
// is what its worker reads again after a crash. An operation that has ended stays so.
func (o *Operations) AdvanceTx(ctx context.Context, tx *db.Tx, id ID, progress float64, step, message string) error {
	thousandths := int64(-1)
	if progress >= 0 {
		thousandths = int64(min(progress, 1) * 1000)
	}
	_, err := tx.Exec(ctx, `
		UPDATE operations SET status = 'running', progress = $2, step = $3, message = $4
		WHERE id = $1 AND completed_at = 0`, id, thousandths, step, message)
	if err != nil {
		return fmt.Errorf("advance operation: %w", err)
	}
	return nil
}

// EndTx writes the end of an operation, once. failure is a sentence for its owner, and
// empty after a success.
func (o *Operations) EndTx(ctx context.Context, tx *db.Tx, id ID, message, failure string, result any) error {
	status, text := Success, ""
	if failure != "" {
		status = Failed
	}
	if result != nil {
		b, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("end operation: %w", err)
		}
		text = string(b)
	}
	_, err := tx.Exec(ctx, `
		UPDATE operations SET status = $2, progress = CASE WHEN $2 = 'success' THEN 1000 ELSE progress END, message = $3,
		error = $4, result = $5, completed_at = $6
		WHERE id = $1 AND completed_at = 0`, id, status, message, failure, text, db.Now())
	if err != nil {
		return fmt.Errorf("end operation: %w", err)
	}
	return nil
}

// Get returns the owner's operation, or a NotFound fault.
func (o *Operations) Get(ctx context.Context, owner account.OwnerID, id ID) (Operation, error) {
	return scan(o.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM operations WHERE id = $1 AND owner_id = $2`, id, owner))
}

// Open returns the owner's operation that is open under a key of NewOperation.Unique, or a
// NotFound fault.
func (o *Operations) Open(ctx context.Context, owner account.OwnerID, unique string) (Operation, error) {
	return scan(o.c.DB.QueryRow(
		ctx, `SELECT `+columns+` FROM operations WHERE uniq = $1 AND uniq <> '' AND completed_at = 0 AND owner_id = $2`,
		unique, owner,
	))
}

// UnderTx reports whether an operation of a site has not ended yet.
func (o *Operations) UnderTx(ctx context.Context, tx *db.Tx, site id.Site) (bool, error) {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM operations WHERE site_id = $1 AND completed_at = 0`, site).Scan(&n); err != nil {
		return false, fmt.Errorf("count operations: %w", err)
	}
	return n > 0, nil
}

// List returns one page (from 1) of the operations of the owner's site, the newest first,
// and how many there are.
func (o *Operations) List(
	ctx context.Context, owner account.OwnerID, site id.Site, page, limit int,
) (list []Operation, total int, err error) {
	err = o.c.DB.Snapshot(ctx, func(r db.Reader) error {
		rows, err := r.Query(
			ctx,
			`SELECT `+columns+` FROM operations WHERE site_id = $1 AND owner_id = $2 ORDER BY id DESC LIMIT $3 OFFSET $4`,
			site, owner, limit, (page-1)*limit,
		)
		if list, err = db.Collect(rows, err, scan); err != nil {
			return fmt.Errorf("list operations: %w", err)
		}
		return r.QueryRow(ctx, `SELECT count(*) FROM operations WHERE site_id = $1 AND owner_id = $2`, site, owner).Scan(&total)
	})
	return list, total, err
}

// Run deletes operations that ended longer ago than Config.Keep, until ctx ends.
func (o *Operations) Run(ctx context.Context) error {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		if err := o.purge(ctx); err != nil && ctx.Err() == nil {
			o.c.Log.ErrorContext(ctx, "operations not purged", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-hourly.C:
		}
	}
}

// batch is how many rows a purge removes per transaction.
const batch = 500

func (o *Operations) purge(ctx context.Context) error {
	for more := true; more; {
		err := o.c.DB.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx, `
				DELETE FROM operations WHERE id IN (SELECT id FROM operations WHERE completed_at > 0 AND completed_at < $1
				ORDER BY completed_at LIMIT $2)`,
				db.Now().Add(-o.c.Keep), batch)
			more = n == batch
			return err
		})
		if err != nil {
			return fmt.Errorf("purge operations: %w", err)
		}
	}
	return nil
}
