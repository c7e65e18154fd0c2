package idempotency_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/web/idempotency"
)

func bounded(t *testing.T, rows, size int64) (*idempotency.Answers, *db.DB) {
	t.Helper()
	d := dbtest.New(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return idempotency.New(idempotency.Config{DB: d, Seal: s, Rows: rows, Bytes: size}), d
}

func numbered(i int) idempotency.Key {
	k := key
	k.Key, k.Owner, k.Scope = fmt.Sprint("k-", i), "usr_a", fmt.Sprint("usr_a/key_", i%7) // several keys of one user
	return k
}

func random(n int) []byte {
	b := make([]byte, n/2)
	rand.Read(b)
	return hex.AppendEncode(nil, b)
}

func sums(t *testing.T, d *db.DB) (rows, size, countedRows, counted int64) {
	t.Helper()
	err := d.QueryRow(t.Context(), `
		SELECT count(*), COALESCE(SUM(length(answer)), 0), COALESCE((SELECT SUM(answers) FROM idempotency_usage), 0), COALESCE((SELECT SUM(bytes) FROM idempotency_usage), 0)
		FROM idempotent_answers`).Scan(&rows, &size, &countedRows, &counted)
	if err != nil {
		t.Fatal(err)
	}
	return
}

// The part of a response that repeats its request isn't stored again.
func TestLargeAnswersAreStoredByReference(t *testing.T) {
	t.Parallel()
	a, d := bounded(t, 0, 0)
	request := random(1 << 20)
	answer := append([]byte(`{"data":"`), request...)
	k := key
	k.Request = request
	for i := range 2 {
		got, replayed, err := a.Once(t.Context(), k, [32]byte{1}, func(*db.Tx) ([]byte, error) { return answer, nil })
		if err != nil || replayed != (i == 1) || !bytes.Equal(got, answer) {
			t.Fatalf("%d bytes, %v, %v", len(got), replayed, err)
		}
	}
	if _, size, _, _ := sums(t, d); size > 4096 {
		t.Errorf("an answer that repeats the request takes %d bytes", size)
	}
}

// Stored bytes per owner are limited. A request whose response was dropped isn't run again, and the newest responses
// are kept.
func TestBytesOfAnOwnerAreBounded(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	a, d := bounded(t, 0, most)
	ctx := t.Context()
	answers := map[int][]byte{}
	for i := range 60 {
		answers[i] = random(8 << 10)
		if _, _, err := a.Once(ctx, numbered(i), [32]byte{1}, func(*db.Tx) ([]byte, error) { return answers[i], nil }); err != nil {
			t.Fatal(err)
		}
		if _, size, _, counted := sums(t, d); size > most || size != counted {
			t.Fatalf("after %d answers %d bytes are stored and %d counted, the bound is %d", i+1, size, counted, most)
		}
	}
	again := func(i int) ([]byte, error) {
		got, replayed, err := a.Once(ctx, numbered(i), [32]byte{1}, func(*db.Tx) ([]byte, error) {
			t.Errorf("request %d acts twice", i)
			return nil, nil
		})
		if err == nil && !replayed {
			t.Errorf("answer %d is not a replay", i)
		}
		return got, err
	}
	if _, err := again(0); !fault.Is(err, fault.Conflict) || fault.As(err).Code != "idempotency_answer_dropped" {
		t.Errorf("the oldest: %v", err)
	}
	if got, err := again(59); err != nil || !bytes.Equal(got, answers[59]) {
		t.Errorf("the newest: %d bytes, %v", len(got), err)
	}
	other := key
	other.Scope = "usr_b"
	if _, _, err := a.Once(ctx, other, [32]byte{1}, func(*db.Tx) ([]byte, error) { return []byte("x"), nil }); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

func TestRowsOfAnOwnerAreBounded(t *testing.T) {
	t.Parallel()
	a, d := bounded(t, 5, 0)
	ctx := t.Context()
	done := 0
	do := func(i int) error {
		_, _, err := a.Once(ctx, numbered(i), [32]byte{1}, func(*db.Tx) ([]byte, error) { done++; return []byte("x"), nil })
		return err
	}
	for i := range 5 {
		if err := do(i); err != nil {
			t.Fatal(err)
		}
	}
	err := do(5)
	if !fault.Is(err, fault.Limited) || fault.As(err).RetryAfter < 23*time.Hour {
		t.Errorf("one more: %v", err)
	}
	if err := do(1); err != nil || done != 6 { // the sixth ran and was rolled back
		t.Errorf("a replay at the bound: %v, %d runs", err, done)
	}
	if rows, _, counted, _ := sums(t, d); rows != 5 || counted != 5 {
		t.Errorf("%d rows, %d counted", rows, counted)
	}
	if err := d.Admin(ctx, fmt.Sprintf("UPDATE idempotent_answers SET created_at = %d", db.Now().Add(-25*time.Hour))); err != nil {
		t.Fatal(err)
	}
	if err := do(1); err != nil { // replaces its own expired response
		t.Error(err)
	}
	if rows, _, counted, _ := sums(t, d); rows != 5 || counted != 5 {
		t.Errorf("%d rows, %d counted after one expired", rows, counted)
	}
	if err := idempotency.Purge(a, ctx); err != nil {
		t.Fatal(err)
	}
	if rows, size, counted, bytes := sums(t, d); rows != 1 || counted != 1 || size != bytes {
		t.Errorf("%d rows, %d counted, %d bytes, %d counted after a purge", rows, counted, size, bytes)
	}
}
