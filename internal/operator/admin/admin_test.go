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

// While the server runs, the command line suspends and resumes users and writes to the audit log. The last operator
// can't be suspended.
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
		if len(log) != 4 || log[2].Action != "user.created" || log[2].Detail != "ada@example.test" || log[2].Via != "the command line" ||
			log[3].Detail != "root@example.test, an operator" || log[0].Action != "user.resumed" || log[1].Action != "user.suspended" || log[1].Via != "the command line" || log[1].User != "" {
			t.Errorf("the log holds %+v", log)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// The command line changes roles, creates password links and turns off the second factor. Each change is in the audit
// log.
func TestUsersAreHelpedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	ctx := t.Context()
	var out bytes.Buffer
	for _, n := range []NewUser{
		{Email: "root@example.test", Password: "correct horse battery", Admin: true},
		{Email: "ada@example.test", Password: "correct horse battery"},
	} {
		if err := CreateUser(ctx, s, n, &out); err != nil {
			t.Fatal(err)
		}
	}
	if err := CreateKey(ctx, s, NewKey{User: "ada@example.test", Name: "k", Scopes: []string{"sites:read"}}, &out); err != nil {
		t.Fatal(err)
	}
	if err := SetRole(ctx, s, "root@example.test", false, &out); err == nil || !strings.Contains(err.Error(), "the only operator") {
		t.Errorf("the last operator: %v", err)
	}
	out.Reset()
	for _, err := range []error{
		SetRole(ctx, s, "ada@example.test", true, &out), SetRole(ctx, s, "root@example.test", false, &out),
		DropTwoFactor(ctx, s, "ada@example.test", &out), ResetLink(ctx, s, "ada@example.test", "https://x.test/", &out),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	token := out.String()[strings.LastIndex(out.String(), "/")+1:]
	if !strings.Contains(out.String(), "\nhttps://x.test/setup/") {
		t.Errorf("said %q", out.String())
	}
	if err := withAccounts(ctx, s, func(_ *db.DB, a *account.Accounts) error {
		if u, err := a.UserByEmail(ctx, "ada@example.test"); err != nil || !u.Admin {
			t.Errorf("ada: %+v, %v", u, err)
		}
		if u, err := a.SetupLink(ctx, strings.TrimSpace(token)); err != nil || u.Email != "ada@example.test" {
			t.Errorf("the link is of %+v, %v", u, err)
		}
		log, err := a.Audit(ctx, audit.Filter{})
		var got []string
		for _, e := range log {
			if got = append(got, e.Action); e.Via != "the command line" || e.User != "" {
				t.Errorf("%s is logged as done by %q, %q", e.Action, e.User, e.Via)
			}
		}
		want := "password.link second_factor.disabled user.role user.role key.created user.created user.created"
		if strings.Join(got, " ") != want {
			t.Errorf("the log has %q, want %q", got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A key created on the command line counts towards the operator's limits.
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
