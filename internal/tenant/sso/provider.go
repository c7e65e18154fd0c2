package sso

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// ProviderID names a provider. It is part of the callback URL and not secret.
type ProviderID string

// Kind is the product behind a provider. Each kind has its own rules for verified addresses.
type Kind string

// OIDC is any other issuer: Okta, Keycloak, Authentik, Zitadel and so on.
const (
	Google    Kind = "google"
	Microsoft Kind = "microsoft"
	GitLab    Kind = "gitlab"
	GitHub    Kind = "github"
	OIDC      Kind = "oidc"
)

// Kinds lists every kind.
var Kinds = []Kind{Google, Microsoft, GitLab, GitHub, OIDC}

var (
	names   = map[Kind]string{Google: "Google", Microsoft: "Microsoft", GitLab: "GitLab", GitHub: "GitHub", OIDC: "single sign-on"}
	issuers = map[Kind]string{Google: "https://accounts.google.com", GitLab: "https://gitlab.com", GitHub: "https://github.com"}
)

// Provider is an external service with whose accounts people may sign in.
type Provider struct {
	ID        ProviderID
	Owner     account.OwnerID // the team it is for; empty: everyone
	Kind      Kind
	Name      string // "Continue with <name>"
	Issuer    string
	ClientID  string
	Domains   []string     // domains of addresses it vouches for; "*" is every domain
	JoinRole  account.Role // role of people who join the team by signing in; empty: they need an invitation
	CreatedAt db.Time

	secret string // sealed
}

// NewProvider is the input of [SSO.CreateTx].
type NewProvider struct {
	ID       ProviderID // Optional: defaults to the kind.
	Kind     Kind
	Name     string // Optional: defaults to the kind's.
	Issuer   string // Optional if the kind has a fixed issuer.
	Tenant   string // Microsoft only: the directory's ID
	ClientID string
	Secret   Secret
	Domains  []string // Optional.
}

// Secret is a client secret. It is hidden in logs.
type Secret string

