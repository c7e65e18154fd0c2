package sso

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// A team's owners choose their provider's issuer, which could lie. So it only signs in people who linked an account to
// that team (identities are separate per owner), and whose address is in a domain that the team has proven.

// JoinRoles lists the roles that people may get by signing in without an invitation.
var JoinRoles = []account.Role{account.RoleDeveloper, account.RoleContributor, account.RoleViewer}

// teamKinds lists the kinds that a team may add. GitHub doesn't prove addresses of a domain.
var teamKinds = []Kind{OIDC, Google, Microsoft, GitLab}

// maxProviders allows a team to replace its provider step by step.
const maxProviders = 3

// Members adds people to teams. It is implemented by *team.Teams.
type Members interface {
	// JoinTx makes a user a member with the role of an open invitation for the address. Without an invitation it uses role,
	// and does nothing if role is empty. It reports whether the user is a member afterwards.
	JoinTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID, email string, role account.Role) (bool, error)
}

// OfTeam returns a team's providers, ordered by name.
func (s *SSO) OfTeam(ctx context.Context, owner account.OwnerID) ([]Provider, error) {
	return s.list(ctx, s.c.DB, `owner_id = $1 AND owner_id <> ''`, owner)
}

// TeamProvider returns one of a team's providers, or a NotFound fault.
func (s *SSO) TeamProvider(ctx context.Context, r db.Reader, owner account.OwnerID, id ProviderID) (Provider, error) {
	p, err := s.Get(ctx, r, id)
	if err == nil && (p.Owner != owner || owner == "") {
		return Provider{}, fault.Missing("sign-in provider")
	}
	return p, err
}

// NewTeamProvider is the input of [SSO.CreateForTx].
type NewTeamProvider struct {
	Kind     Kind
	Name     string // Optional: defaults to the kind's.
	Issuer   string // Optional if the kind has a fixed issuer.
	Tenant   string // Microsoft only
	ClientID string
	Secret   Secret
	JoinRole account.Role // Optional: empty requires an invitation.
}

func (s *SSO) CreateForTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewTeamProvider) (Provider, error) {
	if !slices.Contains(teamKinds, n.Kind) {
		return Provider{}, invalid("Invalid provider kind", "kind must be oidc, google, microsoft or gitlab", "invalid_kind")
	}
	if err := checkJoinRole(n.JoinRole); err != nil {
		return Provider{}, err
	}
	new := NewProvider{Kind: n.Kind, Name: n.Name, Issuer: n.Issuer, Tenant: strings.ToLower(n.Tenant), ClientID: n.ClientID, Secret: n.Secret}
	p, err := new.check()
	if err != nil {
		return p, err
	}
	if !strings.HasPrefix(p.Issuer, "https://") {
		return p, invalid("Invalid issuer", "an issuer is an https address", "invalid_issuer")
	}
	if err := account.LockOwnerTx(ctx, tx, owner); err != nil {
		return p, err
	}
	list, err := s.list(ctx, tx, `owner_id = $1`, owner)
	if err != nil {
		return p, err
	}
	if len(list) >= maxProviders {
		return p, fault.New(fault.Conflict, "too_many_providers", "Too many sign-in providers",
			fmt.Sprintf("a team has at most %d: remove one first", maxProviders))
	}
	if slices.ContainsFunc(list, func(o Provider) bool { return o.Issuer == p.Issuer }) {
		return p, fault.New(fault.Conflict, "provider_exists", "The team already has a sign-in provider with this issuer",
			"change that one, or remove it first").Got(p.Issuer)
	}
	p.ID, p.Owner, p.JoinRole = db.ID[ProviderID]("sso"), owner, n.JoinRole
	_, err = s.insert(ctx, tx, &p, n.Secret)
	return p, err
}

func checkJoinRole(r account.Role) error {
	if r == "" || slices.Contains(JoinRoles, r) {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_role", "Invalid role",
		"joinRole must be developer, contributor, viewer or null").Got(string(r))
}

// TeamProviderPatch changes the fields that aren't nil. The issuer can't change, since identities belong to it.
type TeamProviderPatch struct {
	Name     *string
	ClientID *string
	Secret   *Secret
	JoinRole *account.Role
}

