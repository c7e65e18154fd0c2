package upgrade

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// told collects messages to operators.
type told []string

func (o *told) TellOperatorsTx(_ context.Context, _ *db.Tx, subject, text, path string) error {
	*o = append(*o, fmt.Sprintf("%s|%s|%s", subject, text, path))
	return nil
}

// Each finished upgrade is announced once, also by the restored program. Upgrades in progress or long past aren't.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	var heard told
	a := &Announcer{Store: installation.Store{DataDir: t.TempDir()}, DB: dbtest.New(t), To: &heard, Log: slog.New(slog.DiscardHandler)}
	if err := os.Mkdir(folder(a.Store), 0o700); err != nil {
		t.Fatal(err)
	}
	expect := func(x State, want ...string) {
		t.Helper()
		if err := x.save(a.Store); err != nil {
			t.Fatal(err)
		}
		heard = nil
		for range 2 {
			if err := a.once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.EqualFunc(heard, want, func(got, want string) bool { return strings.HasPrefix(got, want) }) {
			t.Errorf("told %q, want %q", heard, want)
		}
	}
	if err := a.once(t.Context()); err != nil || heard != nil {
		t.Errorf("before any upgrade: %v, told %q", err, heard)
	}
	x := State{Step: Swapped, From: About{Version: "1.0.0"}, To: About{Version: "1.1.0"}}
	expect(x)
	x.Step, x.Outcome, x.EndedAt = Ended, Upgraded, time.Now()
	expect(x, "Slipway was upgraded to 1.1.0|The last upgrade of this installation: to 1.1.0, on ")
	expect(x)
	x.Outcome, x.Why, x.EndedAt = Returned, "it was not ready within 1m0s", time.Now().Add(time.Second)
	expect(x, "The upgrade of Slipway to 1.1.0 did not work|The last upgrade of this installation: that to 1.1.0 was taken back on ")
	back := State{
		Step: Ended, Outcome: Upgraded, From: About{Version: "1.10.0"}, To: About{Version: "1.9.2"}, EndedAt: time.Now().Add(2 * time.Second),
	}
	expect(back, "Slipway is back at 1.9.2|The last upgrade of this installation: back to 1.9.2, on ")
	back.Outcome, back.Why, back.EndedAt = Returned, "it was not ready within 1m0s", time.Now().Add(3*time.Second)
	expect(back, "Going back to Slipway 1.9.2 did not work|The last upgrade of this installation: that to 1.9.2 was taken back on ")
	// If the disk can't record the announcement, it is still sent once.
	if err := os.Remove(filepath.Join(folder(a.Store), "told")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder(a.Store), "told"), 0o700); err != nil {
		t.Fatal(err)
	}
	heard, a.told = nil, ""
	if err := a.once(t.Context()); err == nil || heard != nil {
		t.Errorf("where nothing can be read: %v, told %q", err, heard)
	}
	if err := os.Remove(filepath.Join(folder(a.Store), "told")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/told", filepath.Join(folder(a.Store), "told")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_ = a.once(t.Context())
	}
	if len(heard) != 1 {
		t.Errorf("where it can't be noted it was told %d times, want once", len(heard))
	}
	x.EndedAt = time.Now().Add(-25 * time.Hour)
	expect(x)
}
