package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/web/idempotency"
)

func open(t *testing.T, keep time.Duration) (*idempotency.Answers, *db.DB) {
	t.Helper()
	d := dbtest.New(t)
	if err := d.Admin(t.Context(), "CREATE TABLE effects (id TEXT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return idempotency.New(idempotency.Config{DB: d, Seal: s, Keep: keep}), d
}

var key = idempotency.Key{Scope: "usr_a", Method: "POST", Path: "/x", Key: "k-1"}

func effect(ctx context.Context, answer string) func(*db.Tx) ([]byte, error) {
	return func(tx *db.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", db.NewID("e"))
		return []byte(answer), err
	}
}

func effects(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnce(t *testing.T) {
	t.Parallel()
	a, d := open(t, 0)
	ctx := t.Context()
	got, replayed, err := a.Once(ctx, key, [32]byte{1}, effect(ctx, "secret-in-the-answer"))
	if err != nil || replayed || string(got) != "secret-in-the-answer" {
		t.Fatalf("got %q, %v, %v", got, replayed, err)
	}
	got, replayed, err = a.Once(ctx, key, [32]byte{1}, effect(ctx, "another"))
	if err != nil || !replayed || string(got) != "secret-in-the-answer" {
		t.Fatalf("again: %q, %v, %v", got, replayed, err)
	}
	if _, _, err = a.Once(ctx, key, [32]byte{2}, effect(
		ctx,
		"another",
	)); !fault.Is(err, fault.Conflict) || fault.As(err).Code != "idempotency_key_reused" {
		t.Fatalf("another request: %v", err)
	}
	if n := effects(t, d); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
	for name, k := range map[string]idempotency.Key{
		"scope":  {Scope: "usr_b", Method: key.Method, Path: key.Path, Key: key.Key},
		"method": {Scope: key.Scope, Method: "PUT", Path: key.Path, Key: key.Key},
		"path":   {Scope: key.Scope, Method: key.Method, Path: "/y", Key: key.Key},
		"key":    {Scope: key.Scope, Method: key.Method, Path: key.Path, Key: "k-2"},
	} {
		if _, replayed, err := a.Once(ctx, k, [32]byte{1}, effect(ctx, "x")); err != nil || replayed {
			t.Errorf("another %s: %v, %v", name, replayed, err)
		}
	}
	var plain int
	if err := d.QueryRow(
		ctx,
		"SELECT count(*) FROM idempotent_answers WHERE answer LIKE '%secret%'",
	).Scan(&plain); err != nil || plain != 0 {
		t.Fatalf("answers are stored in the clear: %d, %v", plain, err)
	}
}

func TestConcurrentTwinsActOnce(t *testing.T) {
	t.Parallel()
	a, d := open(t, 0)
	ctx := t.Context()
	var first atomic.Int64
	var wg sync.WaitGroup
	answers := sync.Map{}
	for i := range 50 {
		wg.Go(func() {
			got, replayed, err := a.Once(ctx, key, [32]byte{1}, effect(ctx, fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
			}
			if !replayed {
				first.Add(1)
			}
			answers.Store(string(got), true)
		})
	}
	wg.Wait()
	n := 0
	answers.Range(func(any, any) bool { n++; return true })
	if effects(t, d) != 1 || first.Load() != 1 || n != 1 {
		t.Fatalf("%d effects, %d first, %d answers; want 1 of each", effects(t, d), first.Load(), n)
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	a, d := open(t, 0)
	ctx := t.Context()
	boom := errors.New("boom")
	_, _, err := a.Once(ctx, key, [32]byte{1}, func(tx *db.Tx) ([]byte, error) {
		effect(ctx, "")(tx)
		return nil, boom
	})
	if !errors.Is(err, boom) || effects(t, d) != 0 {
		t.Fatalf("got %v, %d effects", err, effects(t, d))
	}
	if _, replayed, err := a.Once(ctx, key, [32]byte{2}, effect(ctx, "fine")); err != nil || replayed {
		t.Fatalf("after an error: %v, %v", replayed, err)
	}
}

func TestAnswersGrowOld(t *testing.T) {
	t.Parallel()
	a, d := open(t, time.Hour)
	ctx := t.Context()
	for _, want := range []int{1, 2} {
		if _, replayed, err := a.Once(ctx, key, [32]byte{byte(want)}, effect(ctx, "x")); err != nil || replayed || effects(t, d) != want {
			t.Fatalf("%v, %v, %d effects", replayed, err, effects(t, d))
		}
		if err := d.Admin(ctx, fmt.Sprintf("UPDATE idempotent_answers SET created_at = %d", db.Now().Add(-time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	go a.Run(run)
	wait.Until(t, "old answers are gone", func() bool {
		var n int
		if err := d.QueryRow(ctx, "SELECT count(*) FROM idempotent_answers").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

func TestRemember(t *testing.T) {
	t.Parallel()
	a, _ := open(t, 0)
	ctx := t.Context()
	calls := 0
	ask := func(context.Context) ([]byte, error) { calls++; return fmt.Append(nil, "answer ", calls), nil }
	if _, _, err := a.Remember(ctx, key, [32]byte{1}, func(context.Context) ([]byte, error) { return nil, context.DeadlineExceeded }); !errors.Is(
		err,
		context.DeadlineExceeded,
	) {
		t.Fatal(err)
	}
	for i := range 3 {
		got, replayed, err := a.Remember(ctx, key, [32]byte{1}, ask)
		if err != nil || string(got) != "answer 1" || replayed != (i > 0) {
			t.Fatalf("%d: %q, %v, %v", i, got, replayed, err)
		}
	}
	if _, _, err := a.Remember(ctx, key, [32]byte{2}, ask); !fault.Is(err, fault.Conflict) {
		t.Fatalf("another request: %v", err)
	}
	k := key
	k.Key = "raced" // the twin responds while this call still runs
	got, replayed, err := a.Remember(ctx, k, [32]byte{1}, func(ctx context.Context) ([]byte, error) {
		_, _, err := a.Remember(ctx, k, [32]byte{1}, func(context.Context) ([]byte, error) { return []byte("twin"), nil })
		return []byte("mine"), err
	})
	if err != nil || !replayed || string(got) != "twin" {
		t.Fatalf("raced: %q, %v, %v", got, replayed, err)
	}
}

func TestKeyShape(t *testing.T) {
	t.Parallel()
	a, d := open(t, 0)
	for _, k := range []string{"é", "a\x00", "a\nb", strings.Repeat("a", 256), "\x7f"} {
		bad := key
		bad.Key = k
		if _, _, err := a.Once(t.Context(), bad, [32]byte{}, effect(t.Context(), "x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, want invalid", k, err)
		}
	}
	none := key
	none.Key = ""
	for range 2 {
		if _, replayed, err := a.Once(t.Context(), none, [32]byte{}, effect(t.Context(), "x")); err != nil || replayed {
			t.Errorf("without a key: %v, %v", replayed, err)
		}
	}
	if effects(t, d) != 2 {
		t.Errorf("%d effects, want 2", effects(t, d))
	}
}
