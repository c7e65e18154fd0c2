package account_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// between returns a function that schedules code to run just before the next write transaction.
func between(d *db.DB) (next func(func(context.Context) error)) {
	var armed atomic.Pointer[func(context.Context) error]
	d.Guard(func(ctx context.Context) error {
		if f := armed.Swap(nil); f != nil {
			return (*f)(db.Unguarded(ctx))
		}
		return nil
	})
	return func(f func(context.Context) error) { armed.Store(&f) }
}

// If the password is replaced while a sign-in or a password change checks the old one, the request fails.
func TestPasswordReplacedInBetween(t *testing.T) {
	t.Parallel()
	const next = "another good password 3"
	for what, enter := range map[string]func(a *account.Accounts, s account.Session) (string, error){
		"sign-in": func(a *account.Accounts, _ account.Session) (string, error) {
			_, token, err := a.SignIn(t.Context(), "ada@example.test", good, laptop)
			return token, err
		},
		"change": func(a *account.Accounts, s account.Session) (string, error) {
			_, token, err := a.ChangePassword(t.Context(), s, good, "a password of a thief 4", laptop)
			return token, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, d := guarded(t)
			ada := enrol(t, a, "ada@example.test")
			s, _ := signIn(t, a, "ada@example.test")
			between(d)(func(ctx context.Context) error { return a.SetPassword(ctx, ada.ID, next) })
			if token, err := enter(a, s); !fault.Is(err, fault.Unauthorized) || alive(t, a, token) {
				t.Errorf("with the old password: %v", err)
			}
			if _, _, err := a.SignIn(t.Context(), "ada@example.test", next, laptop); err != nil {
				t.Errorf("with the new password: %v", err)
			}
		})
	}
}

// A session that ends while it adds a sign-in method adds none.
func TestSessionEndedInBetween(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada := enrol(t, a, "ada@example.test")
	next := between(d)
	end := func(ctx context.Context) error {
		return d.Write(ctx, func(tx *db.Tx) error {
			_, err := a.EndSessionsTx(ctx, tx, ada.ID, "")
			return err
		})
	}
	s, _ := signIn(t, a, "ada@example.test")
	offer, err := a.OfferTOTP(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	next(end)
	_, err = a.ConfirmTOTP(ctx, audit.Actor{User: ada.ID, Session: s.ID}, offer.Token, codeAt(t, offer.Secret, time.Now()))
	if !fault.Is(err, fault.Unauthorized) {
		t.Errorf("an authenticator app: %v", err)
	}
	add := func(ended bool) error {
		s, _ = signIn(t, a, "ada@example.test")
		c, err := a.OfferPasskey(ctx, ada.ID)
		if err != nil {
			t.Fatal(err)
		}
		made := newDevice(t, "https://slipway.test").create(c)
		if ended {
			next(end)
		}
		return a.AddPasskey(ctx, audit.Actor{User: ada.ID, Session: s.ID}, "Key", c.Token, made)
	}
	if err := add(false); err != nil {
		t.Fatal(err)
	}
	if err := add(true); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a second passkey: %v", err)
	}
	s, _ = signIn(t, a, "ada@example.test")
	next(end)
	_, token, err := a.ChangePassword(ctx, s, good, "another good password 3", laptop)
	if !fault.Is(err, fault.Unauthorized) || alive(t, a, token) {
		t.Errorf("a password: %v", err)
	}
	if s, _ := signIn(t, a, "ada@example.test"); s.Pending { // would be pending if a factor had been added
		t.Errorf("a second factor was added")
	}
}

// A new password or a suspension also ends a session that is just being created.
func TestSessionsEndWhileOneBegins(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(ctx context.Context, a *account.Accounts, d *db.DB, u account.User) error{
		"a new password": func(ctx context.Context, a *account.Accounts, _ *db.DB, u account.User) error {
			return a.SetPassword(ctx, u.ID, "another good password 3")
		},
		"a suspension": func(ctx context.Context, a *account.Accounts, d *db.DB, u account.User) error {
			return d.Write(ctx, func(tx *db.Tx) error {
				if _, err := a.SuspendTx(ctx, tx, audit.Actor{}, u.ID, ""); err != nil {
					return err
				}
				_, err := a.ResumeTx(ctx, tx, u.ID)
				return err
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var armed atomic.Pointer[func()]
			d := dbtest.New(t, func(c *db.Config) {
				c.Seen = func(q string) {
					if strings.Contains(q, "INSERT INTO sessions") {
						if f := armed.Swap(nil); f != nil {
							(*f)()
						}
					}
				}
			})
			s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
			if err != nil {
				t.Fatal(err)
			}
			a := account.New(account.Config{DB: d, HashMemory: 64, Seal: s, Site: "https://slipway.test"})
			ada := enrol(t, a, "ada@example.test")
			first, _ := signIn(t, a, "ada@example.test")
			offer, err := a.OfferTOTP(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			codes, err := a.ConfirmTOTP(t.Context(), audit.Actor{User: ada.ID, Session: first.ID}, offer.Token, codeAt(t, offer.Secret, time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			pending, _ := signIn(t, a, "ada@example.test")
			ended := make(chan error, 1)
			begin := func() {
				go func() { ended <- end(t.Context(), a, d, ada) }()
				for limit := time.Now().Add(30 * time.Second); !d.Single() && len(ended) == 0 && time.Now().Before(limit); {
					var waits bool
					if err := d.QueryRow(t.Context(), `
						SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits); err != nil || waits {
						break
					}
				}
			}
			armed.Store(&begin)
			_, token, err := a.PassFactor(t.Context(), pending, codes[0], laptop)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if alive(t, a, token) {
				t.Error("the session that began meanwhile still works")
			}
		})
	}
}
