package team

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// Member is one member of a team.
type Member struct {
	User      account.UserID
	Email     string
	Role      account.Role // empty: a guest
	Sites     map[id.Site]account.Role
	TwoFactor bool
	SSO       bool // they have an account at the team's sign-in provider
	Emergency bool // an owner who may come without the team's provider
	JoinedAt  db.Time
}

const memberColumns = `m.user_id, p.email, m.role, m.sites, p.two_factor, m.sso_linked, m.break_glass, m.joined_at
	FROM memberships m JOIN people p ON p.id = m.user_id`

func scanMember(row db.Scanner) (m Member, err error) {
	var sites string
	err = row.Scan(&m.User, &m.Email, &m.Role, &sites, &m.TwoFactor, &m.SSO, &m.Emergency, &m.JoinedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return m, fault.Missing("member")
	}
	if err != nil {
		return m, fmt.Errorf("read member: %w", err)
	}
	m.Sites = account.SplitSiteRoles(sites)
	return m, nil
}

// MemberFilter chooses members of a team. The zero value is all of them.
type MemberFilter struct {
	Search      string  // part of the address. Optional.
	Site        id.Site // who has a role on this site. Optional.
	Page, Limit int     // Optional: a limit of 0 is all, on one page.
}

// Members returns members of a team, guests included, those who have been there longest first, and how many there are on
// all pages.
func (s *Teams) Members(ctx context.Context, owner account.OwnerID, f MemberFilter) ([]Member, int, error) {
	var args db.Args
	of := ` FROM teams t JOIN team_members m ON m.owner_id = t.owner_id`
	if f.Search != "" {
		of += ` JOIN people p ON p.id = m.user_id AND p.email LIKE ` + args.Add("%"+literal.Replace(strings.ToLower(f.Search))+"%") +
			` ESCAPE '\'`
	}
	of += ` WHERE t.owner_id = ` + args.Add(owner) + ` AND t.deleted_at = 0`
	if f.Site != "" {
		of += ` AND m.user_id IN (SELECT user_id FROM site_members WHERE owner_id = m.owner_id AND site_id = ` + args.Add(string(f.Site)) + `)`
	}
	total := 0
	if f.Limit > 0 {
		if err := s.c.DB.QueryRow(ctx, `SELECT count(*)`+of, args...).Scan(&total); err != nil {
			return nil, 0, fmt.Errorf("count members: %w", err)
		}
		of += ` ORDER BY m.joined_at, m.user_id LIMIT ` + args.Add(f.Limit) + ` OFFSET ` + args.Add((f.Page-1)*f.Limit)
	}
	// Which members these are is found first, and then what costs something is read for these alone. The view memberships,
	// which knows what this package's tables don't, would cost twice as much.
	rows, err := s.c.DB.Query(ctx, `
		SELECT m.user_id, p.email, m.role,
		       COALESCE((SELECT string_agg(s.site_id || ':' || s.role, ' ')
		                 FROM site_members s WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id), ''),
		       p.two_factor, EXISTS (SELECT 1 FROM team_identities i WHERE i.owner_id = m.owner_id AND i.user_id = m.user_id),
		       CASE WHEN m.break_glass AND m.role = 'owner' THEN p.two_factor ELSE FALSE END, m.joined_at
		FROM (SELECT m.owner_id, m.user_id, m.role, m.break_glass, m.joined_at`+of+`) m JOIN people p ON p.id = m.user_id
		ORDER BY m.joined_at, m.user_id`, args...)
	list, err := db.Collect(rows, err, scanMember)
	if err != nil {
		return nil, 0, fmt.Errorf("list members: %w", err)
	}
	return list, max(total, len(list)), nil
}

// literal takes LIKE's own characters for what they are.
var literal = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// MemberTx returns one member.
func (s *Teams) MemberTx(ctx context.Context, r db.Reader, owner account.OwnerID, user account.UserID) (Member, error) {
	return scanMember(r.QueryRow(ctx, `SELECT `+memberColumns+` WHERE m.owner_id = $1 AND m.user_id = $2 AND m.team_id <> ''`, owner, user))
}

