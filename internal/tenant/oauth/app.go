package oauth

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// AppID names an app: "app_" and 26 characters, or the https address of its client ID metadata
// document. It is the client_id of OAuth.
type AppID string

// CLI is the command line, an app that every installation has.
const CLI AppID = "app_slipway_cli"

// App is a program that may ask people for a part of their rights.
type App struct {
	ID           AppID
	Owner        account.OwnerID // empty: the installation's own, registered by itself, or described by its metadata document
	Name         string
	Website      string   // https, or empty
	RedirectURIs []string // empty for apps that sign in by device alone
	Confidential bool     // it has a secret and must send it
	SecretHint   string   // the newest secret's first characters
	OldUntil     db.Time  // until when the secret before it works; 0: none
	Disabled     bool     // by the operator, everywhere
	Registered   bool     // by itself (RFC 7591)
	CreatedAt    db.Time

	secret, old string // digests
	freshUntil  db.Time
}

// Document reports whether the app describes itself at an address (client ID metadata document).
func (a App) Document() bool { return strings.HasPrefix(string(a.ID), "https://") }

// FirstParty reports whether the app is part of Slipway.
func (a App) FirstParty() bool { return a.ID == CLI }

// NewApp holds the settings of an app to register.
type NewApp struct {
	Name         string   // 1 to 60 characters
	Website      string   // Optional. https.
	RedirectURIs []string // at most 20; empty: device grant alone
	Confidential bool     // has a server that keeps a secret
}

const appColumns = `id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint, old_secret, old_secret_until,
	disabled_at > 0, fresh_until, created_at, registered_from <> ''`

func scanApp(row db.Scanner) (a App, err error) {
	var uris string
	err = row.Scan(&a.ID, &a.Owner, &a.Name, &a.Website, &uris, &a.Confidential, &a.secret, &a.SecretHint, &a.old, &a.OldUntil,
		&a.Disabled, &a.freshUntil, &a.CreatedAt, &a.Registered)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.Missing("app")
	}
	a.RedirectURIs = strings.Fields(uris)
	return a, err
}

// Apps lists the apps that the owner registered, newest first.
func (s *Server) Apps(ctx context.Context, owner account.OwnerID) ([]App, error) {
	rows, err := s.c.DB.Query(ctx, `SELECT `+appColumns+` FROM oauth_apps WHERE owner_id = $1 ORDER BY created_at DESC, id DESC`, owner)
	return db.Collect(rows, err, scanApp)
}

// UsedApp is an app with how many grants people gave it.
type UsedApp struct {
	App
	Grants int
}

// AllApps lists every app of the installation, by id.
func (s *Server) AllApps(ctx context.Context) ([]UsedApp, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+appColumns+`, (SELECT COUNT(*) FROM oauth_grants g WHERE g.app_id = oauth_apps.id) FROM oauth_apps ORDER BY id`)
	return db.Collect(rows, err, func(row db.Scanner) (u UsedApp, err error) {
		u.App, err = scanApp(withColumn{row, &u.Grants})
		return u, err
	})
}

// withColumn scans one column more than it is asked for.
type withColumn struct {
	db.Scanner
	last any
}

func (w withColumn) Scan(to ...any) error { return w.Scanner.Scan(append(to, w.last)...) }

// App returns one of the owner's apps, or a NotFound fault.
func (s *Server) App(ctx context.Context, r db.Reader, owner account.OwnerID, id AppID) (App, error) {
	return scanApp(r.QueryRow(ctx, `SELECT `+appColumns+` FROM oauth_apps WHERE owner_id = $1 AND id = $2 AND owner_id <> ''`, owner, id))
}

