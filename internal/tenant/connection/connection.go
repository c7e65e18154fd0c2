// Package connection owns users' accounts at Git providers. They read repositories without a pasted credential and
// report deployments to the provider.
//
// A connection is an access token, checked with the provider when it is stored, encrypted, and
// sent only to that provider's host. It is either pasted, or issued to one of the operator's
// apps and then refreshed before it expires, by one process at a time. With a GitHub App, a
// repository is read with tokens for that repository only, as long as the user can read it.
// Reports are durable jobs that send the state of a deployment at the time they run: commit
// statuses, deployment records, and one comment on each pull request. If the provider rejects
// a report, the deployment doesn't fail; the error is stored with the connection. The package
// knows neither sites nor deployments: callers pass the content.
package connection

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"slipway/internal/git/fetch"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// ID names a connection: "git_" and 26 characters; older ones begin with "con_".
type ID = id.Connection

// Connection is a connected account as its owner sees it.
type Connection struct {
	ID        ID
	Owner     account.OwnerID
	Provider  forge.Provider
	Host      string   // of the Git provider
	Login     string   // account name at the provider
	Scopes    []string // the token's scopes; empty if the provider doesn't report them
	Sites     int      // number of sites that use it
	Error     string   // the provider's last error, or empty
	ErrorAt   db.Time
	CreatedAt db.Time
	UpdatedAt db.Time

	App       AppID   // the app that issued the token; empty: a pasted access token
	ExpiresAt db.Time // of the token; 0: never
	Ended     bool    // whether the provider rejects its tokens, so that the user must connect again

	refreshedAt db.Time
	box         string // sealed secret
}

// secret holds a connection's credentials.
type secret struct {
	Token   string `json:"token"`
	User    string `json:"user,omitempty"`    // of an app password; empty for tokens
	Refresh string `json:"refresh,omitempty"` // refresh token
}

// LogValue hides the token in logs.
func (secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String hides the token in error texts.
func (secret) String() string { return "[redacted]" }

// GoString hides the token in %#v.
func (secret) GoString() string { return "[redacted]" }

// Providers lists the Git providers that can be connected.
var Providers = []forge.Provider{forge.GitHub, forge.GitLab, forge.Gitea, forge.Bitbucket}

// hosts holds the host of each provider that has only one.
var hosts = map[forge.Provider]string{forge.GitHub: "github.com", forge.GitLab: "gitlab.com", forge.Bitbucket: "bitbucket.org"}

// maxConnections caps an owner's connections.
const maxConnections = 20

// Config holds what Connections needs.
type Config struct {
	DB   *db.DB
	Seal *seal.Sealer
	Out  *http.Client // from egress: refuses private addresses

	// Hosts maps host names to the addresses set with --git-host, and Egress reaches them. Both are optional.
	Hosts  map[string]string
	Egress *egress.Egress

	// Base is the URL of the dashboard, to which providers redirect people, and Hooks that of the API, which receives
	// events. Optional: without them apps are unavailable.
	Base, Hooks string

	Log *slog.Logger // Optional.
}

// Deployments provides the facts that are reported to Git providers.
type Deployments interface {
	// Facts returns a deployment's facts, or a NotFound fault.
	Facts(ctx context.Context, deployment id.Deployment) (Facts, error)
}

// Connections is the service.
type Connections struct {
	c           Config
	deployments Deployments // nil: nothing is reported

	installations tokens // cached tokens of GitHub App installations
}

// New returns Connections. It starts nothing: Work registers its jobs.
func New(c Config) *Connections {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Connections{c: c}
}

// Connect sets the source of deployments to report. It must be called before Work; deployments are constructed after
// Connections, which they use.
func (s *Connections) Connect(d Deployments) { s.deployments = d }

const columns = `c.id, c.owner_id, c.provider, c.host, c.login, c.token, c.error, c.error_at, c.created_at, c.updated_at,
	c.app_id, c.expires_at, c.ended, c.refreshed_at, c.scopes, (SELECT count(*) FROM site_connections s WHERE s.connection_id = c.id)`

func scan(r db.Scanner) (c Connection, err error) {
	var scopes string
	err = r.Scan(&c.ID, &c.Owner, &c.Provider, &c.Host, &c.Login, &c.box, &c.Error, &c.ErrorAt, &c.CreatedAt, &c.UpdatedAt,
		&c.App, &c.ExpiresAt, &c.Ended, &c.refreshedAt, &scopes, &c.Sites)
	c.Scopes = strings.Fields(scopes)
	if errors.Is(err, sql.ErrNoRows) {
		return c, fault.Missing("connection")
	}
	return c, err
}

func purpose(id ID) string { return "connection/" + string(id) }

// List returns the owner's connections, oldest first.
func (s *Connections) List(ctx context.Context, r db.Reader, owner account.OwnerID) ([]Connection, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM connections c WHERE c.owner_id = $1 ORDER BY c.created_at, c.id`, owner)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return list, nil
}

// Get returns the owner's connection, or a NotFound fault.
func (s *Connections) Get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Connection, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM connections c WHERE c.id = $1 AND c.owner_id = $2`, id, owner))
}

