package admin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
)

// SSOWay says how issuers are reached, and where people come back to.
type SSOWay struct {
	BaseURL string
	Allow   []string // private networks
	CAFile  string
}

// withSSO opens the providers of an installation.
func withSSO(ctx context.Context, s installation.Store, way SSOWay, fn func(*db.DB, *sso.SSO, *account.Accounts) error) error {
	allow, err := egress.ParseNetworks(way.Allow)
	if err != nil {
		return fmt.Errorf("--outbound-allow: %w", err)
	}
	out, err := egress.New(egress.Config{Allow: allow, CAFile: way.CAFile})
	if err != nil {
		return err
	}
	d, sealer, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	accounts := account.New(account.Config{DB: d, Log: quiet()})
	return fault.Sentence(fn(d, sso.New(sso.Config{
		DB: d, Accounts: accounts, Seal: sealer, Out: out.Client(5 * time.Second), Base: way.BaseURL, Log: quiet(),
	}), accounts))
}

// AddSSO stores a provider that everybody may sign in with, and says what it must be told.
func AddSSO(ctx context.Context, s installation.Store, way SSOWay, n sso.NewProvider, out io.Writer) error {
	return withSSO(ctx, s, way, func(d *db.DB, providers *sso.SSO, accounts *account.Accounts) error {
		var p sso.Provider
		err := d.Write(ctx, func(tx *db.Tx) (err error) {
			if p, err = providers.CreateTx(ctx, tx, n); err != nil {
				return err
			}
			return accounts.AuditTx(ctx, tx, audit.Actor{Via: "the command line"}, audit.Event{
				Action: "sso_provider.added", Subject: string(p.ID), Detail: p.Issuer,
			})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Provider %s added: %s\nRedirect URI to enter there: %s\n", p.ID, p.Issuer, providers.Callback(p.ID))
		return nil
	})
}

// ListSSO prints the providers.
func ListSSO(ctx context.Context, s installation.Store, way SSOWay, out io.Writer) error {
	return withSSO(ctx, s, way, func(d *db.DB, providers *sso.SSO, _ *account.Accounts) error {
		list, err := providers.List(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tKIND\tNAME\tISSUER\tUSERS\tSIGN-UP DOMAINS")
		for _, p := range list {
			users, err := providers.CountUsers(ctx, p)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.ID, p.Kind, p.Name, p.Issuer, users, strings.Join(p.Domains, " "))
		}
		return w.Flush()
	})
}

// RemoveSSO removes a provider.
func RemoveSSO(ctx context.Context, s installation.Store, way SSOWay, id sso.ProviderID, out io.Writer) error {
	return withSSO(ctx, s, way, func(d *db.DB, providers *sso.SSO, accounts *account.Accounts) error {
		var ended int64
		err := d.Write(ctx, func(tx *db.Tx) error {
			p, n, err := providers.DeleteTx(ctx, tx, id)
			if err != nil {
				return err
			}
			ended = n
			return accounts.AuditTx(ctx, tx, audit.Actor{Via: "the command line"}, audit.Event{
				Action: "sso_provider.removed", Subject: string(id), Detail: p.Issuer,
			})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Provider %s removed, %d sessions ended. Linked accounts work again when a provider with the same issuer is added\n", id,
			ended)
		return nil
	})
}

// TestSSO asks a provider's issuer whether a sign-in can begin.
func TestSSO(ctx context.Context, s installation.Store, way SSOWay, id sso.ProviderID, out io.Writer) error {
	return withSSO(ctx, s, way, func(d *db.DB, providers *sso.SSO, _ *account.Accounts) error {
		p, err := providers.Get(ctx, d, id)
		if err != nil {
			return err
		}
		if err := providers.Test(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.Issuer, err)
		}
		fmt.Fprintf(out, "%s is reachable and set up. Redirect URI: %s\n", p.Issuer, providers.Callback(p.ID))
		return nil
	})
}
