package retention

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// seen is a clock that processes share, derived from the sealed hours.
type seen struct{ db *db.DB }

func (c seen) Now() db.Time {
	var at db.Time
	if err := c.db.QueryRow(context.Background(), `SELECT hour FROM usage_sealed`).Scan(&at); err != nil {
		panic(err)
	}
	return at.Add(3 * time.Hour)
}

// told stores emails in the database, in the transaction that sends them.
type told struct{ none bool }

func (m told) Mails() bool { return !m.none }

func (told) TellOwnerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, subject, _, _ string) error {
	_, err := tx.Exec(ctx, `INSERT INTO told (owner, subject) VALUES ($1, $2)`, owner, subject)
	return err
}

// services are the services of one process.
type services struct {
	*Retention
	db       *db.DB
	bill     *billing.Billing
	accounts *account.Accounts
	sites    *site.Sites
	hooks    *webhook.Webhooks
	clock    seen
}

// begun is the start of time in these tests.
var begun = db.At(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))

// open returns the services on a database, with their files in dir.
func open(d *db.DB, dir string) (*services, error) {
	sealer, err := seal.Load(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	at, err := blob.Dir(filepath.Join(dir, "backups"))
	if err != nil {
		return nil, err
	}
	s := &services{db: d, clock: seen{d}}
	s.hooks = webhook.New(webhook.Config{DB: d, Seal: sealer, Billing: true})
	s.bill = billing.New(billing.Config{DB: d, Hooks: s.hooks, Usage: usage.New(usage.Config{DB: d}), Clock: s.clock})
	s.accounts = account.New(account.Config{DB: d, HashMemory: 64})
	s.sites = site.New(site.Config{DB: d, Hooks: s.hooks, Seal: sealer, Domain: "sites.test"})
	most := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Backups: 1}}) // the limit of backups doesn't stop a deletion
	s.Retention = New(Config{
		DB: d, Billing: s.bill, Sites: s.sites, Hooks: s.hooks, Mail: told{}, Clock: s.clock,
		Backups: backup.New(backup.Config{
			DB: d, Limits: most, Sites: s.sites, Hooks: s.hooks, Operations: operation.New(operation.Config{DB: d}),
			Repository: repository.New(repository.Config{Backend: at, Seal: sealer}),
		}),
	})
	return s, nil
}

// world is the services of a test.
type world struct {
	*services
	t testing.TB
}

// newWorld returns services with a plan whose sites are deleted after this many days.
func newWorld(t testing.TB, d *db.DB, dir string, days int64) *world {
	t.Helper()
	s, err := open(d, dir)
	ok(t, err)
	w := &world{s, t}
	w.admin(`UPDATE usage_sealed SET hour = %d`, begun.Add(-3*time.Hour))
	w.admin(`CREATE TABLE told (owner TEXT NOT NULL, subject TEXT NOT NULL)`)
	w.write(func(tx *db.Tx) error {
		_, err := w.bill.PublishTx(t.Context(), tx, "", plan.Terms{
			Plan: "pro", Title: "Pro", Currency: "EUR", Term: plan.Month, Amount: 1900, Public: true,
		})
		return err
	})
	w.set(days)
	return w
}

// set changes after how many days sites are deleted.
func (w *world) set(days int64) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller, s.DeleteAfterDays = party.Party{Name: "Acme", Country: "DE"}, days
		return w.bill.SaveSettingsTx(w.t.Context(), tx, "", s)
	})
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), fn))
}

func (w *world) admin(query string, args ...any) {
	w.t.Helper()
	ok(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(query, args...)))
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	ok(w.t, w.db.QueryRow(w.t.Context(), fmt.Sprintf(query, args...)).Scan(&n))
	return n
}