// CreateAppTx registers an app. The secret of a confidential one is returned once and not stored.
func (s *Server) CreateAppTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewApp) (App, string, error) {
	if err := n.check(); err != nil {
		return App{}, "", err
	}
	if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.OAuthApps, 1); err != nil {
		return App{}, "", err
	}
	var secret, hash, hint string
	if n.Confidential {
		secret = account.NewSecret(appPrefix)
		hash, hint = digest(secret), account.SecretHint(secret)
	}
	a, err := scanApp(tx.QueryRow(ctx, `
		INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint,
		  old_secret, old_secret_until, disabled_at, fresh_until, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', 0, 0, 0, $9)
		RETURNING `+appColumns,
		db.NewID("app"), owner, n.Name, n.Website, strings.Join(n.RedirectURIs, "\n"), n.Confidential, hash, hint, db.Now()))
	if err != nil {
		return App{}, "", fmt.Errorf("create app: %w", err)
	}
	return a, secret, nil
}

// AppChange holds what an app's owner changes of it; nil fields stay.
type AppChange struct {
	Name         *string
	Website      *string
	RedirectURIs *[]string
}

// UpdateAppTx changes an app. An authorization that is under way at a redirect URI that goes is refused.
func (s *Server) UpdateAppTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id AppID, c AppChange) (App, error) {
	a, err := s.App(ctx, tx, owner, id)
	if err != nil {
		return App{}, err
	}
	n := NewApp{Name: a.Name, Website: a.Website, RedirectURIs: a.RedirectURIs, Confidential: a.Confidential}
	if c.Name != nil {
		n.Name = *c.Name
	}
	if c.Website != nil {
		n.Website = *c.Website
	}
	if c.RedirectURIs != nil {
		n.RedirectURIs = *c.RedirectURIs
	}
	if err := n.check(); err != nil {
		return App{}, err
	}
	return scanApp(tx.QueryRow(ctx, `
		UPDATE oauth_apps SET name = $3, website = $4, redirect_uris = $5 WHERE owner_id = $1 AND id = $2
		RETURNING `+appColumns, owner, id, n.Name, n.Website, strings.Join(n.RedirectURIs, "\n")))
}

// DeleteAppTx removes an app with every grant that people gave it.
func (s *Server) DeleteAppTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id AppID) error {
	if _, err := s.App(ctx, tx, owner, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM oauth_approvals WHERE app_id = $1`, id); err != nil {
		return err
	}
	if err := s.endAccessTx(ctx, tx, `app_id = $1`, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM oauth_apps WHERE id = $1`, id); err != nil {
		return fmt.Errorf("delete app: %w", err)
	}
	return nil
}

// secretOverlap is how long the secret before a rotation works at most and by default.
const secretOverlap = 24 * time.Hour

// RotateSecretTx gives a confidential app a new secret. The one before works for another day, so that
// a deployment of the app can change over; the one before that ends.
func (s *Server) RotateSecretTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id AppID) (App, string, error) {
	a, err := s.App(ctx, tx, owner, id)
	if err != nil {
		return App{}, "", err
	}
	if !a.Confidential {
		return App{}, "", fault.New(fault.Conflict, "app_is_public", "The app has no secret",
			"public apps prove themselves by PKCE alone")
	}
	secret := account.NewSecret(appPrefix)
	a, err = scanApp(tx.QueryRow(ctx, `
		UPDATE oauth_apps SET old_secret = secret, old_secret_until = $3, secret = $4, secret_hint = $5 WHERE owner_id = $1 AND id = $2
		RETURNING `+appColumns, owner, id, db.Now().Add(secretOverlap), digest(secret), account.SecretHint(secret)))
	return a, secret, err
}

// SetDisabledTx ends an app everywhere, or lets people grant it rights again: the operator's switch.
// Its grants end with it.
func (s *Server) SetDisabledTx(ctx context.Context, tx *db.Tx, id AppID, disabled bool) error {
	at := db.Time(0)
	if disabled {
		at = db.Now()
	}
	n, err := tx.Exec(ctx, `UPDATE oauth_apps SET disabled_at = $2 WHERE id = $1`, id, at)
	if err != nil {
		return fmt.Errorf("disable app: %w", err)
	}
	if n == 0 {
		return fault.Missing("app")
	}
	if disabled {
		return s.endAccessTx(ctx, tx, `app_id = $1`, id)
	}
	return nil
}

