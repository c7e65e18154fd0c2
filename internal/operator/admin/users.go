// Package admin owns what the operator does to an installation from the command line: users,
// API keys, and the root of the local authority. Each command may run beside a process that
// serves.
package admin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// SetupLinkLife is how long a one-time link works.
const SetupLinkLife = 72 * time.Hour

// NewUser holds the settings of `slipway user create`. An empty Password prints a one-time link.
type NewUser struct {
	Email    string
	Password string
	Admin    bool
	BaseURL  string
}

// CreateUser makes a user and says on out how they get in.
func CreateUser(ctx context.Context, s installation.Store, n NewUser, out io.Writer) error {
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	token := ""
	u, err := accounts.CreateUserAnd(ctx, n.Email, n.Password, n.Admin, func(tx *db.Tx, u account.User) (err error) {
		did := audit.Event{Action: "user.created", Subject: string(u.ID), About: u.ID, Detail: u.Email}
		if n.Admin {
			did.Detail += ", an operator"
		}
		if err := accounts.AuditTx(ctx, tx, commandLine, did); err != nil || n.Password != "" {
			return err
		}
		token, err = accounts.NewSetupLinkTx(ctx, tx, u.ID, SetupLinkLife)
		return err
	})
	if err != nil {
		return fault.Sentence(err)
	}
	if n.Password != "" {
		fmt.Fprintf(out, "User %s created\n", u.Email)
		return nil
	}
	fmt.Fprintf(out, "User %s created. Choose the password here within %d hours; the link works once:\n%s/setup/%s\n",
		u.Email, int(SetupLinkLife.Hours()), strings.TrimSuffix(n.BaseURL, "/"), token)
	return nil
}

// HasUsers reports whether somebody can sign in.
func HasUsers(ctx context.Context, s installation.Store) (some bool, err error) {
	err = withAccounts(ctx, s, func(_ *db.DB, accounts *account.Accounts) error {
		users, err := accounts.Users(ctx)
		some = len(users) > 0
		return err
	})
	return some, err
}

// ListUsers prints everybody on out, one a line.
func ListUsers(ctx context.Context, s installation.Store, out io.Writer) error {
	return withAccounts(ctx, s, func(_ *db.DB, accounts *account.Accounts) error {
		users, err := accounts.Users(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, u := range users {
			role, state := "user", "active"
			if u.Admin {
				role = "operator"
			}
			switch {
			case u.Suspended != 0:
				state = "suspended since " + u.Suspended.Time().Format(time.DateOnly)
			case !u.Password:
				state = "no password yet"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", u.Email, role, u.CreatedAt.Time().Format(time.DateOnly), state)
		}
		return table.Flush()
	})
}

// SuspendUser keeps a user out.
func SuspendUser(ctx context.Context, s installation.Store, email, why string, out io.Writer) error {
	var teams []string
	err := changeUser(
		ctx, s, email, "user.suspended", "is suspended", out,
		func(tx *db.Tx, a *account.Accounts, by audit.Actor, id account.UserID) (err error) {
			if teams, err = account.LastOwnerOf(ctx, tx, id); err == nil {
				_, err = a.SuspendTx(ctx, tx, by, id, why)
			}
			return err
		},
	)
	for _, t := range teams {
		if err == nil {
			fmt.Fprintf(out, "The team %s has no active owner: slipway team set-owner --team %[1]s --email …\n", t)
		}
	}
	return err
}

// ResumeUser lets a suspended user in again.
func ResumeUser(ctx context.Context, s installation.Store, email string, out io.Writer) error {
	return changeUser(
		ctx, s, email, "user.resumed", "is active again", out,
		func(tx *db.Tx, a *account.Accounts, _ audit.Actor, id account.UserID) error {
			_, err := a.ResumeTx(ctx, tx, id)
			return err
		},
	)
}

// SetRole makes a user an operator, or takes that away.
func SetRole(ctx context.Context, s installation.Store, email string, operator bool, out io.Writer) error {
	says := map[bool]string{true: "is an operator now", false: "is a user now"}[operator]
	return changeUser(
		ctx, s, email, "user.role", says, out,
		func(tx *db.Tx, a *account.Accounts, _ audit.Actor, id account.UserID) error {
			_, err := a.SetRoleTx(ctx, tx, id, operator)
			return err
		},
	)
}

// ResetLink prints a one-time link with which a user sets a new password.
func ResetLink(ctx context.Context, s installation.Store, email, baseURL string, out io.Writer) error {
	token := ""
	err := changeUser(
		ctx, s, email, "password.link", "can set a password here; the link works once:", out,
		func(tx *db.Tx, a *account.Accounts, _ audit.Actor, id account.UserID) (err error) {
			token, err = a.NewSetupLinkTx(ctx, tx, id, account.LinkLife)
			return err
		},
	)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s/setup/%s\n", strings.TrimSuffix(baseURL, "/"), token)
	return err
}

// DropTwoFactor disables two-factor authentication of a user who lost their device, and removes their passkeys.
func DropTwoFactor(ctx context.Context, s installation.Store, email string, out io.Writer) error {
	return changeUser(
		ctx, s, email, "second_factor.disabled", "can sign in without two-factor authentication and passkeys", out,
		func(tx *db.Tx, a *account.Accounts, _ audit.Actor, id account.UserID) error {
			if err := a.DropTOTPTx(ctx, tx, id, ""); err != nil {
				return err
			}
			_, err := a.DropPasskeysTx(ctx, tx, id)
			return err
		},
	)
}

// commandLine is who acts in the audit log.
var commandLine = audit.Actor{Via: "the command line"}

// changeUser does something to a user and says so in the audit log and on out.
func changeUser(
	ctx context.Context,
	s installation.Store,
	email, action, says string,
	out io.Writer,
	do func(*db.Tx, *account.Accounts, audit.Actor, account.UserID) error,
) error {
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		u, err := accounts.UserByEmail(ctx, email)
		if err != nil {
			return err
		}
		by := commandLine
		if err := d.Write(ctx, func(tx *db.Tx) error {
			if err := do(tx, accounts, by, u.ID); err != nil {
				return err
			}
			return accounts.AuditTx(ctx, tx, by, audit.Event{Action: action, Subject: string(u.ID), About: u.ID, Detail: u.Email})
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "User %s %s\n", u.Email, says)
		return nil
	})
}

// withAccounts opens the database for fn, and turns faults into lines for a terminal.
func withAccounts(ctx context.Context, s installation.Store, fn func(*db.DB, *account.Accounts) error) error {
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	return fault.Sentence(fn(d, account.New(account.Config{DB: d, Log: quiet()})))
}

// quiet is the log of commands: what they have to say stands in their answer.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
