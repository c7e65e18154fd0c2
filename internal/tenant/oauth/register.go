package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Bounds of apps that register themselves (RFC 7591). Nobody has authorized an unused one; it is removed after a day.
const (
	unusedLife       = 24 * time.Hour
	maxUnused        = 5000 // in the installation
	maxUnusedNetwork = 20   // of one network
)

// unusedApp is the condition of apps that registered themselves and that nobody uses.
const unusedApp = `registered_from <> '' AND NOT EXISTS (SELECT 1 FROM oauth_grants g WHERE g.app_id = oauth_apps.id)`

// Registers reports whether apps may register themselves.
func (s *Server) Registers() bool { return s.c.Registration }

// Register takes a program that describes itself as an app (RFC 7591 §3), which belongs to no account. network is where it
// asks from. The secret of a confidential one is returned once. The error is an *Error, or the database's.
func (s *Server) Register(ctx context.Context, n NewApp, network string) (a App, secret string, err error) {
	if !s.c.Registration {
		return App{}, "", &Error{"access_denied", "Apps can't register themselves here", http.StatusForbidden}
	}
	if len(n.RedirectURIs) == 0 {
		return App{}, "", bad("invalid_redirect_uri", "redirect_uris is missing")
	}
	if n.Name == "" {
		n.Name = "Unnamed app"
	}
	if f := fault.As(n.check()); f != nil {
		code := "invalid_client_metadata"
		if f.Code == "invalid_redirect_uri" {
			code = f.Code
		}
		return App{}, "", bad(code, printable(f.Details))
	}
	var hash, hint string
	if n.Confidential {
		secret = account.NewSecret(appPrefix)
		hash, hint = digest(secret), account.SecretHint(secret)
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var all, its int
		err := tx.QueryRow(ctx, `SELECT count(*), COALESCE(SUM(CASE WHEN registered_from = $1 THEN 1 ELSE 0 END), 0) FROM oauth_apps
			WHERE `+unusedApp,
			network).Scan(&all, &its)
		if err != nil {
			return err
		}
		if all >= maxUnused || its >= maxUnusedNetwork {
			return &Error{"temporarily_unavailable", "Too many apps have registered and aren't used yet", http.StatusTooManyRequests}
		}
		a, err = scanApp(tx.QueryRow(ctx, `
			INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint,
			  old_secret, old_secret_until, disabled_at, fresh_until, created_at, registered_from)
			VALUES ($1, '', $2, $3, $4, $5, $6, $7, '', 0, 0, 0, $8, $9)
			RETURNING `+appColumns,
			db.NewID("app"), n.Name, n.Website, strings.Join(n.RedirectURIs, "\n"), n.Confidential, hash, hint, db.Now(), network))
		return err
	})
	var refused *Error
	if errors.As(err, &refused) {
		return App{}, "", refused
	}
	if err != nil {
		return App{}, "", fmt.Errorf("register app: %w", err)
	}
	return a, secret, nil
}

// forgetUnusedTx removes apps that registered themselves a day ago and that nobody uses. A client whose id is gone registers
// again.
func (s *Server) forgetUnusedTx(ctx context.Context, tx *db.Tx, now db.Time) error {
	old := `SELECT id FROM oauth_apps WHERE ` + unusedApp + ` AND created_at < $1`
	for _, q := range []string{
		`DELETE FROM oauth_codes WHERE app_id IN (` + old + `)`,
		`DELETE FROM oauth_devices WHERE app_id IN (` + old + `)`,
		`DELETE FROM oauth_approvals WHERE app_id IN (` + old + `)`,
		`DELETE FROM oauth_apps WHERE ` + unusedApp + ` AND created_at < $1`,
	} {
		if _, err := tx.Exec(ctx, q, now.Add(-unusedLife)); err != nil {
			return fmt.Errorf("remove unused apps: %w", err)
		}
	}
	return nil
}
