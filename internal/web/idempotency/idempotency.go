// Package idempotency owns stored responses, so that a repeated request takes effect once.
//
// A request's effect and its response are one transaction: a crash keeps both or neither, and of two concurrent
// requests the second waits for the first and gets its response. Responses are stored encrypted for a day, since they
// can contain a new key's secret. Errors are never stored, so a failed request can be retried with the same key.
//
// Storage per owner is limited (usage.go): parts of a response that repeat the request are stored as references, and
// the oldest responses are dropped when they exceed the limit. A request whose response was dropped still takes effect
// only once.
package idempotency

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
)

type Config struct {
	DB    *db.DB
	Seal  *seal.Sealer
	Log   *slog.Logger
	Keep  time.Duration // Optional: 0 means 24h.
	Rows  int64         // responses per owner. Optional: 0 means 150,000, which allows 100 requests a minute all day.
	Bytes int64         // bytes of responses per owner. Optional: 0 means 64 MiB.
}

// Answers stores responses. It is safe for concurrent use.
type Answers struct {
	db   *db.DB
	seal *seal.Sealer
	log  *slog.Logger
	keep time.Duration

	maxRows, maxBytes int64 // per owner
}

// New returns Answers. It starts nothing.
func New(c Config) *Answers {
	return &Answers{
		c.DB, c.Seal, cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Keep, 24*time.Hour),
		cmp.Or(c.Rows, 150_000), cmp.Or(c.Bytes, 64<<20),
	}
}

// Key identifies a request. The same key in another scope is another request.
type Key struct {
	Scope  string // a user or a deploy hook
	Method string
	Path   string
	Key    string // from the client: 1 to 255 printable ASCII characters; empty: store nothing

	Owner   string // owner whose limits apply. Optional: empty means Scope.
	Request []byte // body, whose repeated parts aren't stored with the response. Optional.
}

func (k Key) purpose() string {
	return "answer\x00" + k.Scope + "\x00" + k.Method + "\x00" + k.Path + "\x00" + k.Key
}

// Check returns an Invalid fault for a malformed key.
func Check(key string) error {
	odd := strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r > 0x7e })
	if odd || len(key) < 1 || len(key) > 255 {
		return fault.New(fault.Invalid, "invalid_idempotency_key", "Invalid Idempotency-Key",
			"a key is 1 to 255 printable ASCII characters, such as a UUID")
	}
	return nil
}

// errReused is a Conflict, since our contract doesn't have status 422, which the IETF draft uses.
var errReused = fault.New(fault.Conflict, "idempotency_key_reused", "Idempotency-Key was already used with a different request",
	"send the same request again, or a new key")

// Once runs fn in a transaction and stores its response, or returns the stored response with replayed true. The
// fingerprint is a digest of everything that identifies the request; a stored response with another fingerprint is a
// Conflict fault. If fn fails, nothing is stored. fn may run again after a conflict (see db.Write).
func (a *Answers) Once(
	ctx context.Context, k Key, fingerprint [32]byte, fn func(tx *db.Tx) ([]byte, error),
) (answer []byte, replayed bool, err error) {
	if k.Key == "" {
		err = a.db.Write(ctx, func(tx *db.Tx) error {
			answer, err = fn(tx)
			return err
		})
		return answer, false, err
	}
	if err := Check(k.Key); err != nil {
		return nil, false, err
	}
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		answer, replayed = nil, false
		// Insert the row before any effect, so that a concurrent repeat waits on the unique index (PostgreSQL) or for
		// the only writer (SQLite).
		mine, err := a.claim(ctx, tx, k, fingerprint)
		if err != nil {
			return err
		}
		if !mine {
			replayed = true
			answer, err = a.find(ctx, tx, k, fingerprint)
			return err
		}
		if answer, err = fn(tx); err != nil {
			return err
		}
		return a.store(ctx, tx, k, answer)
	})
	if err != nil {
		return nil, false, err
	}
	return answer, replayed, nil
}

// Stored returns the response stored for a request. found is false if there is none or the request has no key. Call it
// before any check outside the transaction, since such a check could refuse a request that already took effect.
func (a *Answers) Stored(ctx context.Context, k Key, fingerprint [32]byte) (answer []byte, found bool, err error) {
	if k.Key == "" {
		return nil, false, nil
	}
	if err := Check(k.Key); err != nil {
		return nil, false, err
	}
	answer, err = a.find(ctx, a.db, k, fingerprint)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return answer, err == nil, err
}