func insertMember(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID, role account.Role, by account.UserID) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ($1, $2, $3, FALSE, $4, $5)`,
		owner, user, role, db.Now(), by)
	if db.Duplicate(err) {
		return fault.New(fault.Conflict, "already_member", "This user is already a member of the team", "change their role instead")
	}
	if err != nil {
		return fmt.Errorf("add member: %w", err)
	}
	return nil
}

// ChangeTx gives a member another role in the team. Guests have none: with a role they become members.
func (s *Teams) ChangeTx(ctx context.Context, tx *db.Tx, by account.Caller, user account.UserID, role account.Role) (Member, error) {
	if role != account.RoleGuest && !slices.Contains(account.TeamRoles, role) {
		return Member{}, errRoleName(role, account.TeamRoles)
	}
	m, err := s.lockMember(ctx, tx, by, user)
	if err != nil {
		return m, err
	}
	if !by.Role.MayGrant(m.Role) || !by.Role.MayGrant(role) {
		return m, errTooHigh
	}
	if role == account.RoleGuest && len(m.Sites) == 0 {
		return m, fault.New(fault.Conflict, "no_site_role", "This member has no role on any site",
			"give them a role on a site first, or remove them from the team")
	}
	if m.Role == account.RoleOwner && role != account.RoleOwner {
		if err := s.keepOwner(ctx, tx, by.Owner, user); err != nil {
			return m, err
		}
	}
	if _, err := tx.Exec(ctx, `
		UPDATE team_members SET role = $3, break_glass = break_glass AND $3 = 'owner'
		WHERE owner_id = $1 AND user_id = $2`, by.Owner, user, role); err != nil {
		return m, fmt.Errorf("change role: %w", err)
	}
	had := m.Role
	m.Role = role
	if had == role {
		return m, nil
	}
	if err := s.lowerTx(ctx, tx, by.Owner, m, had, role); err != nil {
		return m, err
	}
	return m, s.c.Hooks.EmitTx(ctx, tx, by.Owner, event.MemberRoleChanged(s.told(m, by.Team)))
}

// lowerTx deletes the webhooks, deploy hooks and the like that apps made with a member's grants, where the member's role no longer
// includes making them. The grants stay: they are narrowed by the role at each request.
func (s *Teams) lowerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, m Member, from, to account.Role) error {
	if s.ties.OAuth == nil || !from.AtLeast(account.RoleDeveloper) || to.AtLeast(account.RoleDeveloper) {
		return nil
	}
	return s.ties.OAuth.RemoveMadeByTx(ctx, tx, owner, m.User)
}

// RemoveTx removes a member with their site roles, and ends their keys for the team: whatever they came in with is refused
// from the commit on. It returns what they know that stays and should be rotated.
func (s *Teams) RemoveTx(ctx context.Context, tx *db.Tx, by account.Caller, user account.UserID) (m Member, known []Known, err error) {
	if m, err = s.lockMember(ctx, tx, by, user); err != nil {
		return m, nil, err
	}
	if !by.Role.MayGrant(m.Role) {
		return m, nil, errTooHigh
	}
	known, err = s.removeTx(ctx, tx, by.Owner, by.Team, m, by.User)
	return m, known, err
}

// LeaveTx removes the user who asks from a team of theirs.
func (s *Teams) LeaveTx(ctx context.Context, tx *db.Tx, user account.UserID, t Team) error {
	if err := account.LockOwnerTx(ctx, tx, t.Owner); err != nil {
		return err
	}
	m, err := s.MemberTx(ctx, tx, t.Owner, user)
	if err != nil {
		return err
	}
	_, err = s.removeTx(ctx, tx, t.Owner, string(t.ID), m, "")
	return err
}

// removeTx removes a member, for RemoveTx and LeaveTx. The owner is locked.
func (s *Teams) removeTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id string, m Member, heir account.UserID,
) (known []Known, err error) {
	if m.Role == account.RoleOwner {
		if err := s.keepOwner(ctx, tx, owner, m.User); err != nil {
			return nil, err
		}
	}
	if heir == "" || heir == m.User { // an owner who stays
		err := tx.QueryRow(ctx, `
			SELECT user_id FROM team_members WHERE owner_id = $1 AND role = 'owner' AND user_id <> $2 ORDER BY joined_at, user_id LIMIT 1`,
			owner, m.User).Scan(&heir)
		if err != nil {
			return nil, fmt.Errorf("find an owner who stays: %w", err)
		}
	}
	hooks, err := s.knownTx(ctx, tx, owner, m)
	if err != nil {
		return nil, err
	}
	for _, table := range []string{"site_members", "team_members"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE owner_id = $1 AND user_id = $2`, owner, m.User); err != nil {
			return nil, fmt.Errorf("remove member: %w", err)
		}
	}
	services, err := s.c.Accounts.EndMemberTx(ctx, tx, owner, m.User, heir)
	if err != nil {
		return nil, err
	}
	for _, name := range services {
		known = append(known, Known{Kind: "service_key", Name: name})
	}
	known = append(known, hooks...)
	if s.ties.OAuth != nil {
		if err := s.ties.OAuth.EndMemberTx(ctx, tx, owner, m.User); err != nil {
			return nil, err
		}
	}
	return known, s.c.Hooks.EmitTx(ctx, tx, owner, event.MemberRemoved(s.told(m, id)))
}

