// Package operation owns the progress of long-running work other than deployments: its kind, progress and result.
//
// A service opens an operation in the transaction that enqueues its job (OpenTx), updates its progress (AdvanceTx) and
// ends it once (EndTx). Clients poll it until it has ended. The package doesn't perform the work and knows no service.
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

// Status is the state of an operation.
type Status string

// The last three states are final.
const (
	Pending  Status = "pending"
	Running  Status = "running"
	Success  Status = "success"
	Failed   Status = "failed"
	Canceled Status = "canceled"
)

// Operation is an operation as its owner sees it.
type Operation struct {
	ID          ID
	Owner       account.OwnerID
	Site        id.Site // the site concerned; empty: none, or several
	Kind        string  // such as webhook.redeliver
	Status      Status
	Progress    float64 // 0 to 1; -1: unknown
	Step        string  // checkpoint from which the worker resumes after a crash
	Message     string
	Error       string
	Result      json.RawMessage // nil if none
	CreatedAt   db.Time
	CompletedAt db.Time
}

// NewOperation is the input of OpenTx.
type NewOperation struct {
	Kind   string
	Site   id.Site // Optional.
	Unique string  // Optional: OpenTx returns a Conflict while another operation with this key is open.
	Apart  string  // Optional: OpenTx returns a Conflict while an operation whose Unique is this key is open.
}

// Config holds the dependencies of Operations. DB is required.
type Config struct {
	DB   *db.DB
	Log  *slog.Logger
	Keep time.Duration // how long ended operations are kept. Optional: 0 means 30 days.
}

// Operations is the service. It is safe for concurrent use.
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
	err = row.Scan(&o.ID, &o.Owner, &o.Site, &o.Kind, &o.Status, &progress, &o.Step, &o.Message, &o.Error, &result,
		&o.CreatedAt, &o.CompletedAt)
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

// OpenTx creates a pending operation in the caller's transaction.
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

// GetTx returns an operation of any owner, for the job that performs it, and locks its row.
func (o *Operations) GetTx(ctx context.Context, tx *db.Tx, id ID) (Operation, error) {
	return scan(tx.QueryRow(ctx, `UPDATE operations SET id = id WHERE id = $1 RETURNING `+columns, id))
}

// AdvanceTx records progress from 0 to 1, or -1 if unknown. step is the checkpoint that the worker reads after a crash.
// It does nothing if the operation has ended.
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

// EndTx ends an operation, once. failure is a sentence for its owner, or empty after success.
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

// Open returns the owner's open operation with the Unique key, or a NotFound fault.
func (o *Operations) Open(ctx context.Context, owner account.OwnerID, unique string) (Operation, error) {
	return scan(o.c.DB.QueryRow(ctx,
		`SELECT `+columns+` FROM operations WHERE uniq = $1 AND uniq <> '' AND completed_at = 0 AND owner_id = $2`,
		unique, owner))
}

// UnderTx reports whether a site has an open operation.
func (o *Operations) UnderTx(ctx context.Context, tx *db.Tx, site id.Site) (bool, error) {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM operations WHERE site_id = $1 AND completed_at = 0`, site).Scan(&n); err != nil {
		return false, fmt.Errorf("count operations: %w", err)
	}
	return n > 0, nil
}

// List returns one page (from 1) of the operations of the owner's site, newest first, and their total number.
func (o *Operations) List(
	ctx context.Context, owner account.OwnerID, site id.Site, page, limit int,
) (list []Operation, total int, err error) {
	err = o.c.DB.Snapshot(ctx, func(r db.Reader) error {
		rows, err := r.Query(ctx,
			`SELECT `+columns+` FROM operations WHERE site_id = $1 AND owner_id = $2 ORDER BY id DESC LIMIT $3 OFFSET $4`,
			site, owner, limit, (page-1)*limit)
		if list, err = db.Collect(rows, err, scan); err != nil {
			return fmt.Errorf("list operations: %w", err)
		}
		return r.QueryRow(ctx, `SELECT count(*) FROM operations WHERE site_id = $1 AND owner_id = $2`, site, owner).Scan(&total)
	})
	return list, total, err
}

// Run deletes operations older than [Config.Keep] until ctx ends.
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

// batch is the number of rows deleted per transaction.
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
