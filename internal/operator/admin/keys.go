package admin

import (
	"context"
	"fmt"
	"io"
	"time"

	"slipway/internal/operator/config"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
)

// NewKey holds the settings of `slipway key create`.
type NewKey struct {
	User    string // e-mail address
	Name    string
	Scopes  []string
	Expires time.Duration // 0: never
	Limits  string        // the operator's file. Optional.
}

// CreateKey makes an API key and prints it alone on out. It is shown once.
func CreateKey(ctx context.Context, s installation.Store, n NewKey, out io.Writer) error {
	settings, err := config.ReadLimits(n.Limits)
	if err != nil {
		return err
	}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Limits: limits.New(settings), Log: quiet()})
	u, err := accounts.UserByEmail(ctx, n.User)
	if err != nil {
		return fault.Sentence(err)
	}
	key := account.NewKey{Name: n.Name, Scopes: scopes(n.Scopes)}
	if n.Expires != 0 {
		key.Expires = db.Now().Add(n.Expires)
	}
	var secret string
	err = d.Write(ctx, func(tx *db.Tx) error {
		k, made, err := accounts.CreateKeyTx(ctx, tx, u.Caller(), key)
		if err != nil {
			return err
		}
		secret = made
		return accounts.AuditTx(ctx, tx, audit.Actor{Owner: u.Owner, Via: commandLine.Via}, audit.Event{
			Action: "key.created", Subject: string(k.ID), About: u.ID, Detail: k.Name + " (" + k.Scopes.String() + ")",
		})
	})
	if err != nil {
		return fault.Sentence(err)
	}
	fmt.Fprintln(out, secret)
	return nil
}

func scopes(list []string) account.Scopes {
	var out account.Scopes
	for _, s := range list {
		out = append(out, account.Scope(s))
	}
	return out
}