// SetSiteTx gives a member, or somebody else who has joined the team as a guest, a role on one site.
func (s *Teams) SetSiteTx(
	ctx context.Context, tx *db.Tx, by account.Caller, site id.Site, user account.UserID, role account.Role,
) (Member, error) {
	if !slices.Contains(account.SiteRoles, role) {
		return Member{}, errRoleName(role, account.SiteRoles)
	}
	m, err := s.lockMember(ctx, tx, by, user)
	if err != nil {
		return m, err
	}
	if !by.Role.AtLeast(account.RoleAdmin) {
		return m, errTooHigh
	}
	if err := s.setSiteTx(ctx, tx, by.Owner, m, site, role); err != nil {
		return m, err
	}
	if m.Sites == nil {
		m.Sites = map[id.Site]account.Role{}
	}
	m.Sites[site] = role
	return m, s.c.Hooks.EmitTx(ctx, tx, by.Owner, event.MemberRoleChanged(s.told(m, by.Team)))
}

// setSiteTx writes a member's role on a site, which may be lower than the one that they had.
func (s *Teams) setSiteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, m Member, site id.Site, role account.Role) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO site_members (site_id, user_id, owner_id, role) VALUES ($1, $2, $3, $4)
		ON CONFLICT (site_id, user_id) DO UPDATE SET role = EXCLUDED.role`, site, m.User, owner, role)
	if err != nil {
		return fmt.Errorf("set site role: %w", err)
	}
	if m.Role.AtLeast(account.RoleDeveloper) {
		return nil
	}
	return s.lowerTx(ctx, tx, owner, m, m.Sites[site], role)
}

// RemoveSiteTx takes a member's role on one site. A guest who has none on another leaves the team with it.
func (s *Teams) RemoveSiteTx(ctx context.Context, tx *db.Tx, by account.Caller, site id.Site, user account.UserID) (Member, error) {
	m, err := s.lockMember(ctx, tx, by, user)
	if err != nil {
		return m, err
	}
	if m.Sites[site] == "" {
		return m, fault.Missing("member")
	}
	if !by.Role.AtLeast(account.RoleAdmin) {
		return m, errTooHigh
	}
	if m.Role == account.RoleGuest && len(m.Sites) == 1 {
		_, err := s.removeTx(ctx, tx, by.Owner, by.Team, m, by.User)
		return m, err
	}
	if _, err := tx.Exec(ctx, `
		DELETE FROM site_members WHERE site_id = $1 AND user_id = $2 AND owner_id = $3`, site, user, by.Owner); err != nil {
		return m, fmt.Errorf("remove site role: %w", err)
	}
	if !m.Role.AtLeast(account.RoleDeveloper) {
		if err := s.lowerTx(ctx, tx, by.Owner, m, m.Sites[site], account.RoleGuest); err != nil {
			return m, err
		}
	}
	delete(m.Sites, site)
	return m, s.c.Hooks.EmitTx(ctx, tx, by.Owner, event.MemberRoleChanged(s.told(m, by.Team)))
}

// ForgetSiteTx removes the roles on a site that is gone from this owner, also those that invitations give. Guests who had no other
// leave the team.
func (s *Teams) ForgetSiteTx(ctx context.Context, tx *db.Tx, id id.Site) error {
	rows, err := tx.Query(ctx, `DELETE FROM site_members WHERE site_id = $1 RETURNING owner_id, user_id`, id)
	type gone struct {
		owner account.OwnerID
		user  account.UserID
	}
	list, err := db.Collect(rows, err, func(r db.Scanner) (g gone, err error) { return g, r.Scan(&g.owner, &g.user) })
	if err != nil {
		return fmt.Errorf("forget site roles: %w", err)
	}
	for _, g := range list {
		m, err := s.MemberTx(ctx, tx, g.owner, g.user)
		if fault.Is(err, fault.NotFound) || err == nil && (m.Role != account.RoleGuest || len(m.Sites) > 0) {
			continue
		}
		if err != nil {
			return err
		}
		t, err := s.Get(ctx, tx, g.owner)
		if err != nil {
			return err
		}
		if _, err := s.removeTx(ctx, tx, g.owner, string(t.ID), m, ""); err != nil {
			return err
		}
	}
	if _, err = tx.Exec(ctx, `DELETE FROM site_transfers WHERE site_id = $1`, id); err != nil {
		return err
	}
	return s.uninviteTx(ctx, tx, id)
}

// lockMember makes others who change this team's members wait, and returns the one that is about to change.
func (s *Teams) lockMember(ctx context.Context, tx *db.Tx, by account.Caller, user account.UserID) (Member, error) {
	if err := account.LockOwnerTx(ctx, tx, by.Owner); err != nil {
		return Member{}, err
	}
	return s.MemberTx(ctx, tx, by.Owner, user)
}

// keepOwner is a Conflict fault when the team would be left without an owner who can sign in. The owner is locked: of two
// owners who remove each other, the second is the last.
func (s *Teams) keepOwner(ctx context.Context, tx *db.Tx, owner account.OwnerID, without account.UserID) error {
	var others bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM team_members m JOIN people p ON p.id = m.user_id
		WHERE m.owner_id = $1 AND m.role = 'owner' AND m.user_id <> $2 AND p.suspended_at = 0)`, owner, without).Scan(&others)
	if err != nil {
		return fmt.Errorf("count owners: %w", err)
	}
	if !others {
		return fault.New(fault.Conflict, "last_owner", "This is the last owner of the team", "make another member an owner first")
	}
	return nil
}

