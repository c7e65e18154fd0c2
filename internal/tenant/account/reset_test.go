package account_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/mail/mailtest"
)

// office is an account service with a mail server and a job worker.
type office struct {
	*account.Accounts
	t   *testing.T
	db  *db.DB
	srv *mailtest.Server
}

func posting(t *testing.T, c mailtest.Config) *office {
	t.Helper()
	o := &office{t: t, db: dbtest.New(t), srv: mailtest.New(t, c)}
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.New(mail.Config{Addr: o.srv.Addr, From: "noreply@slipway.test"})
	if err != nil {
		t.Fatal(err)
	}
	o.Accounts = account.New(account.Config{DB: o.db, HashMemory: 64, Seal: s, Mail: m, Site: "https://slipway.test/"})
	return o
}

// work runs jobs until the test ends.
func (o *office) work() {
	o.t.Helper()
	j := job.New(job.Config{
		DB:     o.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{"default": 2, account.MailQueue: 2},
		Poll:   20 * time.Millisecond,
		Drain:  10 * time.Second,
	})
	o.Work(j)
	done := make(chan error, 1)
	ctx := o.t.Context()
	go func() { done <- j.Run(ctx) }()
	o.t.Cleanup(func() {
		if err := <-done; err != nil {
			o.t.Error(err)
		}
	})
}

// until waits until a query returns true.
func (o *office) until(what, query string) {
	o.t.Helper()
	wait.Until(o.t, what, func() (ok bool) {
		if err := o.db.QueryRow(o.t.Context(), query).Scan(&ok); err != nil {
			o.t.Fatal(err)
		}
		return ok
	})
}

// idle waits until all jobs are done.
func (o *office) idle() {
	o.t.Helper()
	o.until("all jobs done", `SELECT NOT EXISTS (SELECT 1 FROM jobs WHERE state <> 'dead')`)
}

func (o *office) ask(email string) {
	o.t.Helper()
	if err := o.AskReset(o.t.Context(), email, laptop); err != nil {
		o.t.Fatal(err)
	}
}

// link returns the token of the link in an email.
func link(t *testing.T, m mailtest.Mail) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^https://slipway\.test/setup/(\S+)$`).FindStringSubmatch(m.Text)
	if found == nil {
		t.Fatalf("no link in %q", m.Text)
	}
	return found[1]
}

