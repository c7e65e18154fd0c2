package account_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

func suspend(t *testing.T, a *account.Accounts, d *db.DB, u account.UserID) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := a.SuspendTx(t.Context(), tx, audit.Actor{Via: "a test"}, u, "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// suspended reports whether err has the code account_suspended.
func suspended(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == "account_suspended"
}

// No sign-in method works for a suspended user, including sign-ins that began before the suspension. The user's
// requests in progress fail.
func TestSuspendedUserGetsInByNothing(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	me := audit.Actor{User: ada.ID, Addr: here}
	s, token := signIn(t, a, "ada@example.test")
	_, secret, err := a.CreateKey(ctx, ada.ID, account.NewKey{Name: "CI", Scopes: account.Scopes{account.All}})
	if err != nil {
		t.Fatal(err)
	}
	phone := newDevice(t, "https://slipway.test")
	offer, err := a.OfferPasskey(ctx, ada.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.AddPasskey(ctx, me, "Phone", offer.Token, phone.create(offer)); err != nil {
		t.Fatal(err)
	}
	phone.auth.AddCredential(phone.cred)
	asked, err := a.AskPasskey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	link, err := a.NewSetupLink(ctx, ada.ID, account.LinkLife)
	if err != nil {
		t.Fatal(err)
	}
	s0, _ := signIn(t, a, "ada@example.test")
	me.Session = s0.ID
	o, err := a.OfferTOTP(ctx, s0)
	if err != nil {
		t.Fatal(err)
	}
	codes, err := a.ConfirmTOTP(ctx, me, o.Token, codeAt(t, o.Secret, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	pending, half, err := a.SignIn(ctx, "ada@example.test", good, laptop)
	if err != nil || !pending.Pending {
		t.Fatal(err)
	}

	suspend(t, a, d, ada.ID)
	if alive(t, a, token) || alive(t, a, half) {
		t.Error("a session still works")
	}
	if _, err := a.Authenticate(ctx, secret, here); !suspended(err) || !fault.Is(err, fault.Unauthorized) {
		t.Error("the key:", err)
	}
	if _, _, err := a.SignIn(ctx, "ada@example.test", good, laptop); !suspended(err) || !fault.Is(err, fault.Forbidden) {
		t.Error("the password:", err)
	}
	if _, _, err := a.SignIn(ctx, "ada@example.test", "wrong", laptop); suspended(err) || !fault.Is(err, fault.Unauthorized) {
		t.Error("a wrong password:", err)
	}
	if _, _, err := a.PassFactor(ctx, pending, codes[0], laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("the second factor of a sign-in that was begun:", err)
	}
	if _, _, err := a.SignInPasskey(ctx, asked.Token, phone.sign(asked), laptop); !suspended(err) {
		t.Error("the passkey:", err)
	}
	if _, _, err := a.SetUp(ctx, link, "", "another good password 3", laptop); !suspended(err) {
		t.Error("the link:", err)
	}
	// Changes in progress during the suspension fail.
	for name, err := range map[string]error{
		"recovery codes": second(a.RenewCodes(ctx, me)),
		"a change":       d.Write(ctx, func(tx *db.Tx) error { return a.AuditTx(ctx, tx, me, audit.Event{Action: "site.deleted"}) }),
		"the password": func() error {
			_, _, err := a.ChangePassword(ctx, s, good, "another good password 3", laptop)
			return err
		}(),
	} {
		if !suspended(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A session that a race created after the suspension doesn't work either.
	write(t, d, `INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at)
		SELECT 'x', 'ses_x', id, 'password', FALSE, '', '', $1, $1, $1, $2 FROM users`, db.Now(), db.Now().Add(account.Lifetime))
	write(t, d, `UPDATE sessions SET hash = $1`, account.Digest(token))
	if alive(t, a, token) {
		t.Error("a session that was left behind opens")
	}

	if err := d.Write(ctx, func(tx *db.Tx) error { _, err := a.ResumeTx(ctx, tx, ada.ID); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(ctx, secret, here); err != nil {
		t.Error("the key, afterwards:", err)
	}
	again, _, err := a.SignIn(ctx, "ada@example.test", good, laptop)
	if err != nil || !again.Pending {
		t.Error("the password, afterwards:", err)
	}
	if _, _, err := a.PassFactor(ctx, again, codes[0], laptop); err != nil {
		t.Error("the recovery code that was refused is spent:", err)
	}
	if _, _, err := a.SetUp(ctx, link, "", "another good password 3", laptop); err != nil {
		t.Error("the link that was refused is spent:", err)
	}
}

func second[T any](_ T, err error) error { return err }

// When two operators remove each other's role or suspend each other at the same time, one stays an operator.
func TestTwoOperatorsRemoveEachOther(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	for name, remove := range map[string]func(tx *db.Tx, by, id account.UserID) error{
		"role": func(tx *db.Tx, by, id account.UserID) error { return second(a.SetRoleTx(ctx, tx, id, false)) },
		"suspend": func(tx *db.Tx, by, id account.UserID) error {
			return second(a.SuspendTx(ctx, tx, audit.Actor{User: by}, id, ""))
		},
		"delete": func(tx *db.Tx, by, id account.UserID) error {
			return second(a.DeleteUserTx(ctx, tx, audit.Actor{User: by}, id))
		},
	} {
		write(t, d, `UPDATE users SET admin = FALSE`)
		var both [2]account.User
		for i := range both {
			u, err := a.CreateUser(ctx, name+string(rune('0'+i))+"@example.test", good, true)
			if err != nil {
				t.Fatal(err)
			}
			both[i] = u
		}
		var errs [2]error
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() {
				errs[i] = d.Write(ctx, func(tx *db.Tx) error { return remove(tx, both[i].ID, both[1-i].ID) })
			})
		}
		wg.Wait()
		if n := boolInt(fault.Is(errs[0], fault.Conflict)) + boolInt(fault.Is(errs[1], fault.Conflict)); n != 1 {
			t.Errorf("%s: %v, want one conflict", name, errors.Join(errs[:]...))
		}
		var left int
		if err := d.QueryRow(ctx, `SELECT count(*) FROM users WHERE admin AND suspended_at = 0`).Scan(&left); err != nil || left != 1 {
			t.Errorf("%s: %d operators are left (%v)", name, left, err)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