var errTooHigh = fault.New(fault.Forbidden, "role_too_high", "This role is above your own",
	"members can give, change and take roles up to their own; owners and billing members are the owners'")

func errRoleName(role account.Role, list []account.Role) error {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = string(r)
	}
	return fault.New(fault.Invalid, "invalid_role", "Invalid role",
		"role must be one of "+strings.Join(names, ", ")).Got(string(role))
}

// told is a member as events tell of them.
func (s *Teams) told(m Member, id string) event.Member {
	out := event.Member{Team: id, User: m.User, Email: m.Email, Role: string(m.Role)}
	for _, site := range slices.Sorted(maps.Keys(m.Sites)) {
		out.Sites = append(out.Sites, event.SiteRole{Site: site, Role: string(m.Sites[site])})
	}
	return out
}

// AppointTx makes a user an owner of a team, by its id or slug, whether they belong to it or not: for the operator, where no
// owner can be reached.
func (s *Teams) AppointTx(ctx context.Context, tx *db.Tx, name string, user account.UserID) (Team, error) {
	t, err := s.Named(ctx, tx, name)
	if err == nil {
		err = account.LockOwnerTx(ctx, tx, t.Owner)
	}
	if err != nil {
		return t, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ($1, $2, 'owner', FALSE, $3, '')
		ON CONFLICT (owner_id, user_id) DO UPDATE SET role = 'owner'`, t.Owner, user, db.Now())
	if err != nil {
		return t, fmt.Errorf("appoint owner: %w", err)
	}
	return t, s.c.Accounts.TellOwnerTx(ctx, tx, t.Owner, "New owner of the team "+t.Name,
		"The operator of this installation made another user an owner of the team "+t.Name+".", "/")
}
