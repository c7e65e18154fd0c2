package account_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail"
)

// Sign-ups per hour are limited over all addresses and networks, and requests are deleted after a day.
func TestSignUpFlood(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.New(mail.Config{Addr: "127.0.0.1:1", From: "noreply@slipway.test"})
	if err != nil {
		t.Fatal(err)
	}
	a := account.New(account.Config{DB: d, Seal: s, Mail: m, Site: "https://app.test"})
	last := error(nil)
	asked := 0
	for n := range 400 {
		if last = a.AskSignUp(t.Context(), fmt.Sprintf("x%d@example.test", n), "", account.Device{}); last != nil {
			break
		}
		asked++
	}
	if !fault.Is(last, fault.Limited) || asked != 300 {
		t.Errorf("%d were let through, then %v", asked, last)
	}
	if err := d.Admin(t.Context(), `UPDATE sign_ups SET created_at = 1, expires_at = 2`); err != nil {
		t.Fatal(err)
	}
	if err := a.AskSignUp(t.Context(), "later@example.test", "", account.Device{}); err != nil {
		t.Error(err)
	}
	var n int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM sign_ups`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d are kept: %v", n, err)
	}
}
