package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// The command line suspends and resumes users beside a server that runs, says so in the
// audit log, and leaves an operator.
func TestUsersOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	ctx := t.Context()
	var out bytes.Buffer
	said := func(err error) string {
		t.Helper()
		defer out.Reset()
		if err != nil {
			return err.Error()
		}
		return out.String()
	}
	for _, n := range []NewUser{
		{Email: "root@example.test", Password: "correct horse battery", Admin: true},
		{Email: "ada@example.test", BaseURL: "http://x"},
	} {
		if err := CreateUser(ctx, s, n, &out); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	for what, want := range map[string]string{
		said(SuspendUser(ctx, s, "nobody@example.test", "", &out)): "User not found",
		said(SuspendUser(
			ctx,
			s,
			"root@example.test",
			"",
			&out,
		)): "This is the only operator: make another user an operator first",
		said(SuspendUser(ctx, s, "ada@example.test", "a\nb", &out)):             "The reason is too long",
		said(SuspendUser(ctx, s, "Ada@example.test", "unpaid since May", &out)): "User ada@example.test is suspended\n",
	} {
		if !strings.HasPrefix(what, want) {
			t.Errorf("said %q, want %q", what, want)
		}
	}
	if list := said(ListUsers(
		ctx,
		s,
		&out,
	)); !strings.Contains(
		list,
		"root@example.test  operator",
	) || !strings.Contains(list, "ada@example.test   user") || !strings.Contains(list, "suspended since") {
		t.Error(list)
	}
	if err := ResumeUser(ctx, s, "ada@example.test", &out); err != nil {
		t.Fatal(err)
	}
	if list := said(ListUsers(ctx, s, &out)); strings.Contains(list, "suspended") || !strings.Contains(list, "no password yet") {
		t.Error(list)
	}
	if err := withAccounts(ctx, s, func(_ *db.DB, a *account.Accounts) error {
		log, err := a.Audit(ctx, audit.Filter{Action: "user"})
		if len(log) != 2 || log[0].Action != "user.resumed" || log[1].Action != "user.suspended" || log[1].Via != "the command line" || log[1].User != "" {
			t.Errorf("the log holds %+v", log)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A key made on the command line counts towards the limits that the operator has set.
func TestKeysOnTheCommandLineObeyLimits(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	file := filepath.Join(t.TempDir(), "limits.toml")
	if err := os.WriteFile(file, []byte("[defaults]\nkeys = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := CreateUser(t.Context(), s, NewUser{Email: "ada@example.test", BaseURL: "http://x"}, &out); err != nil {
		t.Fatal(err)
	}
	key := NewKey{User: "ada@example.test", Name: "k", Scopes: []string{"*"}, Limits: file}
	if err := CreateKey(t.Context(), s, key, &out); err != nil {
		t.Fatal(err)
	}
	if err := CreateKey(
		t.Context(),
		s,
		key,
		&out,
	); err == nil || !strings.Contains(err.Error(), "this account can have 1 API keys and has 1") {
		t.Errorf("the second key: %v", err)
	}
	key.Limits = ""
	if err := CreateKey(t.Context(), s, key, &out); err != nil {
		t.Errorf("without the operator's file: %v", err)
	}
	key.Limits = file + ".missing"
	if err := CreateKey(t.Context(), s, key, &out); err == nil || !strings.HasPrefix(err.Error(), "--limits: ") {
		t.Errorf("with a file that is not there: %v", err)
	}
}
