package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/platform/watchdog"
)

func open(t *testing.T, d *db.DB, with func(*Config)) *Self {
	t.Helper()
	c := Config{DB: d, Dir: t.TempDir(), Version: "1.0.0", Roles: []string{"api", "edge"}, Blobs: "s3://files", SiteDomain: "sites.test"}
	if with != nil {
		with(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func list(t *testing.T, d *db.DB) []Node {
	t.Helper()
	all, err := List(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A running node is in the list, keeps its ID over a restart, and is down after it has left.
func TestNodeJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dir := t.TempDir()
	for range 2 {
		s := open(t, d, func(c *Config) { c.Dir = dir })
		if err := s.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		all := list(t, d)
		if len(all) != 1 || all[0].State != Up || all[0].ID != s.ID() || all[0].Clock() != "in sync" || !s.Holds() || !s.Takes() {
			t.Fatalf("got %+v", all)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if all = list(t, d); all[0].State != Down {
			t.Fatalf("after its end: %+v", all)
		}
	}
}

// Nodes that share a PostgreSQL database must have the same file store and site domain.
func TestNodesMustFit(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	if err := open(t, d, nil).Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := dbtest.Open(t, url)
	for want, with := range map[string]func(*Config){
		"--blobs: node":       func(c *Config) { c.Blobs = "" },
		"has its files in":    func(c *Config) { c.Blobs = "s3://others" },
		"--site-domain: node": func(c *Config) { c.SiteDomain = "other.test" },
	} {
		if err := open(t, other, with).Join(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := open(t, other, nil).Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := list(t, d); len(all) != 2 || len(Problems(all)) != 0 {
		t.Errorf("got %+v, %v", all, Problems(all))
	}
}

// A node that renews its lease too late notices that itself, and Lost is closed after it has a new one. If a data
// directory was copied, the earlier process gives way to the later one.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("the lease of the only node does not end")
	}
	dir := t.TempDir()
	s := open(t, d, func(c *Config) { c.Dir = dir })
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	asleep := present()
	asleep.at = asleep.at.Add(time.Minute) // the machine was suspended, during which one of its clocks stood still
	s.until.Store(&asleep)
	if s.Holds() || s.Takes() {
		t.Fatal("it holds a lease that ended while its machine was suspended")
	}
	past := end{time.Now().Add(-time.Second), watchdog.Now() + time.Minute}
	s.until.Store(&past)
	lost := s.Lost()
	if s.Holds() || s.Takes() {
		t.Fatal("it holds a lease that has ended")
	}
	if err := s.renew(t.Context()); err != nil || !s.Holds() || s.Lapses() != 1 {
		t.Fatal(err, s.Lapses())
	}
	if err := s.renew(t.Context()); err != nil || s.Lapses() != 1 { // before the lease ended
		t.Fatal(err, s.Lapses())
	}
	wait.Until(t, "it hears that its lease had ended", func() bool {
		select {
		case <-lost:
			return true
		default:
			return false
		}
	})
	twin := open(t, d, func(c *Config) { c.Dir = dir })
	if err := twin.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.renew(t.Context()); err == nil || s.Holds() {
		t.Fatal("two processes hold one node's lease:", err)
	}
	if err := twin.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A node that is forgotten while its machine sleeps exits when it wakes, without writing anything, and can't join
// again. A node whose data directory was copied isn't told that it was forgotten, and doesn't write either.
func TestForgottenNodeReturns(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	dir := t.TempDir()
	s := open(t, d, func(c *Config) { c.Dir = dir })
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Guard(s.Guard)
	write := func() error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM secrets_keys`)
			return err
		})
	}
	lapse := func(s *Self) {
		past := present()
		s.until.Store(&past)
		s.asked = time.Time{}
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	lapse(s)
	if err := write(); err != nil || !s.Holds() {
		t.Fatalf("a node that slept and is still on the list: %v", err)
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error { return ForgetTx(t.Context(), tx, s.ID()) })
	if err != nil {
		t.Fatal(err)
	}
	lapse(s)
	if f := fault.As(write()); f == nil || f.Kind != fault.Unavailable {
		t.Errorf("a forgotten node writes: %v", f)
	}
	if err := s.Run(t.Context()); !errors.Is(err, errForgotten) {
		t.Errorf("the forgotten node keeps running: %v", err)
	}
	if err := write(); fault.As(err) == nil {
		t.Errorf("the forgotten node can write: %v", err)
	}
	d.Guard(func(context.Context) error { return nil }) // as if from another process
	again := open(t, d, func(c *Config) { c.Dir = dir })
	if err := again.Join(t.Context()); !errors.Is(err, errForgotten) || len(list(t, d)) != 0 {
		t.Errorf("the forgotten node joined again: %v, %+v", err, list(t, d))
	}

	dir = t.TempDir()
	original, twin := open(t, d, func(c *Config) { c.Dir = dir }), open(t, d, func(c *Config) { c.Dir = dir })
	for _, s := range []*Self{original, twin} {
		if err := s.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.Guard(original.Guard)
	lapse(original)
	if err := write(); fault.As(err) == nil || !errors.Is(original.answer, errCopied) {
		t.Errorf("a node whose place another process has: %v, %v", err, original.answer)
	}
}

// The key is created once per installation. A node with another key, or without one, is rejected and creates none.
func TestKeyIsTheInstallations(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	first, second := filepath.Join(t.TempDir(), "secrets.key"), filepath.Join(t.TempDir(), "secrets.key")
	s, err := Secrets(t.Context(), d, first)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Secrets(t.Context(), d, first); err != nil || again.Newest() != s.Newest() {
		t.Fatal(err)
	}
	if _, err := Secrets(t.Context(), d, second); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := os.Stat(second); err == nil {
		t.Error("a second key was generated")
	}
	other := strings.Repeat("ab", 32) + "\n"
	if err := os.WriteFile(second, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Secrets(t.Context(), d, second); err == nil || !strings.Contains(err.Error(), "is not this installation's key") {
		t.Errorf("with another key: %v", err)
	}
	// The key is rotated at one node, which has the old and the new one. Afterwards only nodes with the new key are
	// accepted.
	old, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(both, append(old, other...), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Secrets(t.Context(), d, both); err != nil {
		t.Fatal(err)
	}
	if _, err := Secrets(t.Context(), d, first); err == nil {
		t.Error("a node started without the newest key")
	}
	if id, err := AcceptKey(t.Context(), d, filepath.Dir(first)); err != nil || id == s.Newest() {
		t.Error(id, err)
	}
	if _, err := Secrets(t.Context(), d, first); err != nil {
		t.Error(err)
	}
}
