package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/edge"
)

// setupLinkLife is how long a one-time link works.
const setupLinkLife = 72 * time.Hour

// NewUser is what `slipway user create` makes. An empty Password prints a one-time link.
type NewUser struct {
	Email    string
	Password string
	Admin    bool
	BaseURL  string
}

// CreateUser makes a user and says on out how they get in.
func CreateUser(ctx context.Context, s Store, n NewUser, out io.Writer) error {
	d, _, err := s.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	u, err := accounts.CreateUser(ctx, n.Email, n.Password, n.Admin)
	if err != nil {
		return sentence(err)
	}
	if n.Password != "" {
		fmt.Fprintf(out, "User %s created\n", u.Email)
		return nil
	}
	token, err := accounts.NewSetupLink(ctx, u.ID, setupLinkLife)
	if err != nil {
		return sentence(err)
	}
	fmt.Fprintf(out, "User %s created. The password is chosen here, once, within %d hours:\n%s/setup/%s\n",
		u.Email, int(setupLinkLife.Hours()), strings.TrimSuffix(n.BaseURL, "/"), token)
	return nil
}

// NewKey is what `slipway key create` makes.
type NewKey struct {
	User    string // e-mail address
	Name    string
	Scopes  []string
	Expires time.Duration // 0: never
}

// CreateKey makes an API key and prints it alone on out. It is shown once.
func CreateKey(ctx context.Context, s Store, n NewKey, out io.Writer) error {
	d, _, err := s.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	u, err := accounts.UserByEmail(ctx, n.User)
	if err != nil {
		return sentence(err)
	}
	key := account.NewKey{Name: n.Name, Scopes: scopes(n.Scopes)}
	if n.Expires != 0 {
		key.Expires = db.Now().Add(n.Expires)
	}
	_, secret, err := accounts.CreateKey(ctx, u.ID, key)
	if err != nil {
		return sentence(err)
	}
	fmt.Fprintln(out, secret)
	return nil
}

// ExportCA prints the root certificate of the local authority.
func ExportCA(ctx context.Context, s Store, out io.Writer) error {
	d, sealer, err := s.open(ctx, quiet())
	if err != nil {
		return err
	}
	defer d.Close()
	pem, err := edge.New(edge.Config{DB: d, Seal: sealer, Log: quiet()}).RootPEM(ctx)
	if err != nil {
		return err
	}
	_, err = out.Write(pem)
	return err
}

// quiet is the log of commands: what they have to say stands in their answer.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func scopes(list []string) account.Scopes {
	var out account.Scopes
	for _, s := range list {
		out = append(out, account.Scope(s))
	}
	return out
}
