package retention

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing"
)

// childVariable makes the test binary run as a process that works until it is killed.
const childVariable = "SLIPWAY_RETENTION_NODE"

// work advances time by half a day per step and runs what is due. Backups succeed or fail at random. work prints a line
// whenever something may be committed.
func work(dir, url string) error {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Config{URL: url, Log: slog.New(slog.DiscardHandler), Readers: 4})
	if err != nil {
		return err
	}
	s, err := open(d, dir)
	if err != nil {
		return err
	}
	for {
		if err := s.turn(ctx); err != nil {
			return err
		}
	}
}

// turn advances time by half a day.
func (s *services) turn(ctx context.Context) error {
	for _, do := range []func() error{
		func() error {
			return s.db.Admin(ctx, fmt.Sprintf(`UPDATE usage_sealed SET hour = hour + %d`, (12*time.Hour).Milliseconds()))
		},
		func() error { return s.bill.Tick(ctx) },
		func() error { return s.Tick(ctx) },
		func() error {
			status := `status = 'completed', verified_at = 1`
			if rand.IntN(3) == 0 { // long ago, so that it is taken again
				status = `status = 'failed', error = 'a test', created_at = created_at - 3600001`
			}
			return s.db.Admin(ctx, `UPDATE backups SET `+status+` WHERE status = 'pending'`)
		},
		func() error { return s.db.Admin(ctx, `UPDATE retention SET backups_since = 1 WHERE backups_since > 0`) },
	} {
		if err := do(); err != nil {
			return err
		}
		fmt.Println("step")
	}
	return nil
}

// After processes are killed at random moments, each notice and event was sent once, no site was deleted without a
// verified backup, and no site of a paying account was deleted.
func TestKilled(t *testing.T) {
	t.Parallel()
	url, dir := dbtest.URL(t), t.TempDir()
	w := newWorld(t, dbtest.Open(t, url), dir, 30)
	r := rand.New(rand.NewPCG(1, 2))
	owners := []id.Owner{w.customer("ada"), w.customer("joe"), w.customer("bob")}
	paid := owners[2]
	kills := 0
	turn := func(until func() bool) {
		for !until() {
			if kills++; kills > 500 {
				t.Fatal("it doesn't come to an end")
			}
			ok(t, killed(t.Context(), dir+" "+url, 1+r.IntN(60)))
		}
	}
	turn(func() bool { return w.count(`SELECT count(*) FROM retention WHERE notices >= 2`) > 0 })
	list, err := w.bill.Invoices(t.Context(), w.db, paid, "", 100)
	ok(t, err)
	for _, i := range list {
		if left := i.Remaining(); left > 0 {
			w.write(func(tx *db.Tx) error {
				_, err := w.bill.RecordTx(t.Context(), tx, string(i.ID), billing.Received{Amount: left, Reference: string(i.ID)})
				return err
			})
		}
	}
	turn(func() bool {
		return w.count(`SELECT count(*) FROM told WHERE subject = 'Your sites were deleted'`) >= 2
	})
	for range 5 {
		ok(t, w.turn(t.Context()))
	}
	for _, o := range owners[:2] {
		w.stands("in the end", o, 3, 3, w.count(`SELECT count(*) FROM backups WHERE owner_id = '%s'`, o), 0, 1)
		if n := w.count(`SELECT count(DISTINCT site_id) FROM backups WHERE owner_id = '%s' AND verified_at > 0`, o); n != 2 {
			t.Errorf("%d of 2 sites have a verified backup", n)
		}
		if n := w.count(`SELECT count(*) FROM webhook_events WHERE owner_id = '%s' AND name = 'site.deleted'`, o); n != 2 {
			t.Errorf("%d events of 2 sites", n)
		}
	}
	if n := w.count(`SELECT count(*) FROM sites WHERE owner_id = '%s' AND deleted_at = 0`, paid); n != 2 {
		t.Errorf("%d of 2 sites of an account that paid are left", n)
	}
	t.Logf("%d kills", kills)
}

// killed starts a process and kills it after it has printed some lines.
func killed(ctx context.Context, what string, lines int) error {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), childVariable+"="+what)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	in := bufio.NewScanner(out)
	for range lines {
		if !in.Scan() || strings.HasPrefix(in.Text(), "ended") {
			err = fmt.Errorf("a process ended by itself: %s", in.Text())
			break
		}
	}
	c.Process.Kill()
	c.Wait()
	return err
}