// A user who forgot the password gets a link that sets a new one, once. Then every session ends, and the user is
// notified by email.
func TestReset(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	ada := enrol(t, o.Accounts, "ada@example.test")
	_, old := signIn(t, o.Accounts, "ada@example.test")
	o.work()
	o.ask(" Ada@Example.test ")
	got := o.srv.Wait(1)[0]
	if got.To != "ada@example.test" || got.Subject != "Choose a new password" || !strings.Contains(got.Text, here.String()) {
		t.Errorf("got %+v", got)
	}
	token := link(t, got)
	var kept int
	if err := o.db.QueryRow(
		ctx,
		`SELECT count(*) FROM setup_links WHERE hash = $1 AND expires_at > $2 AND expires_at <= $3`,
		account.Digest(token),
		db.Now().Add(59*time.Minute),
		db.Now().Add(time.Hour),
	).Scan(&kept); err != nil || kept != 1 {
		t.Errorf("the link is not kept as a digest for an hour: %d, %v", kept, err)
	}
	if _, err := o.CheckPassword(ctx, "ada@example.test", good); err != nil || !alive(t, o.Accounts, old) {
		t.Error("asking has changed something:", err)
	}
	const next = "another good password 3"
	if _, _, err := o.SetUp(ctx, token, "", "short", laptop); !fault.Is(err, fault.Invalid) {
		t.Error("a password that is not good enough:", err)
	}
	s, session, err := o.SetUp(ctx, token, "eve@example.test", next, laptop)
	if err != nil || s.User != ada.ID || s.Pending || !alive(t, o.Accounts, session) || alive(t, o.Accounts, old) {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, _, err := o.SetUp(ctx, token, "", good, laptop); !fault.Is(err, fault.NotFound) {
		t.Error("the link works twice:", err)
	}
	told := o.srv.Wait(2)[1]
	if told.To != "ada@example.test" || told.Subject != "Your password was changed" || !strings.Contains(
		told.Text,
		here.String(),
	) || !strings.Contains(told.Text, "https://slipway.test/forgot") {
		t.Errorf("told %+v", told)
	}
	o.idle()
	log, err := o.Audit(ctx, audit.Filter{User: ada.ID, Action: "password"})
	if err != nil || len(log) != 2 || log[0].Action != "password.set" || !strings.Contains(
		log[0].Detail,
		"mailed",
	) || log[1].Action != "password.reset_mailed" || log[1].Addr != here.String() {
		t.Errorf("log %+v, %v", log, err)
	}
}

// A reset link expires after an hour, when a newer link is created, and when the password changes.
func TestResetLinkEnds(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	ada := enrol(t, o.Accounts, "ada@example.test")
	o.work()
	n := 0
	fresh := func() string {
		o.ask("ada@example.test")
		n++
		return link(t, o.srv.Wait(n)[n-1])
	}
	works := func(token string) bool {
		_, err := o.SetupLink(ctx, token)
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	first := fresh()
	second := fresh()
	if works(first) || !works(second) {
		t.Error("an older link works beside a newer one")
	}
	operators, err := o.NewSetupLink(ctx, ada.ID, account.LinkLife)
	if err != nil {
		t.Fatal(err)
	}
	third := fresh()
	if !works(operators) || !works(third) {
		t.Error("asking by mail ends the operator's link")
	}
	s, _ := signIn(t, o.Accounts, "ada@example.test")
	if _, _, err := o.ChangePassword(ctx, s, good, "another good password 3", laptop); err != nil {
		t.Fatal(err)
	}
	n++ // skip the notification of the change
	if got := o.srv.Wait(n)[n-1]; got.Subject != "Your password was changed" {
		t.Errorf("got %q", got.Subject)
	}
	if works(third) || works(operators) {
		t.Error("a link outlives a change of the password")
	}
	last := fresh()
	write(t, o.db, `UPDATE setup_links SET expires_at = $1`, db.Now())
	if works(last) {
		t.Error("a link works after its time")
	}
}

// A password reset doesn't bypass the second factor.
func TestResetOwesFactor(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	ada := enrol(t, o.Accounts, "ada@example.test")
	s0, _ := signIn(t, o.Accounts, "ada@example.test")
	offer, err := o.OfferTOTP(ctx, s0)
	if err != nil {
		t.Fatal(err)
	}
	codes, err := o.ConfirmTOTP(ctx, audit.Actor{
		User:    ada.ID,
		Session: s0.ID,
		Addr:    here,
	}, offer.Token, codeAt(t, offer.Secret, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	o.work()
	o.ask("ada@example.test")
	s, _, err := o.SetUp(ctx, link(t, o.srv.Wait(1)[0]), "", "another good password 3", laptop)
	if err != nil || !s.Pending {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, _, err := o.PassFactor(ctx, s, codes[0], laptop); err != nil {
		t.Error(err)
	}
}

// A request for a reset behaves the same for every address, known or unknown. Only a user with a password who isn't
// suspended gets an email.
func TestAskingTellsNothing(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	enrol(t, o.Accounts, "ada@example.test")
	user(t, o.Accounts, "invited@example.test")
	out := enrol(t, o.Accounts, "out@example.test")
	suspend(t, o.Accounts, o.db, out.ID)
	for _, email := range []string{"nobody@example.test", "invited@example.test", "out@example.test", "\u212Ada@example.test"} {
		o.ask(email)
	}
	o.ask("ada@example.test")
	// Every request leaves one job and nothing else, so that known and unknown addresses look the same.
	var jobs, links, entries int
	if err := o.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM jobs WHERE kind = 'account.reset' AND state = 'ready'), (SELECT count(*) FROM setup_links), (SELECT count(*) FROM audit)`).Scan(
		&jobs,
		&links,
		&entries,
	); err != nil || jobs != 5 ||
		links != 0 ||
		entries != 0 {
		t.Errorf("%d jobs, %d links, %d lines of the log, %v", jobs, links, entries, err)
	}
	o.work()
	o.srv.Wait(1)
	o.idle()
	if got := o.srv.All(); len(got) != 1 || got[0].To != "ada@example.test" {
		t.Errorf("mails: %+v", got)
	}
	for _, bad := range []string{"", "nonsense", "a@b.test\r\nBcc: eve@example.test", "a@b.test, c@d.test"} {
		if err := o.AskReset(ctx, bad, laptop); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	a, _ := guarded(t)
	if err := a.AskReset(ctx, "ada@example.test", laptop); !fault.Is(err, fault.Conflict) || a.Mails() {
		t.Errorf("without mail: %v", err)
	}
}

// Emails survive a mail server that is down. An expired link isn't sent, and the queue's contents are encrypted in the
// database.
func TestMailsWaitForTheServer(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	enrol(t, o.Accounts, "ada@example.test")
	enrol(t, o.Accounts, "late@example.test")
	addr := o.srv.Addr
	o.srv.Stop()
	o.work()
	o.ask("ada@example.test")
	o.ask("late@example.test")
	o.until(
		"two mails failed, and nothing else is left",
		`SELECT count(*) = 2 AND (SELECT count(*) FROM jobs WHERE kind = 'account.reset') = 0 FROM jobs WHERE kind = 'account.mail' AND state = 'ready' AND failures = 1`,
	)
	rows, err := o.db.Query(ctx, `SELECT args FROM jobs`)
	all, err := db.Collect(rows, err, func(s db.Scanner) (text string, err error) { return text, s.Scan(&text) })
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range all {
		if strings.Contains(text, "setup") || strings.Contains(text, "password") || strings.Contains(text, "example.test") {
			t.Errorf("the queue can be read: %s", text)
		}
	}
	o.srv = mailtest.New(t, mailtest.Config{Addr: addr})
	late := `UPDATE jobs SET run_at = 0, args = REPLACE(args, '"Until":', '"Until":1,"Was":') WHERE kind = 'account.mail' AND share = (SELECT id FROM users WHERE email = 'late@example.test')`
	write(t, o.db, late)
	write(t, o.db, `UPDATE jobs SET run_at = 0 WHERE kind = 'account.mail'`)
	if got := o.srv.Wait(1)[0]; got.To != "ada@example.test" {
		t.Errorf("got %+v", got)
	} else if _, err := o.SetupLink(ctx, link(t, got)); err != nil {
		t.Error("the link that came later:", err)
	}
	o.idle()
	if n := len(o.srv.All()); n != 1 {
		t.Errorf("%d mails arrived", n)
	}
}

// A recipient that the mail server refuses permanently isn't retried, and the log says so. One that it refuses
// temporarily is retried.
func TestRefusedRecipient(t *testing.T) {
	t.Parallel()
	now := make(chan bool, 1)
	o := posting(t, mailtest.Config{Refuse: func(to string) error {
		if strings.HasPrefix(to, "gone") {
			return mailtest.Permanent("No such mailbox here")
		}
		select {
		case <-now:
			return nil
		default:
			return mailtest.Temporary("Come again")
		}
	}})
	ctx := t.Context()
	gone := enrol(t, o.Accounts, "gone@example.test")
	enrol(t, o.Accounts, "busy@example.test")
	o.work()
	o.ask("gone@example.test")
	o.idle()
	if n := o.srv.Tried(); n != 1 {
		t.Errorf("tried %d times", n)
	}
	log, err := o.Audit(ctx, audit.Filter{User: gone.ID, Action: "mail.undelivered"})
	if err != nil || len(log) != 1 || !strings.Contains(log[0].Detail, "To gone@example.test: 550 ") ||
		!strings.Contains(log[0].Detail, "No such mailbox here") || log[0].User != "" || log[0].Via == "" {
		t.Errorf("log %+v, %v", log, err)
	}
	o.ask("busy@example.test")
	o.until("failed for now", `SELECT count(*) = 1 FROM jobs WHERE kind = 'account.mail' AND state = 'ready' AND failures = 1`)
	now <- true
	write(t, o.db, `UPDATE jobs SET run_at = 0 WHERE kind = 'account.mail'`)
	o.srv.Wait(1)
	// An email that keeps failing is given up, and the log says so.
	o.idle()
	o.ask("busy@example.test")
	o.until("failed for now", `SELECT count(*) = 1 FROM jobs WHERE kind = 'account.mail' AND state = 'ready' AND failures = 1`)
	write(t, o.db, `UPDATE jobs SET run_at = 0, failures = 1000 WHERE kind = 'account.mail'`)
	o.until("given up", `SELECT count(*) = 2 FROM audit WHERE action = 'mail.undelivered'`)
	if log, err = o.Audit(ctx, audit.Filter{Action: "mail.undelivered"}); err != nil || !strings.HasPrefix(log[0].Detail, "To busy@example.test: ") {
		t.Errorf("log %+v, %v", log, err)
	}
}

// An invitation is also emailed, with the link that the operator sees. Choosing the first password sends no
// notification of a changed password.
func TestInvitationByMail(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	ctx := t.Context()
	var token string
	invite := func(tx *db.Tx) error {
		u, secret, err := o.InviteTx(ctx, tx, "bob@example.test", false)
		if err != nil {
			return err
		}
		token = secret
		return o.MailInvitationTx(ctx, tx, u, token)
	}
	back := &fault.Error{Kind: fault.Conflict, Message: "taken back"}
	if err := o.db.Write(ctx, func(tx *db.Tx) error {
		if err := invite(tx); err != nil {
			return err
		}
		return back
	}); err != back {
		t.Fatal(err)
	}
	if err := o.db.Write(ctx, invite); err != nil {
		t.Fatal(err)
	}
	o.work()
	got := o.srv.Wait(1)[0]
	if got.To != "bob@example.test" || link(t, got) != token {
		t.Errorf("got %+v", got)
	}
	if _, _, err := o.SetUp(ctx, token, "", good, account.Device{Addr: netip.MustParseAddr("::1")}); err != nil {
		t.Fatal(err)
	}
	o.idle()
	if n := len(o.srv.All()); n != 1 {
		t.Errorf("%d mails arrived: one was rolled back, and a first password is no change", n)
	}
}

// PageOf adds a team's slug to the URL of pages that are shown per owner, once.
func TestPageOf(t *testing.T) {
	t.Parallel()
	for want, in := range map[string][2]string{
		"/account/plan":                {"", "/account/plan"},
		"/account/plan?team=acme":      {"acme", "/account/plan"},
		"/account/plan?at=x&team=acme": {"acme", "/account/plan?at=x"},
		"/sites/site_1":                {"acme", "/sites/site_1"},
		"/teams/acme/members":          {"acme", "/teams/acme/members"},
		"/webhooks/wh_1?team=acme":     {"acme", "/webhooks/wh_1"},
	} {
		if got := account.PageOf(in[0], in[1]); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// An owner's members are emailed about the owner's resources, with a link to the page. Suspended members and other
// owners aren't.
func TestTellOwner(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	o.work()
	ada := enrol(t, o.Accounts, "ada@example.test")
	enrol(t, o.Accounts, "bob@example.test")
	tell := func() {
		t.Helper()
		err := o.db.Write(t.Context(), func(tx *db.Tx) error {
			return o.TellOwnerTx(t.Context(), tx, ada.Owner, "A site has no backup", "None was made for a week.", "/sites/site_1")
		})
		if err != nil {
			t.Fatal(err)
		}
		o.idle()
	}
	tell()
	err := o.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE users SET suspended_at = 1 WHERE id = $1`, ada.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tell()
	mails := o.srv.All()
	if len(mails) != 1 || mails[0].To != "ada@example.test" || mails[0].Subject != "A site has no backup" || !strings.HasPrefix(
		mails[0].Text,
		"None was made for a week.\n\nhttps://slipway.test/sites/site_1\n",
	) {
		t.Errorf("mailed: %+v", mails)
	}
}

// Every operator gets operator messages, and other users don't.
func TestTellOperators(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	o.work()
	for _, name := range []string{"ada", "bob", "cyd", "dan"} {
		enrol(t, o.Accounts, name+"@example.test")
	}
	err := o.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `UPDATE users SET admin = email <> 'bob@example.test', suspended_at = CASE WHEN email = 'cyd@example.test' THEN 1 ELSE 0 END`); err != nil {
			return err
		}
		return o.TellOperatorsTx(t.Context(), tx, "Slipway was upgraded", "To 2.0.0.", "/operator")
	})
	if err != nil {
		t.Fatal(err)
	}
	o.idle()
	var to []string
	for _, m := range o.srv.All() {
		to = append(to, m.To)
	}
	slices.Sort(to)
	if !slices.Equal(to, []string{"ada@example.test", "dan@example.test"}) {
		t.Errorf("mailed: %v", to)
	}
}

// Emails to addresses outside the installation are limited per address across all owners, and per owner in total.
func TestMailsToStrangersAreBounded(t *testing.T) {
	t.Parallel()
	o := posting(t, mailtest.Config{})
	as := func(user account.UserID, owner account.OwnerID, address string) error {
		by := account.Caller{User: user, Owner: owner}
		return o.db.Write(t.Context(), func(tx *db.Tx) error {
			return o.MailAddressTx(t.Context(), tx, by, address, "Invitation", "{page}", "/x", 0)
		})
	}
	send := func(owner account.OwnerID, address string) error {
		return as(account.UserID("usr_"+owner), owner, address)
	}
	for n := range 10 {
		if err := send(account.OwnerID(fmt.Sprint("own_", n)), "victim@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := send("own_99", "victim@example.test"); !fault.Is(err, fault.Limited) {
		t.Errorf("an eleventh mail to one address: %v", err)
	}
	for n := range 200 {
		if err := send("own_eve", fmt.Sprintf("a%d@example.test", n)); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := send("own_eve", "more@example.test"); !fault.Is(err, fault.Limited) {
		t.Errorf("the mail after the last one of an owner: %v", err)
	}
	if err := send("own_ada", "more@example.test"); err != nil {
		t.Errorf("another owner's: %v", err)
	}
	for n := range 200 { // ten for each of twenty teams
		if err := as("usr_mallory", account.OwnerID(fmt.Sprint("own_team_", n/10)), fmt.Sprintf("b%d@example.test", n)); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := as("usr_mallory", "own_team_new", "c@example.test"); !fault.Is(err, fault.Limited) {
		t.Errorf("one more mail of a user by one more team: %v", err)
	}
	if err := o.db.Admin(t.Context(), `UPDATE address_mails SET at = at - 24 * 60 * 60 * 1000 - 1`); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(send("own_eve", "more@example.test"), send("own_99", "victim@example.test")); err != nil {
		t.Errorf("a day later: %v", err)
	}
}
