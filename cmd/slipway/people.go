//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/doctor"
	"slipway/internal/operator/flags"
)

type userCommand struct {
	Create  userCreate  `cmd:"" help:"Create a user. The password is read from standard input; without one a one-time link is printed."`
	List    userList    `cmd:"" help:"List users with email address, role and status."`
	Role    userRole    `cmd:"" help:"Make a user an operator, or take that away. Sessions of a user who loses it end."`
	Suspend userSuspend `cmd:"" help:"Suspend a user: sessions end and API keys are rejected. Their sites stay online."`
	Resume  userResume  `cmd:"" help:"Reactivate a suspended user."`
	Link    userLink    `cmd:"" help:"Print a one-time link with which a user sets a new password."`
	Factor  userFactor  `cmd:"" name:"two-factor-off" help:"Disable two-factor authentication and remove the passkeys of a user who lost their device."`
	Export  userExport  `cmd:"" help:"Print what the installation stores about a user, as JSON."`
	Delete  userDelete  `cmd:"" help:"Delete a user with everything of their personal account: sites, keys, sessions, apps and webhooks."`
}

type userList struct{ flags.Data }

// Run lists everybody.
func (u userList) Run(ctx context.Context) error { return admin.ListUsers(ctx, u.Store(), stdout) }

// oneUser is embedded by the commands that act on one user.
type oneUser struct {
	flags.Data
	Email string `help:"Email address of the user." required:"" placeholder:"EMAIL"`
}

type userRole struct {
	oneUser
	Role string `arg:"" enum:"operator,user" help:"operator or user."`
}

// Run changes the role, also while the server runs.
func (u userRole) Run(ctx context.Context) error {
	return admin.SetRole(ctx, u.Store(), u.Email, u.Role == "operator", stdout)
}

type userLink struct {
	oneUser
	BaseURL string `name:"base-url" help:"Base URL of the one-time link." default:"http://127.0.0.1:8080" placeholder:"URL"`
}

// Run prints the link, also while the server runs.
func (u userLink) Run(ctx context.Context) error {
	return admin.ResetLink(ctx, u.Store(), u.Email, u.BaseURL, stdout)
}

type userFactor struct{ oneUser }

// Run disables it, also while the server runs.
func (u userFactor) Run(ctx context.Context) error {
	return admin.DropTwoFactor(ctx, u.Store(), u.Email, stdout)
}

type userSuspend struct {
	oneUser
	Reason string `help:"Reason shown to the user at sign-in." placeholder:"TEXT"`
}

// Run suspends the user, also while the server runs.
func (u userSuspend) Run(ctx context.Context) error {
	return admin.SuspendUser(ctx, u.Store(), u.Email, u.Reason, stdout)
}

type userResume struct{ oneUser }

// Run lets the user in again, also while the server runs.
func (u userResume) Run(ctx context.Context) error {
	return admin.ResumeUser(ctx, u.Store(), u.Email, stdout)
}

type userExport struct{ oneUser }

// Run prints the data, also while the server runs.
func (u userExport) Run(ctx context.Context) error {
	return admin.ExportUser(ctx, u.Store(), u.Email, stdout)
}

type userDelete struct {
	oneUser
	Sites int  `env:"-" help:"Number of sites that the user has." placeholder:"N"`
	Erase bool `env:"-" help:"Also take the user's email and IP addresses out of the audit log."`
	Yes   bool `env:"-" help:"Delete the user. Without it, the command only says what it would delete."`
}

// Run deletes the user, also while the server runs.
func (u userDelete) Run(ctx context.Context) error {
	return admin.DeleteUser(ctx, u.Store(), admin.Deletion{Email: u.Email, Sites: u.Sites, Yes: u.Yes, Erase: u.Erase}, stdout)
}

type userCreate struct {
	flags.Data
	Email   string `help:"Email address of the user." required:"" placeholder:"EMAIL"`
	Admin   bool   `help:"Make the user an operator of this installation."`
	BaseURL string `name:"base-url" help:"Base URL of the one-time link." default:"http://127.0.0.1:8080" placeholder:"URL"`
}