// customer creates an account with a subscription and two sites. Eve has credit for her invoices.
func (w *world) customer(name string) id.Owner {
	w.t.Helper()
	u, err := w.accounts.CreateUser(w.t.Context(), name+"@example.test", "a long password of a test", false)
	ok(w.t, err)
	w.write(func(tx *db.Tx) error {
		if _, err := w.hooks.CreateTx(w.t.Context(), tx, u.Owner, webhook.NewWebhook{
			URL: "https://hooks.example.com/in", Events: []string{"subscription.deletion_scheduled", "site.deleted"},
		}); err != nil {
			return err
		}
		for _, x := range []string{"a", "b"} {
			if _, err := w.sites.CreateTx(w.t.Context(), tx, u.Owner, site.NewSite{Name: name + x, Type: "static", Source: "upload"}); err != nil {
				return err
			}
		}
		if name == "eve" {
			much := billing.Balance{Amount: 1_000_000, Currency: "EUR"}
			if err := w.bill.GiveCreditTx(w.t.Context(), tx, u.Owner, much, "a test"); err != nil {
				return err
			}
		}
		_, _, err := w.bill.DoTx(w.t.Context(), tx, u.Owner, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
		return err
	})
	return u.Owner
}

// until advances time, a day per step, to some days after an account's unpaid subscription ended.
func (w *world) until(o id.Owner, days int) {
	w.t.Helper()
	for range 1000 {
		var ended db.Time
		ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT MAX(ended_at) FROM billing_subscriptions WHERE owner_id = $1`, o).Scan(&ended))
		if ended > 0 && w.clock.Now() >= ended.Add(time.Duration(days)*day) {
			return
		}
		w.admin(`UPDATE usage_sealed SET hour = hour + %d`, day.Milliseconds())
		ok(w.t, w.bill.Tick(w.t.Context()))
		ok(w.t, w.Tick(w.t.Context()))
	}
	w.t.Fatal("the subscription doesn't end")
}

// backs completes the pending backups with a status.
func (w *world) backs(status, why string, verified int) {
	w.t.Helper()
	w.admin(`UPDATE backups SET status = '%s', error = '%s', verified_at = %d WHERE status = 'pending'`, status, why, verified)
}

// stands compares an account's notices, events, backups and sites with the expected numbers.
func (w *world) stands(when string, o id.Owner, notices, events, backups, sites, deleted int) {
	w.t.Helper()
	got := []int{
		w.count(`SELECT count(*) FROM told WHERE owner = '%s' AND subject LIKE 'Your sites will be deleted on %%'`, o),
		w.count(`SELECT count(*) FROM webhook_events WHERE owner_id = '%s' AND name = 'subscription.deletion_scheduled'`, o),
		w.count(`SELECT count(*) FROM backups WHERE owner_id = '%s' AND type = 'before_delete'`, o),
		w.count(`SELECT count(*) FROM sites WHERE owner_id = '%s' AND deleted_at = 0`, o),
		w.count(`SELECT count(*) FROM told WHERE owner = '%s' AND subject = 'Your sites were deleted'`, o),
	}
	if want := []int{notices, events, backups, sites, deleted}; fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: notices, events, backups, sites and mails of a deletion are %v, want %v", when, got, want)
	}
}

// Three notices are sent once each, 30 days, 7 days and a day before. Then each site is backed up and deleted once its
// backup is verified. A backup that failed or can't be restored is repeated. Other accounts' sites are unaffected.
func TestDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t), t.TempDir(), 30)
	ada, eve := w.customer("ada"), w.customer("eve")
	w.until(ada, 0)
	w.stands("when it ended", ada, 1, 1, 0, 2, 0)
	if p, on, err := Of(t.Context(), w.db, ada); err != nil || !on || p.Notices != 1 || p.DeleteAt.Sub(w.clock.Now()) != 30*day {
		t.Errorf("%+v, %t, %v", p, on, err)
	}
	w.until(ada, 22)
	w.stands("8 days before", ada, 1, 1, 0, 2, 0)
	w.until(ada, 23)
	w.stands("7 days before", ada, 2, 2, 0, 2, 0)
	w.until(ada, 28)
	w.stands("2 days before", ada, 2, 2, 0, 2, 0)
	w.until(ada, 29)
	w.stands("a day before", ada, 3, 3, 0, 2, 0)
	w.until(ada, 30)
	w.stands("then", ada, 3, 3, 2, 2, 0)
	w.until(ada, 31)
	w.stands("while they are backed up", ada, 3, 3, 2, 2, 0)
	w.backs("failed", "a test", 0)
	w.until(ada, 32)
	w.stands("an hour after they failed, at most", ada, 3, 3, 2, 2, 0)
	w.admin(`UPDATE backups SET created_at = created_at - 1`)
	later := fmt.Sprint(time.Hour.Milliseconds())
	w.admin(`UPDATE backups SET created_at = created_at - %s`, later)
	w.admin(`UPDATE retention SET backups_since = backups_since - %s - 1`, later)
	w.until(ada, 33)
	w.stands("later", ada, 3, 3, 4, 2, 0)
	w.admin(`UPDATE backups SET status = 'completed', verified_at = 1 WHERE id = (SELECT MIN(id) FROM backups WHERE status = 'pending')`)
	w.until(ada, 34)
	w.stands("with one verified", ada, 3, 3, 4, 2, 0)
	w.backs("completed", "", 0)
	w.until(ada, 35)
	w.stands("with another not verified", ada, 3, 3, 4, 2, 0)
	w.admin(`UPDATE backups SET verified_at = 1 WHERE status = 'completed'`)
	w.until(ada, 36)
	w.stands("in the end", ada, 3, 3, 4, 0, 1)
	w.until(ada, 60)
	w.stands("long after", ada, 3, 3, 4, 0, 1)
	w.stands("somebody else", eve, 0, 0, 0, 2, 0)
	if _, on, err := Of(t.Context(), w.db, ada); err != nil || on {
		t.Errorf("something is planned: %v", err)
	}
}

// A site isn't deleted if its account pays, or has a payment in progress, before the last step, if the operator turned
// deletion off, or if emails can't be sent.
func TestKeeps(t *testing.T) {
	t.Parallel()
	pay := func(w *world, o id.Owner) {
		w.write(func(tx *db.Tx) error {
			list, err := w.bill.Invoices(w.t.Context(), tx, o, "", 100)
			for _, i := range list {
				if left := i.Remaining(); err == nil && left > 0 {
					_, err = w.bill.RecordTx(w.t.Context(), tx, string(i.ID), billing.Received{Amount: left, Reference: string(i.ID)})
				}
			}
			return err
		})
	}
	for name, x := range map[string]struct {
		days int
		do   func(w *world, o id.Owner)
	}{
		"paid after the first notice":  {0, pay},
		"paid after the second notice": {24, pay},
		"paid after the third notice":  {29, pay},
		"paid while it is backed up":   {30, pay},
		"a payment under way": {29, func(w *world, o id.Owner) {
			w.admin(`INSERT INTO billing_payments (id, owner_id, invoice_id, subscription_id, provider, attempt, amount, currency, status, failure_code,
				reference, received_at, next_attempt_at, created_at)
				SELECT 'pay_x', owner_id, id, subscription_id, 'x', 99, 1, 'EUR', 'unknown', '', '', 0, 0, 0 FROM billing_invoices
				WHERE owner_id = '%s' AND status = 'open' ORDER BY id LIMIT 1`, o)
		}},
		"the operator":  {29, func(w *world, _ id.Owner) { w.set(0) }},
		"nobody's told": {0, func(w *world, _ id.Owner) { w.c.Mail = told{none: true} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dbtest.New(t), t.TempDir(), 30)
			o := w.customer("ada")
			w.until(o, x.days)
			if n := w.count(`SELECT count(*) FROM told WHERE subject LIKE 'Your sites%%'`); n == 0 {
				t.Fatal("nothing was announced")
			}
			w.backs("completed", "", 1)
			x.do(w, o)
			w.admin(`UPDATE usage_sealed SET hour = hour + %d`, (10 * day).Milliseconds())
			for range 3 {
				if w.c.Mail.Mails() { // as for an account that paid after it was found unpaid
					ok(t, w.step(t.Context(), o))
				}
				ok(t, w.Tick(t.Context()))
				w.backs("completed", "", 1)
				w.admin(`UPDATE usage_sealed SET hour = hour + %d`, (2 * day).Milliseconds())
			}
			if n := w.count(`SELECT count(*) FROM sites WHERE deleted_at = 0`); n != 2 {
				t.Errorf("%d of 2 sites are left", n)
			}
		})
	}
}

// Without the operator's setting, nothing is announced or deleted.
func TestOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t), t.TempDir(), 0)
	o := w.customer("ada")
	w.until(o, 400)
	w.stands("without", o, 0, 0, 0, 2, 0)
}

// A process that was down on the deletion date still leaves the time between the remaining notices: 7 days after the
// second, one day after the third.
func TestDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t), t.TempDir(), 30)
	o := w.customer("ada")
	w.until(o, 0)
	w.admin(`UPDATE usage_sealed SET hour = hour + %d`, (100 * day).Milliseconds())
	ok(t, w.Tick(t.Context()))
	ok(t, w.Tick(t.Context()))
	w.stands("back", o, 2, 2, 0, 2, 0)
	w.admin(`UPDATE usage_sealed SET hour = hour + %d`, (50 * day).Milliseconds())
	ok(t, w.Tick(t.Context()))
	ok(t, w.Tick(t.Context()))
	w.stands("back again", o, 3, 3, 0, 2, 0)
	w.admin(`UPDATE usage_sealed SET hour = hour + %d`, day.Milliseconds())
	ok(t, w.Tick(t.Context()))
	w.stands("a day later", o, 3, 3, 2, 2, 0)
}

func TestMain(m *testing.M) {
	if at := os.Getenv(childVariable); at != "" {
		dir, url, _ := strings.Cut(at, " ")
		fmt.Println("ended:", work(dir, url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}
