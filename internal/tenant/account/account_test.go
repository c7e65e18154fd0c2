package account_test

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

const good = "correct horse battery staple 9"

var here = netip.MustParseAddr("203.0.113.7")

func accounts(t *testing.T) (*account.Accounts, *db.DB) {
	t.Helper()
	d := dbtest.New(t)
	return account.New(account.Config{DB: d}), d
}

func user(t *testing.T, a *account.Accounts, email string) account.User {
	t.Helper()
	u, err := a.CreateUser(t.Context(), email, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCreateUser(t *testing.T) {
	t.Parallel()
	a, _ := accounts(t)
	ctx := t.Context()
	u, err := a.CreateUser(ctx, " Ada@Example.test ", good, true)
	if err != nil || u.Email != "ada@example.test" || !u.Admin || !u.Password || !strings.HasPrefix(string(u.ID), "usr_") {
		t.Fatalf("got %+v, %v", u, err)
	}
	if _, err := a.CreateUser(ctx, "ADA@example.test", good, false); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the same address again: %v, want a conflict", err)
	}
	if got, err := a.UserByEmail(ctx, "Ada@EXAMPLE.test"); err != nil || got != u {
		t.Fatalf("got %+v, %v; want %+v", got, err, u)
	}
	if _, err := a.UserByEmail(ctx, "nobody@example.test"); !fault.Is(err, fault.NotFound) {
		t.Fatalf("an unknown user: %v", err)
	}
	for _, email := range []string{
		"", "ada", "@example.test", "ada@", "a b@example.test", "Ada <b@example.test>", "a@b@c.test",
		"\"a b\"@example.test", "a@[127.0.0.1]", "a\x00@example.test",
		strings.Repeat("a", 65) + "@example.test",
		"a@" + strings.Repeat("b", 254) + ".test",
		"a@b.test, c@d.test",
	} {
		if _, err := a.CreateUser(ctx, email, good, false); !fault.Is(err, fault.Invalid) {
			t.Errorf("address %q: %v, want invalid", email, err)
		}
	}
	for _, pw := range []string{
		"short", "elevenchars", "aaaaaaaaaaaaaaaa", "BOB@example.test", "\xff\xfe0123456789abc",
		strings.Repeat("ab", 513),
	} {
		err := func() error { _, err := a.CreateUser(ctx, "bob@example.test", pw, false); return err }()
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("password %q: %v, want invalid", pw, err)
		} else if strings.Contains(fault.As(err).Details, pw) || fault.As(err).Received != nil {
			t.Errorf("the fault repeats the password %q", pw)
		}
	}
}

func TestCheckPassword(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	ctx := t.Context()
	u, err := a.CreateUser(ctx, "ada@example.test", good, false)
	if err != nil {
		t.Fatal(err)
	}
	user(t, a, "none@example.test")
	if got, err := a.CheckPassword(ctx, "ADA@example.test ", good); err != nil || got.ID != u.ID {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, c := range [][2]string{
		{"ada@example.test", good + "x"},
		{"ada@example.test", ""},
		{"eve@example.test", good},
		{"none@example.test", ""},
		{"none@example.test", good},
		{"ada@example.test", strings.Repeat("x", 1<<20)},
	} {
		if _, err := a.CheckPassword(ctx, c[0], c[1]); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("%.40q: %v, want unauthorized", c, err)
		}
	}
	var phc string
	if err := d.QueryRow(
		ctx,
		"SELECT password FROM users WHERE id = $1",
		u.ID,
	).Scan(&phc); err != nil || !strings.HasPrefix(phc, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("stored %q, %v", phc, err)
	}
	// Hashes with other parameters (argon2-cffi's, and RFC 9106's second choice) still verify.
	const other = "$argon2id$v=19$m=64,t=3,p=4$c29tZXNhbHRzb21lc2FsdA$"
	if err := a.SetPassword(ctx, u.ID, "another good password"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CheckPassword(ctx, u.Email, good); err == nil {
		t.Error("the old password still works")
	}
	if err := d.Admin(ctx, "UPDATE users SET password = '"+other+"x'"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CheckPassword(ctx, u.Email, good); err == nil {
		t.Error("a damaged hash accepts a password")
	}
}

func TestManyLoginsWaitTheirTurn(t *testing.T) {
	t.Parallel()
	a, _ := accounts(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.CheckPassword(ctx, "a@example.test", good); err == nil {
		t.Fatal("a request that is gone was still served")
	}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, err := a.CheckPassword(t.Context(), "a@example.test", good); !fault.Is(err, fault.Unauthorized) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestSetupLink(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	ctx := t.Context()
	link := func(id account.UserID, ttl time.Duration) string {
		token, err := a.NewSetupLink(ctx, id, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first, second := link("", time.Hour), link("", time.Hour)
	if u, err := a.SetupLink(ctx, first); err != nil || u.ID != "" {
		t.Fatalf("got %+v, %v", u, err)
	}
	if _, err := a.UseSetupLink(ctx, first, "root@example.test", "weak"); !fault.Is(err, fault.Invalid) {
		t.Fatalf("weak: %v", err)
	}
	u, err := a.UseSetupLink(ctx, first, "root@example.test", good)
	if err != nil || !u.Admin {
		t.Fatalf("got %+v, %v", u, err)
	}
	for _, token := range []string{first, second, link("", time.Hour), "", link(u.ID, -time.Second)} {
		if _, err := a.UseSetupLink(ctx, token, "eve@example.test", good); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v, want not found", token, err)
		}
	}
	bob := user(t, a, "bob@example.test")
	for range 2 {
		token := link(bob.ID, time.Hour)
		var wins sync.Map
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if got, err := a.UseSetupLink(ctx, token, "ignored@example.test", good); err == nil && got.ID == bob.ID && got.Password {
					wins.Store(i, true)
				}
			})
		}
		wg.Wait()
		n := 0
		wins.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Fatalf("a link worked %d times, want once", n)
		}
	}
	var stored string
	token := link(bob.ID, time.Hour)
	if err := d.QueryRow(ctx, "SELECT max(hash) FROM setup_links").Scan(&stored); err != nil || stored == token || len(stored) != 64 {
		t.Fatalf("stored %q, %v", stored, err)
	}
}
