package sso

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// DomainID names a team's domain claim: "sdm_" and 26 characters.
type DomainID string

// Domain is an email domain whose addresses a team's provider may vouch for once the team has proven ownership.
type Domain struct {
	ID         DomainID
	Owner      account.OwnerID
	Provider   ProviderID
	Name       string // lower-case A-labels
	Token      string // value of the TXT record
	CreatedAt  db.Time
	VerifiedAt db.Time // 0: not verified
	Missing    db.Time // since when a verified domain's record is missing; 0: present
	CheckedAt  db.Time // 0: never
	NextCheck  db.Time // 0: no automatic check
	Problem    string  // result of the last check; empty: none
}

// Record returns the name of the domain's TXT record.
func (d Domain) Record() string { return "_slipway-sso." + d.Name }

// Speaks reports whether the provider may currently vouch for the domain's addresses.
func (d Domain) Speaks() bool { return d.VerifiedAt > 0 && d.Missing == 0 }

// Status returns pending, verified or missing.
func (d Domain) Status() string {
	switch {
	case d.Speaks():
		return "verified"
	case d.VerifiedAt > 0:
		return "missing"
	}
	return "pending"
}

const (
	recheck    = 6 * time.Hour      // of a verified domain
	retry      = 15 * time.Minute   // of an unverified domain, or one with a missing record
	giveUp     = 7 * 24 * time.Hour // when checks of an unverified domain stop
	grace      = 72 * time.Hour     // how long a missing record still reserves the domain
	maxClaimed = 20                 // domains per team
)

//go:embed public.txt
var publicMail string

// public holds the email domains in which anyone can get an address.
var public = func() map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(publicMail) {
		out[name] = true
	}
	return out
}()

// cleanDomain normalizes a domain, or returns an Invalid fault.
func cleanDomain(received string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fault.New(fault.Invalid, "invalid_domain", "Invalid email domain", why).Got(text.Line(received, 253))
	}
	name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(received), "@"), ".")
	if len(name) > 4*253 {
		return refuse("a domain looks like example.com")
	}
	name, err := idna.Lookup.ToASCII(name)
	name = strings.ToLower(name)
	if err != nil || len(name)+len("_slipway-sso.") > 253 || name == "*" || !domainForm.MatchString(name) {
		return refuse("a domain looks like example.com")
	}
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		return refuse(name + " is a public suffix, below which anybody can register a name")
	}
	if zone, _ := publicsuffix.EffectiveTLDPlusOne(name); public[name] || public[zone] {
		return refuse("anybody can get an address at " + name)
	}
	return name, nil
}

// domainOf returns the normalized domain of an email address, or "".
func domainOf(email string) string {
	local, domain, ok := strings.Cut(strings.TrimSpace(email), "@")
	if !ok || local == "" || len(domain) > 4*253 {
		return ""
	}
	name, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}

const domainColumns = `id, owner_id, provider_id, name, token, created_at, verified_at, missing_since, checked_at, next_check, problem`

func scanDomain(r db.Scanner) (d Domain, err error) {
	err = r.Scan(&d.ID, &d.Owner, &d.Provider, &d.Name, &d.Token, &d.CreatedAt, &d.VerifiedAt, &d.Missing, &d.CheckedAt, &d.NextCheck,
		&d.Problem)
	if errors.Is(err, sql.ErrNoRows) {
		return d, fault.Missing("domain")
	}
	if err != nil {
		return d, fmt.Errorf("read sign-in domain: %w", err)
	}
	return d, nil
}

// Domains returns a team's domain claims by name.
func (s *SSO) Domains(ctx context.Context, owner account.OwnerID) ([]Domain, error) {
	return domains(ctx, s.c.DB, owner)
}

// DomainsTx is [SSO.Domains] in the caller's transaction.
func (s *SSO) DomainsTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) ([]Domain, error) {
	return domains(ctx, tx, owner)
}

func domains(ctx context.Context, r db.Reader, owner account.OwnerID) ([]Domain, error) {
	rows, err := r.Query(ctx, `SELECT `+domainColumns+` FROM sso_domains WHERE owner_id = $1 ORDER BY name`, owner)
	list, err := db.Collect(rows, err, scanDomain)
	if err != nil {
		return nil, fmt.Errorf("list sign-in domains: %w", err)
	}
	return list, nil
}

// Domain returns one of a provider's domains, or a NotFound fault.
func (s *SSO) Domain(ctx context.Context, r db.Reader, owner account.OwnerID, provider ProviderID, id DomainID) (Domain, error) {
	return scanDomain(r.QueryRow(ctx, `SELECT `+domainColumns+` FROM sso_domains WHERE id = $1 AND owner_id = $2 AND provider_id = $3`,
		id, owner, provider))
}

