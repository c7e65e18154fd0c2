package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/mail/mailtest"
)

// An account's subscription ends unpaid. After three notices its site is backed up and deleted, and can be restored.
// The site of an account that pays just in time stays.
func TestUnpaidAccount(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	server := mailtest.New(t, mailtest.Config{})
	w.Flags = append(w.Flags, "--billing", "--smtp", server.Addr, "--smtp-from", "Slipway <slipway@example.test>", "--base-url", "http://"+w.Listen)
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(time.Minute))
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\nthe program's last words:\n%s", err, w.Log(2000))
		}
	}
	check(w.Start(ctx))
	cli := func(input string, args ...string) {
		t.Helper()
		_, err := w.CLI(input, args...)
		check(err)
	}
	cli(`{"seller": {"name": "Acme Hosting", "country": "DE"}, "deleteAfterDays": 14}`, "billing", "settings", "-")
	cli(`{"plan": "pro", "title": "Pro", "currency": "EUR", "interval": "month", "amount": 1900, "public": true}`, "billing", "publish", "-")
	check(world.WriteFiles(filepath.Join(w.Dir, "content"), map[string]string{"index.html": "<h1>not paid for</h1>"}))
	_, err = w.Git.Commit("acme/site", "main", filepath.Join(w.Dir, "content"), "a commit")
	check(err)
	type entry struct{ ID, Number, Status, Type, SiteName, VerifiedAt string }
	type list struct{ Data []entry }
	keys := map[string]string{}
	sites := func(who string) (l list) {
		t.Helper()
		check(w.Call(ctx, keys[who], "GET", "/sites", nil, &l))
		return l
	}
	for _, who := range []string{"ada", "eve"} {
		keys[who], err = w.User(who + "@example.test")
		check(err)
		check(w.Call(ctx, keys[who], "POST", "/subscription", map[string]any{"plan": "pro"}, nil))
		check(w.Call(ctx, keys[who], "POST", "/sites", map[string]any{"name": who, "type": "static", "repository": "git.test/acme/site"}, nil))
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			l := sites(who)
			return len(l.Data) == 1 && l.Data[0].Status == "active", fmt.Errorf("%+v", l)
		}))
	}
	// later stops the program, changes times in its database, and starts it again.
	later := func(queries ...string) {
		t.Helper()
		check(w.Stop(ctx))
		d, err := db.Open(ctx, db.Config{URL: "sqlite:" + filepath.Join(w.Data, "slipway.db")})
		check(err)
		for _, q := range append(queries, `UPDATE jobs SET run_at = 0 WHERE kind = 'retention.run'`) {
			check(d.Admin(ctx, q))
		}
		d.Close()
		check(w.Start(ctx))
	}
	var profile struct {
		Deletion *struct{ At, Notices any }
	}
	noticed := func(who string, n int) {
		t.Helper()
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			err := w.Call(ctx, keys[who], "GET", "/billing/profile", nil, &profile)
			return err == nil && profile.Deletion != nil && fmt.Sprint(profile.Deletion.Notices) == fmt.Sprint(n),
				errors.Join(err, fmt.Errorf("%s: %+v, want %d notices", who, profile.Deletion, n))
		}))
	}
	later(`UPDATE billing_subscriptions SET status = 'expired', reason = 'unpaid', ended_at = 1, next_at = 0`,
		`UPDATE billing_invoices SET due_at = 1`)
	for n := 1; n <= 3; n++ {
		for who := range keys {
			noticed(who, n)
		}
		if n < 3 {
			later(`UPDATE retention SET delete_at = 1`)
		}
	}
	mails := func(who, subject string, n int) {
		t.Helper()
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			got := 0
			for _, m := range server.All() {
				if m.To == who+"@example.test" && strings.HasPrefix(m.Subject, subject) {
					got++
				}
			}
			return got == n, fmt.Errorf("%s got %d mails %q, want %d", who, got, subject, n)
		}))
	}
	for who := range keys {
		mails(who, "Your sites will be deleted on ", 3)
	}
	var invoices list
	check(w.Call(ctx, keys["eve"], "GET", "/invoices", nil, &invoices))
	cli("", "billing", "pay", invoices.Data[0].Number, "19.00", "--reference", "just in time")
	later(`UPDATE retention SET delete_at = 1`)
	verified := func() (backup entry) {
		t.Helper()
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			var backups list
			err := w.Call(ctx, keys["ada"], "GET", "/backups", nil, &backups)
			for _, b := range backups.Data {
				if b.Type == "before_delete" && b.VerifiedAt != "" {
					backup = b
				}
			}
			return backup.ID != "", errors.Join(err, fmt.Errorf("no verified backup: %+v", backups))
		}))
		return backup
	}
	verified()
	if n := len(sites("ada").Data); n != 1 {
		t.Errorf("%d sites while it is backed up", n)
	}
	later()
	check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		l := sites("ada")
		return len(l.Data) == 0, fmt.Errorf("%+v", l)
	}))
	mails("ada", "Your sites were deleted", 1)
	if l := sites("eve"); len(l.Data) != 1 || l.Data[0].Status != "active" {
		t.Errorf("a user who has paid has the sites %+v", l)
	}
	check(w.Call(ctx, keys["ada"], "POST", "/backups/"+verified().ID+"/restore", map[string]any{"newSite": map[string]any{"name": "again"}}, nil))
	check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		l := sites("ada")
		return len(l.Data) == 1 && strings.Contains(l.Data[0].Status, "active"), fmt.Errorf("%+v", l)
	}))
}
