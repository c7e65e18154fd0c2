package account_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

var laptop = account.Device{Agent: "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", Addr: here}

// guarded returns accounts on which two-factor authentication and passkeys work.
func guarded(t *testing.T) (*account.Accounts, *db.DB) {
	t.Helper()
	d := dbtest.New(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return account.New(account.Config{DB: d, HashMemory: 64, Seal: s, Site: "https://slipway.test"}), d
}

func enrol(t *testing.T, a *account.Accounts, email string) account.User {
	t.Helper()
	u, err := a.CreateUser(t.Context(), email, good, false)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func signIn(t *testing.T, a *account.Accounts, email string) (account.Session, string) {
	t.Helper()
	s, token, err := a.SignIn(t.Context(), email, good, laptop)
	if err != nil {
		t.Fatal(err)
	}
	return s, token
}

func write(t *testing.T, d *db.DB, q string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), q, args...); return err }); err != nil {
		t.Fatal(err)
	}
}

// alive reports whether the token still opens a session.
func alive(t *testing.T, a *account.Accounts, token string) bool {
	t.Helper()
	_, _, err := a.Session(t.Context(), token, laptop)
	if err != nil && !fault.Is(err, fault.Unauthorized) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSession(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	if _, _, err := a.SignIn(ctx, "ada@example.test", "wrong", laptop); !fault.Is(err, fault.Unauthorized) {
		t.Fatal(err)
	}
	s, token := signIn(t, a, "ada@example.test")
	if s.Pending || s.User != ada.ID || len(token) != 43 || !s.Fresh() {
		t.Fatalf("%+v %q", s, token)
	}
	var stored string
	if err := d.QueryRow(ctx, `SELECT hash FROM sessions`).Scan(&stored); err != nil || stored == token || len(stored) != 64 {
		t.Fatalf("stored %q, %v", stored, err)
	}
	got, u, err := a.Session(ctx, token, laptop)
	if err != nil || got.ID != s.ID || u != ada {
		t.Fatalf("%+v %+v %v", got, u, err)
	}
	for _, bad := range []string{"", "x", token[:42] + "!", strings.Repeat("A", 43), stored} {
		if alive(t, a, bad) {
			t.Errorf("token %q opens a session", bad)
		}
	}
	for name, end := range map[string]func(id account.SessionID){
		"too old": func(id account.SessionID) {
			write(t, d, `UPDATE sessions SET expires_at = $1 WHERE id = $2`, db.Now(), id)
		},
		"not used": func(id account.SessionID) {
			write(t, d, `UPDATE sessions SET seen_at = $1 WHERE id = $2`, db.Now().Add(-account.Idle), id)
		},
		"gone": func(id account.SessionID) { write(t, d, `DELETE FROM sessions WHERE id = $1`, id) },
	} {
		s, token := signIn(t, a, "ada@example.test")
		end(s.ID)
		if alive(t, a, token) {
			t.Errorf("a session that is %s still opens", name)
		}
	}
	write(t, d, `UPDATE sessions SET seen_at = seen_at - 3600000, proven_at = proven_at - 3600000 WHERE id = $1`, string(s.ID))
	if s, _, err := a.Session(ctx, token, laptop); err != nil || db.Now().Sub(s.SeenAt) > time.Minute || s.Fresh() {
		t.Fatalf("the use was not noted: %+v, %v", s, err)
	}
	if err := a.Prove(ctx, s, "wrong"); !fault.Is(err, fault.Unauthorized) {
		t.Error(err)
	}
	if err := a.Prove(ctx, s, good); err != nil {
		t.Fatal(err)
	}
	if s, _, _ := a.Session(ctx, token, laptop); !s.Fresh() {
		t.Error("the proof was not noted")
	}
}

func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada, eve := enrol(t, a, "ada@example.test"), enrol(t, a, "eve@example.test")
	first, one := signIn(t, a, "ada@example.test")
	second, two := signIn(t, a, "ada@example.test")
	list, err := a.Sessions(ctx, ada.ID)
	if err != nil || len(list) != 2 || list[0].Agent != laptop.Agent || list[0].Addr != here.String() {
		t.Fatalf("%+v, %v", list, err)
	}
	end := func(owner account.UserID, id account.SessionID) error {
		return d.Write(ctx, func(tx *db.Tx) error { return a.EndSessionTx(ctx, tx, owner, id) })
	}
	if err := end(eve.ID, first.ID); !fault.Is(err, fault.NotFound) || !alive(t, a, one) {
		t.Fatalf("a stranger ended a session: %v", err)
	}
	if err := end(ada.ID, first.ID); err != nil || alive(t, a, one) || !alive(t, a, two) {
		t.Fatal("ending one session:", err)
	}
	_, three := signIn(t, a, "ada@example.test")
	_, hers := signIn(t, a, "eve@example.test")
	if err := d.Write(ctx, func(tx *db.Tx) error {
		n, err := a.EndSessionsTx(ctx, tx, ada.ID, second.ID)
		if n != 1 {
			t.Errorf("%d sessions ended, want 1", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if alive(t, a, three) || !alive(t, a, two) || !alive(t, a, hers) {
		t.Error("ending the others ended the wrong ones")
	}
}

func TestPasswordEndsSessions(t *testing.T) {
	t.Parallel()
	a, _ := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	s, one := signIn(t, a, "ada@example.test")
	_, two := signIn(t, a, "ada@example.test")
	const next = "another good password 3"
	if _, _, err := a.ChangePassword(ctx, s, "wrong", next, laptop); !fault.Is(err, fault.Unauthorized) || !alive(t, a, two) {
		t.Fatal("changed without the old one:", err)
	}
	if _, _, err := a.ChangePassword(ctx, s, good, "short", laptop); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	_, three, err := a.ChangePassword(ctx, s, good, next, laptop)
	if err != nil || alive(t, a, one) || alive(t, a, two) || !alive(t, a, three) {
		t.Fatal("after the change:", err, alive(t, a, one), alive(t, a, two), alive(t, a, three))
	}
	link, err := a.NewSetupLink(ctx, ada.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, four, err := a.SetUp(ctx, link, "", good, laptop)
	if err != nil || alive(t, a, three) || !alive(t, a, four) {
		t.Fatal("after a reset:", err)
	}
}

func TestInvitation(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	boss := enrol(t, a, "boss@example.test")
	invite := func(email string) (u account.User, token string, err error) {
		err = d.Write(ctx, func(tx *db.Tx) error { u, token, err = a.InviteTx(ctx, tx, email, false); return err })
		return u, token, err
	}
	uninvite := func(id account.UserID) error {
		return d.Write(ctx, func(tx *db.Tx) error { return a.UninviteTx(ctx, tx, id) })
	}
	if _, _, err := invite("boss@example.test"); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	bob, token, err := invite("Bob@example.test")
	if err != nil || bob.Password || bob.Admin {
		t.Fatalf("%+v, %v", bob, err)
	}
	if _, _, err := a.SignIn(ctx, "bob@example.test", "", laptop); !fault.Is(err, fault.Unauthorized) {
		t.Fatal("an invited user signs in without a password:", err)
	}
	s, session, err := a.SetUp(ctx, token, "eve@example.test", good, laptop)
	if err != nil || s.User != bob.ID || s.Pending || !alive(t, a, session) {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := uninvite(bob.ID); !fault.Is(err, fault.Conflict) {
		t.Error("the invitation of a user who has signed in was revoked:", err)
	}
	if err := uninvite("usr_nobody"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	carl, token, err := invite("carl@example.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := uninvite(carl.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.SetUp(ctx, token, "", good, laptop); !fault.Is(err, fault.NotFound) {
		t.Error("a link of an invitation taken back works:", err)
	}
	if err := uninvite(boss.ID); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada, eve := enrol(t, a, "ada@example.test"), enrol(t, a, "eve@example.test")
	say := func(by audit.Actor, deed audit.Event) {
		if err := d.Write(ctx, func(tx *db.Tx) error { return a.AuditTx(ctx, tx, by, deed) }); err != nil {
			t.Fatal(err)
		}
	}
	say(audit.Actor{
		User: ada.ID,
		Key:  "key_a",
		Addr: here,
	}, audit.Event{Action: "site.created", Subject: "site_a", Detail: strings.Repeat("ä", 300) + "\xff\x00"})
	say(audit.Actor{User: ada.ID, Session: "ses_a"}, audit.Event{Action: "key.created", Subject: "key_b"})
	say(audit.Actor{User: eve.ID}, audit.Event{Action: "keyboard.typed"})
	say(audit.Actor{User: eve.ID}, audit.Event{Action: "second_factor.disabled", About: ada.ID})
	look := func(f audit.Filter) string {
		list, err := a.Audit(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range list {
			out = append(out, e.Action)
		}
		return strings.Join(out, " ")
	}
	for want, f := range map[string]audit.Filter{
		"second_factor.disabled key.created site.created": {User: ada.ID},
		"second_factor.disabled keyboard.typed":           {User: eve.ID},
		"key.created":                                     {Action: "key"},
		"keyboard.typed":                                  {Action: "keyboard.typed"},
		"second_factor.disabled":                          {Limit: 1},
	} {
		if got := look(f); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
	list, err := a.Audit(ctx, audit.Filter{User: ada.ID})
	if err != nil {
		t.Fatal(err)
	}
	if e := list[2]; e.Key != "key_a" || e.Addr != here.String() || e.Email != "ada@example.test" || len([]rune(e.Detail)) != 200 || strings.ContainsRune(
		e.Detail,
		0,
	) ||
		!utf8.ValidString(e.Detail) {
		t.Errorf("%+v", e)
	}
	if got := look(audit.Filter{User: ada.ID, Before: list[1].ID}); got != "site.created" {
		t.Errorf("older: %q", got)
	}
	// Successful and failed sign-ins are in the audit log, but nothing is written for unknown users. Failures are
	// written in batches, at the latest at shutdown.
	signIn(t, a, "ada@example.test")
	for _, email := range []string{"ada@example.test", "nobody@example.test"} {
		if _, _, err := a.SignIn(ctx, email, "wrong", laptop); !fault.Is(err, fault.Unauthorized) {
			t.Fatal(err)
		}
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := a.Run(stopped); err != nil {
		t.Fatal(err)
	}
	if got := look(audit.Filter{Action: "session"}); got != "session.refused session.started" {
		t.Errorf("%q", got)
	}
}

// A failed transaction leaves no audit entry.
func TestAuditRollsBack(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	err := d.Write(ctx, func(tx *db.Tx) error {
		if err := a.AuditTx(ctx, tx, audit.Actor{User: ada.ID}, audit.Event{Action: "key.revoked"}); err != nil {
			return err
		}
		return a.RevokeKeyTx(ctx, tx, ada.Caller(), "key_none")
	})
	if list, err2 := a.Audit(ctx, audit.Filter{}); !fault.Is(err, fault.NotFound) || err2 != nil || len(list) != 0 {
		t.Fatal(err, err2, list)
	}
}

func TestManySessions(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ada := enrol(t, a, "ada@example.test")
	_, first := signIn(t, a, "ada@example.test")
	write(t, d, `UPDATE sessions SET seen_at = seen_at - 1000`)
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 100 { // rows like those of sign-ins, without the cost of hashing
			if _, err := tx.Exec(t.Context(), `INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at)
				VALUES ($1, $1, $2, 'password', FALSE, '', '', $3, $3, $3, $4)`, db.NewID("x"), string(ada.ID), db.Now()+db.Time(i), db.Now().Add(time.Hour)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, last := signIn(t, a, "ada@example.test")
	list, err := a.Sessions(t.Context(), ada.ID)
	if err != nil || len(list) != 100 || alive(t, a, first) || !alive(t, a, last) {
		t.Fatalf("%d sessions, %v", len(list), err)
	}
}

func TestSecondFactor(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	me := audit.Actor{User: ada.ID, Addr: here}
	first, firstToken := signIn(t, a, "ada@example.test")
	me.Session = first.ID
	offer, err := a.OfferTOTP(ctx, first)
	again, err2 := a.OfferedTOTP(ctx, first, offer.Token)
	if err != nil || err2 != nil || again != offer || len(offer.Secret) != 32 ||
		!strings.HasPrefix(offer.URI, "otpauth://totp/Slipway:ada@example.test?") || !strings.Contains(offer.URI, "secret="+offer.Secret) {
		t.Fatalf("%+v, %v, %v", offer, err, err2)
	}
	unconfirmed, byPassword := signIn(t, a, "ada@example.test")
	if unconfirmed.Pending {
		t.Fatal("a factor that is only offered is asked for")
	}
	if _, err := a.ConfirmTOTP(ctx, me, offer.Token, "000000"); !fault.Is(err, fault.Unauthorized) {
		t.Fatal(err)
	}
	if _, err := a.RenewCodes(ctx, me); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	start := time.Now() // all codes are of this moment, because a time step may end while the test runs
	codes, err := a.ConfirmTOTP(ctx, me, offer.Token, codeAt(t, offer.Secret, start))
	if err != nil || len(codes) != 10 {
		t.Fatal(codes, err)
	}
	if f, err := a.SecondFactor(ctx, ada.ID); err != nil || !f.On || f.Codes != 10 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := a.OfferTOTP(ctx, first); !fault.Is(err, fault.Conflict) {
		t.Error("a secret in force is shown again:", err)
	}
	var box string
	if err := d.QueryRow(
		ctx,
		`SELECT secret FROM second_factors`,
	).Scan(&box); err != nil || !strings.HasPrefix(box, "v1.") || strings.Contains(box, offer.Secret) {
		t.Errorf("stored %q, %v", box, err)
	}

	pending, token := signIn(t, a, "ada@example.test")
	if !pending.Pending {
		t.Fatal("the second factor is not asked for")
	}
	if s, _, err := a.Session(ctx, token, laptop); err != nil || !s.Pending {
		t.Fatalf("%+v, %v", s, err)
	}
	if list, _ := a.Sessions(ctx, ada.ID); len(list) != 2 {
		t.Errorf("%d sessions listed, want the two from before", len(list))
	}
	// The code that turned on the factor was of this time step, so neither it nor an older code works again.
	for _, bad := range []string{
		codeAt(t, offer.Secret, start),
		codeAt(t, offer.Secret, start.Add(-30*time.Second)),
		codeAt(t, offer.Secret, start.Add(90*time.Second)),
		"",
		"12345",
		"1234567",
		"abcd-efgh-ijkl-mnop",
		strings.Repeat("9", 1000),
	} {
		if _, _, err := a.PassFactor(ctx, pending, bad, laptop); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("code %.20q: %v, want unauthorized", bad, err)
		}
	}
	next := codeAt(t, offer.Secret, start.Add(30*time.Second))
	s, full, err := a.PassFactor(ctx, pending, next[:3]+" "+next[3:], laptop)
	if err != nil || s.Pending || s.Method != account.ByTOTP || full == token || !alive(t, a, full) || alive(t, a, token) {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, _, err := a.PassFactor(ctx, pending, next, laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a pending session works twice:", err)
	}
	pending, _ = signIn(t, a, "ada@example.test")
	if _, _, err := a.PassFactor(ctx, pending, next, laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a code works twice:", err)
	}

	// A recovery code works once, in any spelling, and only for its user.
	s, byCode, err := a.PassFactor(ctx, pending, " "+strings.ToUpper(strings.ReplaceAll(codes[3], "-", " "))+" ", laptop)
	if err != nil || s.Method != account.ByRecovery {
		t.Fatal(err)
	}
	pending, _ = signIn(t, a, "ada@example.test")
	if _, _, err := a.PassFactor(ctx, pending, codes[3], laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a recovery code works twice:", err)
	}
	renewed, err := a.RenewCodes(ctx, me)
	if err != nil || len(renewed) != 10 {
		t.Fatal(err)
	}
	if _, _, err := a.PassFactor(ctx, pending, codes[4], laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a renewed recovery code still works:", err)
	}
	if alive(t, a, byCode) || !alive(t, a, full) {
		t.Error("want renewed codes to end the session that an earlier one confirmed, and no other")
	}
	if _, byCode, err = a.PassFactor(ctx, pending, renewed[1], laptop); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	wins := 0
	for range 4 {
		p, _ := signIn(t, a, "ada@example.test")
		wg.Go(func() {
			if _, _, err := a.PassFactor(ctx, p, renewed[0], laptop); err == nil {
				mu.Lock()
				wins++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if wins != 1 {
		t.Errorf("one recovery code let %d in at once", wins)
	}
	if !alive(t, a, full) || !alive(t, a, byCode) {
		t.Error("a session ended before its factor was turned off")
	}
	if err := d.Write(ctx, func(tx *db.Tx) error { return a.DropTOTPTx(ctx, tx, ada.ID, first.ID) }); err != nil {
		t.Fatal(err)
	}
	if alive(t, a, full) || alive(t, a, byCode) || !alive(t, a, firstToken) || !alive(t, a, byPassword) {
		t.Error("want the sessions that the factor and a recovery code confirmed to end, and the one that asked and that of the password to go on")
	}
	if s, _ := signIn(t, a, "ada@example.test"); s.Pending {
		t.Error("a factor that is off is asked for")
	}
}

// A reset with the operator's link doesn't bypass the second factor.
func TestSetUpOwesFactor(t *testing.T) {
	t.Parallel()
	a, _ := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	s0, _ := signIn(t, a, "ada@example.test")
	offer, err := a.OfferTOTP(ctx, s0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.ConfirmTOTP(ctx, audit.Actor{
		User:    ada.ID,
		Session: s0.ID,
	}, offer.Token, codeAt(t, offer.Secret, time.Now())); err != nil {
		t.Fatal(err)
	}
	link, err := a.NewSetupLink(ctx, ada.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err := a.SetUp(ctx, link, "", good, laptop); err != nil || !s.Pending {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A code works once across all of the user's sessions. A pending sign-in ends when the password changes. An offered
// factor belongs to one session of one user and ends with it.
func TestCodesAndOffersEndWithTheirSession(t *testing.T) {
	t.Parallel()
	a, _ := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	eve := enrol(t, a, "eve@example.test")
	mine, _ := signIn(t, a, "ada@example.test")
	second, _ := signIn(t, a, "ada@example.test")
	hers, _ := signIn(t, a, "eve@example.test")
	offer, err := a.OfferTOTP(ctx, mine)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	code := codeAt(t, offer.Secret, now)
	for name, by := range map[string]audit.Actor{
		"another session":                     {User: ada.ID, Session: second.ID},
		"another user":                        {User: eve.ID, Session: hers.ID},
		"a user's name and another's session": {User: eve.ID, Session: mine.ID},
		"no session":                          {User: ada.ID},
	} {
		if _, err := a.ConfirmTOTP(ctx, by, offer.Token, code); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v, want a conflict", name, err)
		}
	}
	if _, err := a.OfferedTOTP(ctx, second, offer.Token); !fault.Is(err, fault.Conflict) {
		t.Errorf("another session sees the secret: %v", err)
	}
	other, err := a.OfferTOTP(ctx, second)
	if err != nil || other.Secret == offer.Secret || other.Token == offer.Token {
		t.Fatalf("two sessions share an offer: %v", err)
	}
	if _, err := a.ConfirmTOTP(ctx, audit.Actor{User: ada.ID, Session: mine.ID}, offer.Token, code); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ConfirmTOTP(ctx, audit.Actor{
		User:    ada.ID,
		Session: second.ID,
	}, other.Token, codeAt(t, other.Secret, now)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second offer was confirmed: %v", err)
	}

	next := codeAt(t, offer.Secret, now.Add(30*time.Second))
	var pending []account.Session
	for range 4 {
		s, _ := signIn(t, a, "ada@example.test")
		pending = append(pending, s)
	}
	var wins atomic.Int64
	var wg sync.WaitGroup
	for _, s := range pending {
		wg.Go(func() {
			if _, _, err := a.PassFactor(ctx, s, next, laptop); err == nil {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("one code let %d in at once", wins.Load())
	}

	old, oldToken := signIn(t, a, "ada@example.test")
	if err := a.SetPassword(ctx, ada.ID, "another good passphrase 17"); err != nil {
		t.Fatal(err)
	}
	if alive(t, a, oldToken) {
		t.Error("a sign-in with the old password still works")
	}
	// Neither the current code nor the next one completes a sign-in that began with the old password.
	for _, at := range []time.Duration{0, 30 * time.Second} {
		if _, _, err := a.PassFactor(ctx, old, codeAt(t, offer.Secret, time.Now().Add(at)), laptop); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("completed with the old password: %v", err)
		}
	}
}
