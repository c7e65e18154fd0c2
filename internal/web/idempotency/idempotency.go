// Package idempotency owns stored responses, so that a repeated request acts once.
//
// The effect of a request and its response are one transaction: a crash keeps both or
// neither, and of two simultaneous requests the later one waits for the first and gets its
// response. Responses are encrypted, because they can contain a new key's secret, and stored
// for a day. Errors are never stored: a request without an effect can be retried with the same
// key.
//
// Storage per owner is bounded (usage.go): parts of a response that repeat the request are
// stored as references, the oldest responses are dropped when they exceed the limit, and a
// request whose response was dropped still acts once.
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

// Config says where answers are stored.
type Config struct {
	DB    *db.DB
	Seal  *seal.Sealer
	Log   *slog.Logger
	Keep  time.Duration // Optional: 0 means 24h.
	Rows  int64         // most answers of one owner. Optional: 0 means 150,000: 100 requests a minute, all day.
	Bytes int64         // most bytes of answers of one owner. Optional: 0 means 64 MiB.
}

// Answers stores answers of requests. It is safe for concurrent use.
type Answers struct {
	db   *db.DB
	seal *seal.Sealer
	log  *slog.Logger
	keep time.Duration

	maxRows, maxBytes int64 // of one owner
}

// New returns the answers stored in the database.
func New(c Config) *Answers {
	return &Answers{
		c.DB, c.Seal, cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Keep, 24*time.Hour),
		cmp.Or(c.Rows, 150_000), cmp.Or(c.Bytes, 64<<20),
	}
}

// Key says which request this is. The same Key in another Scope is another request.
type Key struct {
	Scope  string // whose it is: a user or a deploy hook
	Method string
	Path   string
	Key    string // what the client sent: 1 to 255 printable ASCII characters; empty: nothing is stored

	Owner   string // whose bounds it counts against. Optional: empty means Scope.
	Request []byte // the request's body: what the answer repeats of it is not stored again. Optional.
}

func (k Key) purpose() string {
	return "answer\x00" + k.Scope + "\x00" + k.Method + "\x00" + k.Path + "\x00" + k.Key
}

// Check returns an Invalid fault for a key that cannot be one.
func Check(key string) error {
	odd := strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r > 0x7e })
	if odd || len(key) < 1 || len(key) > 255 {
		return fault.New(fault.Invalid, "invalid_idempotency_key", "Invalid Idempotency-Key",
			"a key is 1 to 255 printable ASCII characters, such as a UUID")
	}
	return nil
}

// errReused is a Conflict: the draft's 422 is not among the statuses of our contract.
var errReused = fault.New(fault.Conflict, "idempotency_key_reused", "Idempotency-Key was already used with a different request",
	"send the same request again, or a new key")

// Once runs fn in a transaction and stores its answer in the same one, or returns the
// answer that was stored, with replayed true. The fingerprint is a digest of all that
// makes the request what it is; a stored answer to another one is a Conflict fault. When
// fn fails nothing is stored. fn may run again after a conflict (see db.Write).
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
		// First of all the row, before any effect: whoever comes second waits here, on
		// the unique index (PostgreSQL) or for the one writer (SQLite).
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

// Stored returns the answer that was stored for a request. found is false where there is none,
// or the request has no key. What a request needs before its transaction is to come after this:
// it may be refused once the request has had its effect.
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

// Remember is Once for requests that go to the network and change nothing here: it looks
// for a stored answer, else runs fn outside any transaction and stores what it returns. Of two
// that come at once both may run fn, and the first answer stored is the one both get.
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

// claim inserts the key's row and reports whether there was none that still counts.
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
			return false, nil // one that counts
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

// find returns the stored answer, sql.ErrNoRows, or the Conflict fault of another request.
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

// Run removes answers that are too old until ctx ends.
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

// purge removes a thousand rows at a time, so that it never holds the writer for long.
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