func (s *SSO) ChangeForTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ProviderID, c TeamProviderPatch) (Provider, error) {
	if err := account.LockOwnerTx(ctx, tx, owner); err != nil {
		return Provider{}, err
	}
	p, err := s.TeamProvider(ctx, tx, owner, id)
	if err != nil {
		return p, err
	}
	for field, v := range map[*string]*string{&p.Name: c.Name, &p.ClientID: c.ClientID} {
		if v != nil {
			*field = strings.TrimSpace(*v)
		}
	}
	if c.JoinRole != nil {
		if err := checkJoinRole(*c.JoinRole); err != nil {
			return p, err
		}
		p.JoinRole = *c.JoinRole
	}
	secret := Secret("unchanged")
	if c.Secret != nil {
		secret = *c.Secret
		p.secret = s.c.Seal.Seal([]byte(secret), secretPurpose(id))
	}
	if err := p.checkText(secret); err != nil {
		return p, err
	}
	if _, err := tx.Exec(ctx, `UPDATE sso_providers SET name = $2, client_id = $3, secret = $4, join_role = $5 WHERE id = $1`,
		id, p.Name, p.ClientID, p.secret, p.JoinRole); err != nil {
		return p, fmt.Errorf("change sign-in provider: %w", err)
	}
	return p, nil
}

// DeleteForTx deletes a team's provider with its domains and ends the sessions begun with it.
func (s *SSO) DeleteForTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ProviderID) (Provider, int64, error) {
	if err := account.LockOwnerTx(ctx, tx, owner); err != nil {
		return Provider{}, 0, err
	}
	if _, err := s.TeamProvider(ctx, tx, owner, id); err != nil {
		return Provider{}, 0, err
	}
	var last bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM memberships WHERE owner_id = $1 AND sso_required)
			AND NOT EXISTS (SELECT 1 FROM sso_providers WHERE owner_id = $1 AND id <> $2)`, owner, id).Scan(&last)
	if err != nil {
		return Provider{}, 0, fmt.Errorf("find other providers: %w", err)
	}
	if last {
		return Provider{}, 0, fault.New(fault.Conflict, "last_provider",
			"The team requires single sign-on, and this is its only provider",
			"make single sign-on optional first, or add another provider")
	}
	return s.DeleteTx(ctx, tx, id)
}

// ForgetTeamTx deletes the providers, domains and identities of a deleted team.
func (s *SSO) ForgetTeamTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	list, err := s.list(ctx, tx, `owner_id = $1 AND owner_id <> ''`, owner)
	if err != nil {
		return err
	}
	for _, p := range list {
		if _, _, err := s.DeleteTx(ctx, tx, p.ID); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sso_identities WHERE owner_id = $1 AND owner_id <> ''`, owner); err != nil {
		return fmt.Errorf("remove identities of team: %w", err)
	}
	return nil
}

// joinTx adds the user for whom a team's provider vouched to the team, if the team allows that.
func (s *SSO) joinTx(ctx context.Context, tx *db.Tx, p Proof, user account.UserID, by audit.Actor) (bool, error) {
	if p.Provider.Owner == "" || s.c.Members == nil {
		return true, nil
	}
	was, err := account.MembershipOf(ctx, tx, user, p.Provider.Owner)
	if fault.Is(err, fault.Forbidden) { // a suspended team doesn't prevent people from signing in to their own account
		return true, nil
	}
	if err != nil || was.Member() {
		return true, err
	}
	in, err := s.c.Members.JoinTx(ctx, tx, p.Provider.Owner, user, p.Email, p.Provider.JoinRole)
	if err != nil || !in {
		return false, err
	}
	now, err := account.MembershipOf(ctx, tx, user, p.Provider.Owner)
	if err != nil {
		return true, err
	}
	by.User, by.Owner = user, p.Provider.Owner
	role := string(now.Role)
	if role == "" {
		role = "guest"
	}
	return true, s.c.Accounts.AuditTx(ctx, tx, by, audit.Event{
		Action: "member.added", Subject: string(user), Detail: "as " + role + ", by signing in with " + p.Provider.Name,
	})
}