// NewConnection is a connection to create.
type NewConnection struct {
	Provider forge.Provider
	Host     string // Optional if the provider has a single host.
	Token    string
	User     string // Optional: the user name of an app password.
}

// Checked is a connection whose credentials the provider accepted.
type Checked struct {
	n      NewConnection
	login  string
	scopes string // space-separated

	app     AppID // empty: a pasted access token
	refresh string
	expires db.Time
}

var hostForm = lazyregexp.New(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

// Check asks the provider for the token's account. It uses the network, so it must run outside a transaction.
func (s *Connections) Check(ctx context.Context, n NewConnection) (Checked, error) {
	bad := func(why, details string) (Checked, error) {
		return Checked{}, fault.New(fault.Invalid, "invalid_connection", why, details)
	}
	if !slices.Contains(Providers, n.Provider) {
		return bad("Unknown Git provider", "provider must be github, gitlab, gitea or bitbucket")
	}
	var err error
	if n.Host, err = checkHost(n.Provider, n.Host); err != nil {
		return Checked{}, err
	}
	n.Token, n.User = strings.TrimSpace(n.Token), strings.TrimSpace(n.User)
	if n.Token == "" || len(n.Token) > 4096 || len(n.User) > 200 ||
		strings.ContainsFunc(n.Token+n.User, func(r rune) bool { return r <= ' ' || r > '~' }) ||
		strings.Contains(n.User, ":") {
		return bad("Invalid access token", "token has 1 to 4,096 printable characters without spaces")
	}
	var scopes string
	login, err := s.apiNoting(n.Provider, n.Host, secret{Token: n.Token, User: n.User}, &scopes).user(ctx)
	if err != nil {
		return Checked{}, tell(err, n.Host)
	}
	return Checked{n: n, login: login, scopes: scopeList(scopes)}, nil
}

// CreateTx stores a checked connection. It replaces an existing connection to the same account.
func (s *Connections) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, k Checked) (Connection, error) {
	text, err := json.Marshal(secret{k.n.Token, k.n.User, k.refresh})
	if err != nil {
		return Connection{}, err
	}
	list, err := s.List(ctx, tx, owner)
	if err != nil {
		return Connection{}, err
	}
	now := db.Now()
	for _, c := range list {
		if c.Provider == k.n.Provider && c.Host == k.n.Host && strings.EqualFold(c.Login, k.login) {
			_, err := tx.Exec(
				ctx,
				`UPDATE connections SET token = $2, app_id = $4, expires_at = $5, refreshed_at = $3, scopes = $6, refreshing_until = 0,
					ended = FALSE, error = '', error_at = 0, updated_at = $3 WHERE id = $1`, c.ID,
				s.c.Seal.Seal(text, purpose(c.ID)), now, k.app, k.expires, k.scopes,
			)
			if err != nil {
				return Connection{}, fmt.Errorf("replace token: %w", err)
			}
			if c.box != "" && c.App != "" {
				if err := s.revokeTx(ctx, tx, c); err != nil {
					return Connection{}, err
				}
			}
			return s.Get(ctx, tx, owner, c.ID)
		}
	}
	if len(list) >= maxConnections {
		return Connection{}, fault.New(fault.Conflict, "too_many_connections", "Too many connected accounts",
			fmt.Sprintf("at most %d; disconnect one first", maxConnections))
	}
	id := db.ID[ID]("git")
	_, err = tx.Exec(ctx, `
		INSERT INTO connections (id, owner_id, provider, host, login, token, error, error_at, created_at, updated_at, app_id,
		expires_at, refreshed_at, scopes)
		VALUES ($1, $2, $3, $4, $5, $6, '', 0, $7, $7, $8, $9, $7, $10)`,
		id, owner, k.n.Provider, k.n.Host, k.login, s.c.Seal.Seal(text, purpose(id)), now, k.app, k.expires, k.scopes)
	if err != nil {
		return Connection{}, fmt.Errorf("store connection: %w", err)
	}
	return s.Get(ctx, tx, owner, id)
}

