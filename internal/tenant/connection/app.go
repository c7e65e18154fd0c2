package connection

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// AppID names an app: "gap_" and 26 characters. It isn't secret.
type AppID string

// App is this installation's OAuth app or GitHub App at a Git provider. Each host has at most one.
type App struct {
	ID          AppID
	Provider    forge.Provider
	Host        string // of the forge
	Name        string
	ClientID    string
	Slug        string // of a GitHub App; empty for an OAuth app
	Connections int    // number of connections made with it
	CreatedAt   db.Time

	hookDigest string // digest of the ID of a GitHub App's webhook
	box        string // sealed appSecret
}

// Page returns the URL of a GitHub App's page, or "" for OAuth apps.
func (a App) Page() string {
	if a.Slug == "" {
		return ""
	}
	return "https://" + a.Host + "/apps/" + a.Slug
}

// InstallURL returns the page on which a GitHub App is granted repositories, or "" for OAuth apps.
func (a App) InstallURL() string {
	if a.Slug == "" {
		return ""
	}
	return a.Page() + "/installations/new"
}

// appSecret holds an app's credentials.
type appSecret struct {
	Client string `json:"client"`
	Key    string `json:"key,omitempty"`  // a GitHub App's private key, PEM
	Hook   string `json:"hook,omitempty"` // signing secret of a GitHub App's webhook
}

// LogValue hides the secrets in logs.
func (appSecret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String hides the secrets in error texts.
func (appSecret) String() string { return "[redacted]" }

// GoString hides the secrets in %#v.
func (appSecret) GoString() string { return "[redacted]" }

const appColumns = `a.id, a.provider, a.host, a.name, a.client_id, a.slug, a.hook_digest, a.secrets, a.created_at, (SELECT count(*)
	FROM connections c WHERE c.app_id = a.id)`

func scanApp(r db.Scanner) (a App, err error) {
	err = r.Scan(&a.ID, &a.Provider, &a.Host, &a.Name, &a.ClientID, &a.Slug, &a.hookDigest, &a.box, &a.CreatedAt, &a.Connections)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.Missing("Git app")
	}
	return a, err
}

func appPurpose(id AppID) string { return "git app/" + string(id) }

// Apps returns the apps of this installation, by host.
func (s *Connections) Apps(ctx context.Context, r db.Reader) ([]App, error) {
	rows, err := r.Query(ctx, `SELECT `+appColumns+` FROM git_apps a ORDER BY a.host`)
	list, err := db.Collect(rows, err, scanApp)
	if err != nil {
		return nil, fmt.Errorf("list Git apps: %w", err)
	}
	return list, nil
}

// App returns an app, or a NotFound fault.
func (s *Connections) App(ctx context.Context, r db.Reader, id AppID) (App, error) {
	return scanApp(r.QueryRow(ctx, `SELECT `+appColumns+` FROM git_apps a WHERE a.id = $1`, id))
}

func (s *Connections) openApp(a App) (k appSecret, err error) {
	plain, err := s.c.Seal.Open(a.box, appPurpose(a.ID))
	if err == nil {
		err = json.Unmarshal(plain, &k)
	}
	if err != nil {
		return k, fmt.Errorf("open secrets of %s: %w", a.ID, err)
	}
	return k, nil
}

// NewApp is an OAuth app that the operator has registered at a forge.
type NewApp struct {
	Provider forge.Provider
	Host     string // Optional if the provider has a single host.
	ClientID string
	Secret   string
}

// CreateAppTx stores an OAuth app. It returns a Conflict fault if the host has an app.
func (s *Connections) CreateAppTx(ctx context.Context, tx *db.Tx, n NewApp) (App, error) {
	host, err := checkHost(n.Provider, n.Host)
	if err != nil {
		return App{}, err
	}
	n.ClientID, n.Secret = strings.TrimSpace(n.ClientID), strings.TrimSpace(n.Secret)
	bad := func(why, code string) (App, error) {
		return App{}, fault.New(fault.Invalid, code, why, "it has 1 to 500 printable characters without spaces")
	}
	switch {
	case n.Provider == forge.GitHub:
		return App{}, fault.New(fault.Invalid, "invalid_connection", "GitHub is connected with a GitHub App", "create one below")
	case !plain(n.ClientID, 500):
		return bad("Invalid client ID", "invalid_client_id")
	case !plain(n.Secret, 500):
		return bad("Invalid client secret", "invalid_client_secret")
	}
	return s.insertAppTx(ctx, tx, App{
		Provider: n.Provider,
		Host:     host,
		Name:     n.Provider.Name(),
		ClientID: n.ClientID,
	}, appSecret{Client: n.Secret})
}

func (s *Connections) insertAppTx(ctx context.Context, tx *db.Tx, a App, k appSecret) (App, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return App{}, err
	}
	a.ID = db.ID[AppID]("gap")
	n, err := tx.Exec(ctx, `
		INSERT INTO git_apps (id, provider, host, name, client_id, slug, hook_digest, secrets, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`,
		a.ID, a.Provider, a.Host, a.Name, a.ClientID, a.Slug, a.hookDigest, s.c.Seal.Seal(text, appPurpose(a.ID)), db.Now())
	if err != nil {
		return App{}, fmt.Errorf("store Git app: %w", err)
	}
	if n == 0 {
		return App{}, fault.New(fault.Conflict, "app_exists", "There is an app for "+a.Host, "delete it first")
	}
	return s.App(ctx, tx, a.ID)
}

// DeleteAppTx deletes an app and the connections made with it. The app's registration at the provider remains until its
// owner deletes it there.
func (s *Connections) DeleteAppTx(ctx context.Context, tx *db.Tx, id AppID) (App, error) {
	a, err := s.App(ctx, tx, id)
	if err != nil {
		return a, err
	}
	for _, q := range []string{
		`DELETE FROM site_connections WHERE connection_id IN (SELECT id FROM connections WHERE app_id = $1)`,
		`DELETE FROM connections WHERE app_id = $1`, `DELETE FROM git_sign_ins WHERE app_id = $1`, `DELETE FROM git_apps WHERE id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return a, fmt.Errorf("delete Git app: %w", err)
		}
	}
	return a, nil
}

// plain reports whether s has 1 to n printable ASCII characters and no spaces.
func plain(s string, n int) bool {
	return s != "" && len(s) <= n && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