// ClaimTx adds a domain to a team's provider. It takes effect once the TXT record is found.
func (s *SSO) ClaimTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, provider ProviderID, received string) (Domain, error) {
	name, err := cleanDomain(received)
	if err != nil {
		return Domain{}, err
	}
	if err := account.LockOwnerTx(ctx, tx, owner); err != nil {
		return Domain{}, err
	}
	if _, err := s.TeamProvider(ctx, tx, owner, provider); err != nil {
		return Domain{}, err
	}
	list, err := domains(ctx, tx, owner)
	if err != nil {
		return Domain{}, err
	}
	if slices.ContainsFunc(list, func(d Domain) bool { return d.Name == name }) {
		return Domain{}, fault.New(fault.Conflict, "domain_exists", "The team already has this domain",
			"remove it first to move it to another provider").Got(name)
	}
	if len(list) >= maxClaimed {
		return Domain{}, fault.New(fault.Conflict, "too_many_domains", "Too many email domains",
			fmt.Sprintf("a team has at most %d: remove one first", maxClaimed))
	}
	now := db.Now()
	d, err := scanDomain(tx.QueryRow(ctx, `
		INSERT INTO sso_domains (`+domainColumns+`) VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, $7, '') RETURNING `+domainColumns,
		db.NewID("sdm"), owner, provider, name, "slipway-sso="+db.Random(20), now, now.Add(retry)))
	return d, err
}

func (s *SSO) UnclaimTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, provider ProviderID, id DomainID) (Domain, error) {
	d, err := s.Domain(ctx, tx, owner, provider, id)
	if err != nil {
		return d, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sso_domains WHERE id = $1`, id); err != nil {
		return d, fmt.Errorf("remove sign-in domain: %w", err)
	}
	return d, nil
}

// ForEmail returns the team provider for the domain of an address, or a NotFound fault. It reveals nothing about users.
func (s *SSO) ForEmail(ctx context.Context, email string) (Provider, error) {
	var id ProviderID
	err := s.c.DB.QueryRow(ctx, `SELECT provider_id FROM sso_domains WHERE name = $1 AND verified_at > 0`, domainOf(email)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return Provider{}, fault.New(fault.NotFound, "no_sso_for_domain", "No single sign-on is set up for this email domain",
			"sign in another way; an owner of your team sets it up in the team's settings")
	}
	if err != nil {
		return Provider{}, fmt.Errorf("find provider of domain: %w", err)
	}
	return s.Get(ctx, s.c.DB, id)
}

// TeamsSignIn reports whether any team has its own sign-in provider with a verified domain.
func (s *SSO) TeamsSignIn(ctx context.Context) (yes bool, err error) {
	if err := s.c.DB.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM sso_domains WHERE verified_at > 0)`).Scan(&yes); err != nil {
		return false, fmt.Errorf("find providers of teams: %w", err)
	}
	return yes, nil
}

// OfUser returns the providers of the user's teams, and those whose domain is the user's.
func (s *SSO) OfUser(ctx context.Context, u account.User) ([]Provider, error) {
	return s.list(ctx, s.c.DB, `owner_id <> '' AND (
		owner_id IN (SELECT owner_id FROM memberships WHERE user_id = $1)
		OR id IN (SELECT provider_id FROM sso_domains WHERE name = $2 AND verified_at > 0))`, u.ID, domainOf(u.Email))
}

// Linkable returns the providers whose accounts a user may link: the operator's and, unless the user is an operator,
// those of OfUser.
func (s *SSO) Linkable(ctx context.Context, u account.User) ([]Provider, error) {
	list, err := s.List(ctx)
	if err != nil || u.Admin {
		return list, err
	}
	own, err := s.OfUser(ctx, u)
	return append(list, own...), err
}

// speaksFor reports whether a provider may vouch for an address.
func (s *SSO) speaksFor(ctx context.Context, r db.Reader, p Provider, email string) (yes bool, err error) {
	name := domainOf(email)
	if p.Owner == "" {
		return name != "" && (slices.Contains(p.Domains, name) || slices.Contains(p.Domains, "*")), nil
	}
	err = r.QueryRow(ctx,
		`SELECT EXISTS (SELECT 1 FROM sso_domains WHERE name = $1 AND provider_id = $2 AND verified_at > 0 AND missing_since = 0)`,
		name, p.ID).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("find domain of address: %w", err)
	}
	return yes, nil
}