// DeleteTx deletes the owner's connection and token. If an app issued the token, it also enqueues its revocation at the
// provider. Sites that used the connection are read without a credential from then on, and their deployments are no
// longer reported.
func (s *Connections) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	c, err := s.Get(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	if err := s.revokeTx(ctx, tx, c); err != nil {
		return err
	}
	for _, q := range []string{`DELETE FROM site_connections WHERE connection_id = $1`, `DELETE FROM connections WHERE id = $1`} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("delete connection: %w", err)
		}
	}
	return nil
}

// CloseOwnerTx deletes all of a closing account's connections as DeleteTx does.
func (s *Connections) CloseOwnerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	list, err := s.List(ctx, tx, owner)
	for _, c := range list {
		err = errors.Join(err, s.DeleteTx(ctx, tx, owner, c.ID))
	}
	return err
}

// Use is a site's choice of connection. The caller has checked that the owner owns the site.
type Use struct {
	Connection ID // empty: none
	Report     bool
}

// UseOf returns a site's choice of connection.
func (s *Connections) UseOf(ctx context.Context, r db.Reader, site id.Site) (u Use, err error) {
	err = r.QueryRow(ctx, `SELECT connection_id, report FROM site_connections WHERE site_id = $1`, site).Scan(&u.Connection, &u.Report)
	if errors.Is(err, sql.ErrNoRows) {
		return Use{Report: true}, nil
	}
	return u, err
}

// UseTx sets the connection for a site's repository, host/owner/repo. The repository must be on the connection's host.
func (s *Connections) UseTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, repository string, u Use) error {
	if u.Connection == "" {
		_, err := tx.Exec(ctx, `DELETE FROM site_connections WHERE site_id = $1`, site)
		return err
	}
	c, err := s.Get(ctx, tx, owner, u.Connection)
	if err != nil {
		return err
	}
	if host, _, _ := strings.Cut(repository, "/"); host != c.Host {
		return fault.New(fault.Conflict, "wrong_host", "The connected account is for another host",
			"the repository is on "+host+", the account on "+c.Host)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO site_connections (site_id, connection_id, report) VALUES ($1, $2, $3)
		ON CONFLICT (site_id) DO UPDATE SET connection_id = excluded.connection_id, report = excluded.report`, site, u.Connection, u.Report)
	if err != nil {
		return fmt.Errorf("use connection: %w", err)
	}
	return nil
}

// ForgetSiteTx deletes everything stored about a site.
func (s *Connections) ForgetSiteTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	for _, q := range []string{
		`DELETE FROM site_connections WHERE site_id = $1`,
		`DELETE FROM forge_reports WHERE site_id = $1`,
		`DELETE FROM forge_comments WHERE site_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, site); err != nil {
			return fmt.Errorf("forget connection of a site: %w", err)
		}
	}
	return nil
}

