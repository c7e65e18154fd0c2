package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
)

func sealer(t testing.TB) *seal.Sealer {
	t.Helper()
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Storage fulfills the contract of certmagic's Storage interface.
func TestStorageConformance(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := dbtest.New(t)
	s := NewStorage(d, sealer(t))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range map[string]func() error{
		"load": func() error { _, err := s.Load(ctx, "a"); return err },
		"stat": func() error { _, err := s.Stat(ctx, "a"); return err },
		"list": func() error { _, err := s.List(ctx, "a", true); return err },
	} {
		if err := f(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an absent key: %v, want fs.ErrNotExist", err)
		}
	}
	if s.Exists(ctx, "a") {
		t.Error("an absent key exists")
	}
	must(s.Delete(ctx, "a"))

	for _, key := range []string{"a/b/one", "a/b/two", "a/b0", "a/c%/x_", "a/c%", "ab/c", "a/b!"} {
		must(s.Store(ctx, key, []byte("value of "+key)))
	}
	for _, key := range []string{"a/b/one", "a/c%/x_", "ab/c"} {
		if v, err := s.Load(ctx, key); err != nil || string(v) != "value of "+key {
			t.Errorf("%s holds %q, %v", key, v, err)
		}
	}
	must(s.Store(ctx, "a/b/one", []byte("new")))
	before := time.Now()
	if v, err := s.Load(ctx, "a/b/one"); err != nil || string(v) != "new" {
		t.Errorf("overwritten: %q, %v", v, err)
	}
	for folder, want := range map[string][2]string{
		"a":   {"a/b a/b! a/b0 a/c%", "a/b!|a/b/one|a/b/two|a/b0|a/c%|a/c%/x_"},
		"a/b": {"a/b/one a/b/two", "a/b/one|a/b/two"},
		"":    {"a ab", "a/b!|a/b/one|a/b/two|a/b0|a/c%|a/c%/x_|ab/c"},
	} {
		flat, err := s.List(ctx, folder, false)
		must(err)
		slices.Sort(flat)
		deep, err := s.List(ctx, folder, true)
		must(err)
		slices.Sort(deep)
		if got := strings.Join(flat, " "); got != want[0] {
			t.Errorf("list %q: %s, want %s", folder, got, want[0])
		}
		if got := strings.Join(deep, "|"); got != want[1] {
			t.Errorf("list all of %q: %s, want %s", folder, got, want[1])
		}
	}
	info, err := s.Stat(ctx, "a/b/one")
	must(err)
	if info.Key != "a/b/one" || info.Size != 3 || !info.IsTerminal || before.Sub(info.Modified).Abs() > time.Minute {
		t.Errorf("stat %+v", info)
	}
	if info, err := s.Stat(ctx, "a/b"); err != nil || info.IsTerminal || !s.Exists(ctx, "a/b") {
		t.Errorf("stat of a folder %+v, %v", info, err)
	}
	must(s.Delete(ctx, "a/b"))
	if s.Exists(ctx, "a/b") || s.Exists(ctx, "a/b/two") || !s.Exists(ctx, "a/b0") || !s.Exists(ctx, "a/b!") || !s.Exists(ctx, "ab/c") {
		t.Error("deleting a folder deleted too little or too much")
	}

	// Values are encrypted and bound to their keys.
	var text string
	must(d.QueryRow(ctx, "SELECT value FROM acme_storage WHERE key = 'ab/c'").Scan(&text))
	if strings.Contains(text, "value") || !strings.HasPrefix(text, "v1.") {
		t.Error("a value is not sealed")
	}
	must(d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE acme_storage SET value = $1 WHERE key = 'a/b0'", text)
		return err
	}))
	if _, err := s.Load(ctx, "a/b0"); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("a value moved to another key: %v, want seal.ErrOpen", err)
	}

	// Concurrent stores don't mix values.
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := s.Store(ctx, "same", bytes.Repeat([]byte{byte('a' + i)}, 4096)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if v, err := s.Load(ctx, "same"); err != nil || len(v) != 4096 || len(bytes.Trim(v, string(v[:1]))) != 0 {
		t.Error("values of concurrent stores are mixed")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Store(ended, "late", nil); err == nil {
		t.Error("stored although the context had ended")
	}
}

// A lock has one holder at a time across nodes and goroutines.
func TestLocks(t *testing.T) {
	t.Parallel()
	url, key := dbtest.URL(t), sealer(t)
	nodes := []*Storage{NewStorage(dbtest.Open(t, url), key), NewStorage(dbtest.Open(t, url), key)}
	var inside, turns atomic.Int64
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			s := nodes[i%2]
			if err := s.Lock(t.Context(), "x"); err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			turns.Add(1)
			inside.Add(-1)
			if err := s.Unlock(context.Background(), "x"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if turns.Load() != 6 {
		t.Errorf("%d turns", turns.Load())
	}
	if err := nodes[0].Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	for i, s := range nodes {
		if ok, err := s.TryLock(t.Context(), "x"); ok || err != nil {
			t.Errorf("node %d took a lock that is held, %v", i, err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := nodes[1].Lock(short, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited with a context that ended: %v", err)
	}
	if err := nodes[1].Unlock(t.Context(), "x"); err == nil {
		t.Error("a lock of another node was given back")
	}
	// The lock of a holder that crashed expires.
	if err := nodes[0].db.Admin(t.Context(), fmt.Sprintf("UPDATE acme_locks SET until = %d", db.Now().Add(-time.Second))); err != nil {
		t.Fatal(err)
	}
	if ok, err := nodes[1].TryLock(t.Context(), "x"); !ok || err != nil {
		t.Errorf("a lock that ran out stays taken, %v", err)
	}
	// Unlock by a node that lost the lock doesn't release it for its new holder.
	if err := nodes[0].Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if got, err := nodes[1].lease(t.Context(), "x", false); !got || err != nil {
		t.Errorf("the lock was released by a node that doesn't hold it, %v", err)
	}
	if err := nodes[1].Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