// check makes a name and addresses fit to be shown to people who decide by them.
func (n *NewApp) check() error {
	n.Name = strings.TrimSpace(n.Name)
	if err := checkName(n.Name); err != nil {
		return err
	}
	if n.Website != "" {
		if u, err := url.Parse(n.Website); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			len(n.Website) > maxRedirectLen {
			return fault.New(fault.Invalid, "invalid_website", "Invalid website", "website is an https URL").Got(n.Website)
		}
	}
	if len(n.RedirectURIs) > maxRedirects {
		return fault.New(fault.Invalid, "invalid_redirect_uri", "Too many redirect URIs",
			fmt.Sprintf("an app has at most %d", maxRedirects))
	}
	for _, uri := range n.RedirectURIs {
		if err := checkRedirect(uri); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses names that people can't read or would take for ours.
func checkName(name string) error {
	refuse := func(details string) error {
		return fault.New(fault.Invalid, "invalid_name", "Invalid app name", details).Got(name)
	}
	if c := utf8.RuneCountInString(name); c < 1 || c > 60 || !utf8.ValidString(name) || !account.Visible(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }) { // no control and no format characters
		return refuse("a name has 1 to 60 visible characters")
	}
	if strings.Contains(skeleton(name), "slipway") {
		return refuse("a name doesn't contain Slipway")
	}
	return nil
}

// skeleton is a name in lower case without blanks and signs, the commonest lookalikes of other scripts
// as the Latin letters that they look like (UTS #39).
func skeleton(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if l, ok := lookalikes[r]; ok {
			r = l
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

var lookalikes = map[rune]rune{
	'ѕ': 's', '5': 's', '$': 's', 'ł': 'l', '1': 'l', '|': 'l', 'ӏ': 'l', 'і': 'i', 'ı': 'i', 'í': 'i', 'ì': 'i', 'ï': 'i', '!': 'i',
	'р': 'p', 'ρ': 'p', 'ԝ': 'w', 'ѡ': 'w', 'ω': 'w', 'а': 'a', 'α': 'a', '4': 'a', '@': 'a', 'á': 'a', 'à': 'a', 'ä': 'a', 'у': 'y',
	'ү': 'y', 'γ': 'y',
}

// find returns an app that people may grant rights to.
func (s *Server) find(ctx context.Context, r db.Reader, id AppID) (App, error) {
	a, err := scanApp(r.QueryRow(ctx, `SELECT `+appColumns+` FROM oauth_apps WHERE id = $1`, id))
	if err == nil && a.Disabled {
		return a, fault.New(fault.Forbidden, "app_disabled", "This app is disabled",
			"the operator of this installation disabled it")
	}
	return a, err
}

// Named returns an app by its name alone, for requests by which nobody gets anything. The error is an *Error,
// or the database's.
func (s *Server) Named(ctx context.Context, id AppID) (App, error) {
	a, err := s.find(ctx, s.c.DB, id)
	if fault.As(err) != nil {
		return App{}, errClient
	}
	return a, err
}

// Client identifies who calls the token endpoint: a confidential app by its secret, a public one by
// its name alone (RFC 6749 §2.3). The error is an *Error, or the database's.
func (s *Server) Client(ctx context.Context, id AppID, secret string) (App, error) {
	a, err := s.Named(ctx, id)
	if err != nil {
		return App{}, err
	}
	if !a.Confidential {
		if secret != "" {
			return App{}, errClient
		}
		return a, nil
	}
	hash := digest(secret)
	newest := subtle.ConstantTimeCompare([]byte(hash), []byte(a.secret)) == 1
	older := a.OldUntil > db.Now() && subtle.ConstantTimeCompare([]byte(hash), []byte(a.old)) == 1
	if secret == "" || !newest && !older {
		return App{}, errClient
	}
	return a, nil
}