// CredentialOf returns the credential that reads a site's repository, or nil if the site uses no connection or one for
// another host.
func (s *Connections) CredentialOf(ctx context.Context, site id.Site, repository string) (*fetch.Credential, error) {
	c, err := s.ofSite(ctx, site)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if host, _, _ := strings.Cut(repository, "/"); host != c.Host {
		return nil, nil
	}
	return s.credential(ctx, c, repository)
}

// CredentialFor is [Connections.CredentialOf] for a repository without a site.
func (s *Connections) CredentialFor(ctx context.Context, owner account.OwnerID, id ID, repository string) (*fetch.Credential, error) {
	c, err := s.Get(ctx, s.c.DB, owner, id)
	if err != nil {
		return nil, err
	}
	if host, _, _ := strings.Cut(repository, "/"); host != c.Host {
		return nil, fault.New(fault.Conflict, "wrong_host", "The connected account is for another host",
			"the account is on "+c.Host)
	}
	return s.credential(ctx, c, repository)
}

// credential returns the credential for a repository on the connection's host. It is nil if anyone can read the
// repository through a GitHub App connection.
func (s *Connections) credential(ctx context.Context, c Connection, repository string) (*fetch.Credential, error) {
	if c.ByGitHubApp() {
		token, err := s.readToken(ctx, c, repository)
		if err != nil || token == "" {
			return nil, err
		}
		return &fetch.Credential{Host: c.Host, User: "x-access-token", Token: token}, nil
	}
	k, err := s.fresh(ctx, c)
	if err != nil {
		return nil, err
	}
	// The user name to send with a token, from each provider's manual.
	user := cmp.Or(
		k.User,
		map[forge.Provider]string{
			forge.GitHub:    "x-access-token",
			forge.GitLab:    "oauth2",
			forge.Bitbucket: "x-token-auth",
			forge.Gitea:     c.Login,
		}[c.Provider],
	)
	return &fetch.Credential{Host: c.Host, User: user, Token: k.Token}, nil
}

func (s *Connections) ofSite(ctx context.Context, site id.Site) (Connection, error) {
	return scan(s.c.DB.QueryRow(ctx,
		`SELECT `+columns+` FROM connections c JOIN site_connections u ON u.connection_id = c.id WHERE u.site_id = $1`,
		site))
}

func (s *Connections) open(c Connection) (secret, error) {
	plain, err := s.c.Seal.Open(c.box, purpose(c.ID))
	if err != nil {
		return secret{}, fmt.Errorf("open token of %s: %w", c.ID, err)
	}
	var k secret
	if err := json.Unmarshal(plain, &k); err != nil {
		return secret{}, fmt.Errorf("read token of %s: %w", c.ID, err)
	}
	return k, nil
}

// Repository is a repository that an account can read.
type Repository struct {
	Name    string // host/owner/repo
	Default string // branch
	Private bool
}

// Repositories returns up to 100 of the connected account's repositories whose names contain search, most recently used
// first.
func (s *Connections) Repositories(ctx context.Context, owner account.OwnerID, id ID, search string) ([]Repository, error) {
	c, err := s.Get(ctx, s.c.DB, owner, id)
	if err != nil {
		return nil, err
	}
	k, err := s.fresh(ctx, c)
	if err != nil {
		return nil, err
	}
	a := s.api(c.Provider, c.Host, k)
	if c.ByGitHubApp() {
		a = installed{a.(github)}
	}
	list, err := a.repositories(ctx, text.Line(search, 100))
	if err != nil {
		return nil, tell(err, c.Host)
	}
	out := []Repository{}
	for _, r := range list {
		r.Name = c.Host + "/" + r.Name
		if strings.Contains(strings.ToLower(r.Name), strings.ToLower(search)) && len(out) < 100 {
			out = append(out, r)
		}
	}
	return out, nil
}

// scopeList normalizes a provider's list of scopes, separated by commas or spaces, for storage.
func scopeList(s string) string {
	list := strings.FieldsFunc(text.Line(s, 1000), func(r rune) bool { return r == ',' || r == ' ' })
	return strings.Join(list[:min(len(list), 50)], " ")
}