// Run creates the user, also while the server runs and before its first start.
func (u userCreate) Run(ctx context.Context) error {
	password, err := readLine("Password (empty for a one-time link; it shows as you type): ")
	if err != nil {
		return err
	}
	return admin.CreateUser(ctx, u.Store(), admin.NewUser{
		Email:    u.Email,
		Password: password,
		Admin:    u.Admin,
		BaseURL:  u.BaseURL,
	}, stdout)
}

// readLine reads one line of standard input, such as a password. Nothing there, or a terminal where only Enter is
// pressed, is an empty one.
func readLine(prompt string) (string, error) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		if info.Mode()&os.ModeDevice != 0 && info.Size() == 0 {
			fmt.Fprint(os.Stderr, prompt)
		}
	}
	line, err := bufio.NewReader(io.LimitReader(os.Stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

type keyCommand struct {
	Create keyCreate `cmd:"" help:"Create an API key and print it alone on standard output. It is shown once."`
}

type keyCreate struct {
	flags.Data
	User    string        `help:"Email address of the user that the key belongs to." required:"" placeholder:"EMAIL"`
	Name    string        `help:"Name of the key." required:"" placeholder:"NAME"`
	Scope   []string      `help:"Scope of the key, such as sites:read. Repeatable. Default: all scopes." placeholder:"SCOPE"`
	Expires time.Duration `help:"Lifetime of the key, such as 720h. Default: no expiry." placeholder:"DURATION"`
	Limits  string        `help:"TOML file with limits per account, as for slipway serve." type:"path" placeholder:"FILE"`
}

// Run creates the key, also while the server runs.
func (k keyCreate) Run(ctx context.Context) error {
	if len(k.Scope) == 0 {
		k.Scope = []string{"*"}
	}
	return admin.CreateKey(ctx, k.Store(), admin.NewKey{
		User:    k.User,
		Name:    k.Name,
		Scopes:  k.Scope,
		Expires: k.Expires,
		Limits:  k.Limits,
	}, stdout)
}

type caCommand struct {
	Export caExport `cmd:"" help:"Print the root certificate of the local certificate authority, to trust it in browsers and tools."`
}

type caExport struct{ flags.Data }

// Run prints the root certificate.
func (c caExport) Run(ctx context.Context) error { return admin.ExportCA(ctx, c.Store(), stdout) }

type doctorCommand struct {
	flags.Data
	flags.Mail
	Project   string `help:"Folder of a site: print what it would be on a server and what would fail, instead of checking this machine." type:"path" placeholder:"FOLDER"`
	Root      string `help:"With --project: the site's root directory in it." placeholder:"DIR"`
	WordPress bool   `name:"wordpress" help:"With --project: for a site of the type wordpress."`

	OutboundCAFile string `name:"outbound-ca-file" help:"Additional root certificates to trust for email." type:"path" placeholder:"FILE"`
	Storage        string `help:"Directory of sites' storage that every node mounts, as for slipway serve." placeholder:"DIR"`
	Redis          string `help:"Redis server for sites' programs, as for slipway serve." placeholder:"ADDRESS"`

	SiteDomain string   `name:"site-domain" help:"Sites live at <subdomain>.<site domain>." default:"localhost" placeholder:"DOMAIN"`
	ACMECA     []string `name:"acme-ca" help:"ACME directory URL to issue certificates from. Repeatable." placeholder:"URL"`
	ACMEDNS    string   `name:"acme-dns" help:"Address that answers ACME DNS challenges." placeholder:"HOST:PORT"`
}

// Run prints what is there and what is missing.
func (c doctorCommand) Run(ctx context.Context) error {
	if c.Project != "" {
		return doctor.PrintProject(ctx, c.Project, c.Root, c.WordPress, stdout)
	}
	m := c.Mail.Settings()
	m.CAFile = c.OutboundCAFile
	store := c.Store()
	store.Storage, store.Redis = c.Storage, c.Redis
	return doctor.Print(ctx, store, m, doctor.Certificates{
		SiteDomain: c.SiteDomain,
		Public:     len(c.ACMECA) > 0,
		DNS:        c.ACMEDNS != "",
	}, stdout)
}