// LogValue hides the secret in logs.
func (Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String hides the secret in error texts.
func (Secret) String() string { return "[redacted]" }

// GoString hides the secret in %#v.
func (Secret) GoString() string { return "[redacted]" }

// CallbackPath returns the path to which a provider redirects. Each provider has its own, so that one's response can't
// be taken for another's (RFC 9700 §4.4.2).
func CallbackPath(id ProviderID) string { return "/sign-in/sso/" + string(id) + "/callback" }

// Callback returns the redirect URL to register with a provider.
func (s *SSO) Callback(id ProviderID) string { return s.c.Base + CallbackPath(id) }

const providerColumns = `id, owner_id, kind, name, issuer, client_id, secret, domains, join_role, created_at`

func scanProvider(r db.Scanner) (p Provider, err error) {
	var domains string
	err = r.Scan(&p.ID, &p.Owner, &p.Kind, &p.Name, &p.Issuer, &p.ClientID, &p.secret, &domains, &p.JoinRole, &p.CreatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return p, fault.Missing("sign-in provider")
	}
	p.Domains = strings.Fields(domains)
	return p, err
}

// List returns the providers for everyone, ordered by name.
func (s *SSO) List(ctx context.Context) ([]Provider, error) {
	return s.list(ctx, s.c.DB, `owner_id = ''`)
}

func (s *SSO) list(ctx context.Context, r db.Reader, where string, args ...any) ([]Provider, error) {
	rows, err := r.Query(ctx, `SELECT `+providerColumns+` FROM sso_providers WHERE `+where+` ORDER BY name, id`, args...)
	list, err := db.Collect(rows, err, scanProvider)
	if err != nil {
		return nil, fmt.Errorf("list sign-in providers: %w", err)
	}
	return list, nil
}

// Get returns a provider of the operator's or of any team, or a NotFound fault.
func (s *SSO) Get(ctx context.Context, r db.Reader, id ProviderID) (Provider, error) {
	return scanProvider(r.QueryRow(ctx, `SELECT `+providerColumns+` FROM sso_providers WHERE id = $1`, id))
}

func secretPurpose(id ProviderID) string { return "sso provider/" + string(id) }

func (s *SSO) open(p Provider) (string, error) {
	plain, err := s.c.Seal.Open(p.secret, secretPurpose(p.ID))
	if err != nil {
		return "", fmt.Errorf("open client secret of %s: %w", p.ID, err)
	}
	return string(plain), nil
}

// CreateTx stores a provider. It returns a Conflict fault if the ID, or the issuer and client, exist.
func (s *SSO) CreateTx(ctx context.Context, tx *db.Tx, n NewProvider) (Provider, error) {
	p, err := n.check()
	if err != nil {
		return p, err
	}
	added, err := s.insert(ctx, tx, &p, n.Secret)
	if err != nil {
		return p, err
	}
	if added == 0 {
		return p, fault.New(fault.Conflict, "provider_exists", "A sign-in provider with this id already exists",
			"choose another id, or remove the other provider first").Got(string(p.ID))
	}
	return p, nil
}

func (s *SSO) insert(ctx context.Context, tx *db.Tx, p *Provider, secret Secret) (int64, error) {
	p.CreatedAt, p.secret = db.Now(), s.c.Seal.Seal([]byte(secret), secretPurpose(p.ID))
	added, err := tx.Exec(ctx, `
		INSERT INTO sso_providers (`+providerColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
		p.ID, p.Owner, p.Kind, p.Name, p.Issuer, p.ClientID, p.secret, strings.Join(p.Domains, " "), p.JoinRole, p.CreatedAt)
	if err != nil {
		return 0, fmt.Errorf("store sign-in provider: %w", err)
	}
	return added, nil
}

// DeleteTx deletes a provider, ends the sessions begun with it, and ends what people created in those sessions.
// Identities stay: they belong to the issuer and work again with another provider of it.
func (s *SSO) DeleteTx(ctx context.Context, tx *db.Tx, id ProviderID) (p Provider, ended int64, err error) {
	if p, err = s.Get(ctx, tx, id); err != nil {
		return p, 0, err
	}
	for _, q := range []string{
		`DELETE FROM sso_sign_ins WHERE provider_id = $1`, `DELETE FROM sso_domains WHERE provider_id = $1`,
		`DELETE FROM sso_providers WHERE id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return p, 0, fmt.Errorf("remove sign-in provider: %w", err)
		}
	}
	ended, err = s.endTx(ctx, tx, id, "")
	return p, ended, err
}

// endTx ends the sessions begun with a provider and the keys and grants created in them for its team, of one user or,
// if user is empty, of all. It returns the number of ended sessions.
func (s *SSO) endTx(ctx context.Context, tx *db.Tx, id ProviderID, user account.UserID) (ended int64, err error) {
	ended, err = s.c.Accounts.EndProviderTx(ctx, tx, string(id), user)
	if err == nil && s.c.Grants != nil {
		err = s.c.Grants.EndProviderTx(ctx, tx, string(id), user)
	}
	return ended, err
}

var (
	idForm     = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,31}$`)
	tenantForm = lazyregexp.New(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	domainForm = lazyregexp.New(`^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+)$`)
)

// personal is the tenant of Microsoft's personal accounts, which anyone can create.
const personal = "9188040d-6c67-4c5b-b112-36a304b66dad"

// maxDomains caps the domains that a provider vouches for.
const maxDomains = 100

func invalid(message, details, code string) error {
	return fault.New(fault.Invalid, code, message, details)
}

// check validates the settings and returns the provider, or an Invalid fault.
func (n NewProvider) check() (p Provider, err error) {
	if !slices.Contains(Kinds, n.Kind) {
		return p, invalid("Invalid provider kind", "the kind is google, microsoft, gitlab, github or oidc", "invalid_kind")
	}
	p = Provider{
		ID: cmp.Or(n.ID, ProviderID(n.Kind)), Kind: n.Kind, Name: cmp.Or(strings.TrimSpace(n.Name), names[n.Kind]),
		ClientID: strings.TrimSpace(n.ClientID),
	}
	if !idForm.MatchString(string(p.ID)) {
		return p, invalid("Invalid provider id", "an id has 1 to 32 lower-case letters, digits and hyphens", "invalid_id")
	}
	if p.Issuer, err = n.issuer(); err != nil {
		return p, err
	}
	if err := p.checkText(n.Secret); err != nil {
		return p, err
	}
	if len(n.Domains) > maxDomains {
		return p, invalid("Too many domains", fmt.Sprintf("a provider has at most %d", maxDomains), "invalid_domain")
	}
	for _, d := range n.Domains {
		d = strings.ToLower(strings.TrimSpace(d))
		if !domainForm.MatchString(d) || len(d) > 253 {
			return p, invalid("Invalid domain", "a domain looks like example.com; * allows every address", "invalid_domain")
		}
		p.Domains = append(p.Domains, d)
	}
	return p, nil
}

// checkText validates a provider's texts.
func (p Provider) checkText(secret Secret) error {
	if p.Name == "" || p.Name != text.Line(p.Name, 40) {
		return invalid("Invalid provider name", "a name has 1 to 40 printable characters", "invalid_name")
	}
	for what, v := range map[string]string{"client ID": p.ClientID, "client secret": string(secret)} {
		if v == "" || len(v) > 1000 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return invalid("Invalid "+what, "it has 1 to 1000 printable characters without spaces", "invalid_client")
		}
	}
	return nil
}

// issuer returns the issuer's URL exactly as in its tokens.
func (n NewProvider) issuer() (string, error) {
	issuer := cmp.Or(strings.TrimSpace(n.Issuer), issuers[n.Kind])
	switch {
	case n.Kind == Microsoft && (!tenantForm.MatchString(n.Tenant) || n.Tenant == personal):
		return "", invalid("Invalid tenant", "the directory (tenant) ID is needed, such as 72f988bf-86f1-41af-91ab-2d7cd011db47; "+
			"sign-in from every tenant is not supported, because any tenant can claim any email address", "invalid_tenant")
	case n.Kind == Microsoft:
		return "https://login.microsoftonline.com/" + n.Tenant + "/v2.0", nil
	case n.Kind == Google && issuer != issuers[Google]:
		return "", invalid("Invalid issuer", "Google's issuer is "+issuers[Google], "invalid_issuer")
	}
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || len(issuer) > 500 ||
		!secure(u, u) {
		return "", invalid("Invalid issuer", "an issuer is an https address without a query, such as https://login.example.com", "invalid_issuer")
	}
	return issuer, nil
}

// secure reports whether an issuer's URL may be used: https, or http if both it and the issuer are on this machine, for
// trials.
func secure(u, issuer *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u) && issuer.Scheme == "http" && loopback(issuer)
}

func loopback(u *url.URL) bool {
	h := u.Hostname()
	return h == "localhost" || h == "127.0.0.1" || h == "::1"
}
