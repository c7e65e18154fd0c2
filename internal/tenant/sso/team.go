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

// A team's provider is its owners': they choose the issuer, and could choose one that lies. So it signs in nobody but those
// who linked an account to that very team (identities are told apart by owner), and whose address is in a domain that
// the team has proven to be its own.

// JoinRoles are the roles that people may get by signing in alone.
var JoinRoles = []account.Role{account.RoleDeveloper, account.RoleContributor, account.RoleViewer}

// teamKinds are those that a team may add. GitHub proves no addresses of a domain.
var teamKinds = []Kind{OIDC, Google, Microsoft, GitLab}

// maxProviders is the most that a team has: the next one beside the one that it replaces.
const maxProviders = 3

// Members adds people to teams. *team.Teams is one.
type Members interface {
	// JoinTx makes a user a member as an open invitation for the address says, else with the role if there is one, and
	// reports whether they are a member then.
	JoinTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID, email string, role account.Role) (bool, error)
}

// OfTeam returns a team's providers, in the order of their names.
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

// NewTeamProvider holds the settings of a new provider of a team.
type NewTeamProvider struct {
	Kind     Kind
	Name     string // Optional: empty means the kind's.
	Issuer   string // Optional where the kind has one.
	Tenant   string // of Microsoft
	ClientID string
	Secret   Secret
	JoinRole account.Role // Optional: empty means that people need an invitation.
}

// CreateForTx stores a provider of a team.
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

// TeamProviderPatch changes a provider of a team. Nil fields stay as they are. The issuer stays in any case: identities are
// the issuer's.
type TeamProviderPatch struct {
	Name     *string
	ClientID *string
	Secret   *Secret
	JoinRole *account.Role
}

// ChangeForTx changes a provider of a team.
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

// DeleteForTx removes a provider of a team with its domains, and signs out everybody who signed in with it.
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

// ForgetTeamTx removes the providers, domains and identities of a team that is deleted.
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

// joinTx makes whoever a team's provider vouched for a member, where the team wants that.
func (s *SSO) joinTx(ctx context.Context, tx *db.Tx, p Proof, user account.UserID, by audit.Actor) (bool, error) {
	if p.Provider.Owner == "" || s.c.Members == nil {
		return true, nil
	}
	was, err := account.MembershipOf(ctx, tx, user, p.Provider.Owner)
	if fault.Is(err, fault.Forbidden) { // the team is suspended: that is no reason to keep somebody out of their own account
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