// Remember is [Answers.Once] for requests that use the network and change nothing here: it returns a stored response,
// or runs fn outside a transaction and stores its result. Concurrent requests may both run fn, but both get the
// response stored first.
func (a *Answers) Remember(
	ctx context.Context, k Key, fingerprint [32]byte, fn func(context.Context) ([]byte, error),
) (answer []byte, replayed bool, err error) {
	if answer, replayed, err = a.Stored(ctx, k, fingerprint); err != nil || replayed {
		return answer, replayed, err
	}
	answer, err = fn(ctx)
	if k.Key == "" {
		return answer, false, err
	}
	if err != nil {
		return nil, false, err
	}
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		mine, err := a.claim(ctx, tx, k, fingerprint)
		if err != nil {
			return err
		}
		if mine {
			return a.store(ctx, tx, k, answer)
		}
		replayed = true
		answer, err = a.find(ctx, tx, k, fingerprint)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return answer, replayed, nil
}

// claim inserts the key's row and reports whether there was no valid one.
func (a *Answers) claim(ctx context.Context, tx *db.Tx, k Key, fingerprint [32]byte) (bool, error) {
	now := db.Now()
	for {
		n, err := tx.Exec(ctx, `
			INSERT INTO idempotent_answers (scope, method, path, key, fingerprint, answer, created_at, owner_id, size)
			VALUES ($1, $2, $3, $4, $5, '', $6, $7, 0)
			ON CONFLICT (scope, method, path, key) DO NOTHING`,
			k.Scope, k.Method, k.Path, k.Key, hex.EncodeToString(fingerprint[:]), now, k.owner())
		if err != nil || n == 1 {
			return n == 1, wrap("claim idempotency key", err)
		}
		var old row
		err = tx.QueryRow(ctx, `
			DELETE FROM idempotent_answers WHERE scope = $1 AND method = $2 AND path = $3 AND key = $4 AND created_at <= $5
			RETURNING owner_id, size`, k.Scope, k.Method, k.Path, k.Key, now.Add(-a.keep)).Scan(&old.owner, &old.size)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil // a valid row exists
		}
		if err == nil {
			err = forget(ctx, tx, []row{old})
		}
		if err != nil {
			return false, wrap("claim idempotency key", err)
		}
	}
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// find returns the stored response, sql.ErrNoRows, or the Conflict fault if it belongs to another request.
func (a *Answers) find(ctx context.Context, r db.Reader, k Key, fingerprint [32]byte) ([]byte, error) {
	var print, sealed string
	err := r.QueryRow(ctx, `
		SELECT fingerprint, answer FROM idempotent_answers
		WHERE scope = $1 AND method = $2 AND path = $3 AND key = $4 AND created_at > $5`,
		k.Scope, k.Method, k.Path, k.Key, db.Now().Add(-a.keep)).Scan(&print, &sealed)
	if err != nil {
		return nil, fmt.Errorf("find answer: %w", err)
	}
	if print != hex.EncodeToString(fingerprint[:]) {
		return nil, errReused
	}
	if sealed == "" {
		return nil, errDropped
	}
	packed, err := a.seal.Open(sealed, k.purpose())
	if err != nil {
		return nil, fmt.Errorf("open answer: %w", err)
	}
	answer, err := unpack(packed, k.Request)
	return answer, wrap("read answer", err)
}

// Run deletes expired responses until ctx ends.
func (a *Answers) Run(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		if err := a.purge(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "old answers not removed, will be retried", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// purge deletes a thousand rows per transaction to keep transactions short.
func (a *Answers) purge(ctx context.Context) error {
	for {
		var gone []row
		err := a.db.Write(ctx, func(tx *db.Tx) error {
			rows, err := tx.Query(ctx, `
				DELETE FROM idempotent_answers WHERE (scope, method, path, key) IN (
				  SELECT scope, method, path, key FROM idempotent_answers WHERE created_at <= $1 LIMIT 1000)
				RETURNING owner_id, size`, db.Now().Add(-a.keep))
			gone, err = db.Collect(rows, err, scanRow)
			if err != nil {
				return err
			}
			return forget(ctx, tx, gone)
		})
		if err != nil || len(gone) < 1000 {
			return err
		}
	}
}
