package idempotency

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// errDropped is a Conflict, since the request took effect and must not be repeated.
var errDropped = fault.New(fault.Conflict, "idempotency_answer_dropped",
	"The request was already completed and its response is no longer stored",
	"check the result; send a new Idempotency-Key to repeat the request")

// row is a response's size as counted against its owner's limits.
type row struct {
	owner string // empty: stored by a version that didn't count responses
	size  int64
}

func scanRow(r db.Scanner) (x row, err error) { return x, r.Scan(&x.owner, &x.size) }

func (k Key) owner() string { return cmp.Or(k.Owner, k.Scope) }

// store writes the response into its claimed row and enforces the owner's limits: too many rows is a Limited fault, and
// too many bytes drops the oldest responses.
func (a *Answers) store(ctx context.Context, tx *db.Tx, k Key, answer []byte) error {
	packed, err := pack(answer, k.Request)
	if err != nil {
		return fmt.Errorf("store answer: %w", err)
	}
	sealed := a.seal.Seal(packed, k.purpose())
	if int64(len(sealed)) > a.maxBytes {
		sealed = "" // drop it immediately
	}
	if _, err := tx.Exec(ctx, `
		UPDATE idempotent_answers SET answer = $5, size = $6
		WHERE scope = $1 AND method = $2 AND path = $3 AND key = $4`,
		k.Scope, k.Method, k.Path, k.Key, sealed, len(sealed)); err != nil {
		return fmt.Errorf("store answer: %w", err)
	}
	var rows, bytes int64
	err = tx.QueryRow(ctx, `
		INSERT INTO idempotency_usage (owner_id, answers, bytes) VALUES ($1, 1, $2)
		ON CONFLICT (owner_id) DO UPDATE SET answers = idempotency_usage.answers + 1, bytes = idempotency_usage.bytes + excluded.bytes
		RETURNING answers, bytes`, k.owner(), len(sealed)).Scan(&rows, &bytes)
	switch {
	case err != nil:
		return fmt.Errorf("count answers: %w", err)
	case rows > a.maxRows:
		return a.tooMany(ctx, tx, k.owner())
	case bytes > a.maxBytes:
		return a.drop(ctx, tx, k.owner(), bytes-a.maxBytes)
	}
	return nil
}

// tooMany returns the Limited fault of an owner with the maximum number of rows, until the oldest expires.
func (a *Answers) tooMany(ctx context.Context, tx *db.Tx, owner string) error {
	var oldest db.Time
	if err := tx.QueryRow(ctx, `SELECT min(created_at) FROM idempotent_answers WHERE owner_id = $1`, owner).Scan(&oldest); err != nil {
		return fmt.Errorf("find oldest answer: %w", err)
	}
	return &fault.Error{
		Kind: fault.Limited, Message: "Too many Idempotency-Keys are in use",
		Details: fmt.Sprintf("at most %d are remembered per user, each for %s; send the request without one or wait", a.maxRows, a.keep),
		Code:    "too_many_idempotency_keys", RetryAfter: max(time.Second, oldest.Add(a.keep).Sub(db.Now())),
	}
}

// drop empties the owner's oldest responses until bytes are free, and some more to avoid doing this for every response.
// The rows stay, so that their requests don't take effect again. The transaction holds the lock of the owner's row in
// idempotency_usage, so no other changes the owner's use.
func (a *Answers) drop(ctx context.Context, tx *db.Tx, owner string, bytes int64) error {
	bytes += a.maxBytes / 64
	for bytes > 0 {
		rows, err := tx.Query(ctx, `
			SELECT size, created_at FROM idempotent_answers
			WHERE owner_id = $1 AND size > 0 ORDER BY created_at LIMIT 1000`, owner)
		type old struct {
			size int64
			at   db.Time
		}
		list, err := db.Collect(rows, err, func(r db.Scanner) (o old, err error) { return o, r.Scan(&o.size, &o.at) })
		if err != nil || len(list) == 0 {
			return wrap("find oldest answers", err)
		}
		var freed int64
		var until db.Time
		for _, o := range list {
			if freed >= bytes {
				break
			}
			freed, until = freed+o.size, o.at
		}
		// Sum again, since the list may contain only some of the rows of a millisecond.
		const these = ` WHERE owner_id = $1 AND size > 0 AND created_at <= $2`
		if err := tx.QueryRow(ctx, `SELECT SUM(size) FROM idempotent_answers`+these, owner, until).Scan(&freed); err != nil {
			return wrap("count oldest answers", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE idempotent_answers SET answer = '', size = 0`+these, owner, until); err != nil {
			return wrap("drop oldest answers", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE idempotency_usage SET bytes = bytes - $2 WHERE owner_id = $1`, owner, freed); err != nil {
			return wrap("count answers", err)
		}
		bytes -= freed
	}
	return nil
}

// forget subtracts deleted rows from their owners' use.
func forget(ctx context.Context, tx *db.Tx, gone []row) error {
	type use struct{ rows, bytes int64 }
	by := map[string]use{}
	for _, g := range gone {
		if g.owner != "" {
			by[g.owner] = use{by[g.owner].rows + 1, by[g.owner].bytes + g.size}
		}
	}
	for owner, u := range by {
		if _, err := tx.Exec(ctx,
			`UPDATE idempotency_usage SET answers = answers - $2, bytes = bytes - $3 WHERE owner_id = $1`, owner,
			u.rows, u.bytes); err != nil {
			return wrap("count answers", err)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM idempotency_usage WHERE owner_id = $1 AND answers <= 0`, owner); err != nil {
			return wrap("count answers", err)
		}
	}
	return nil
}
