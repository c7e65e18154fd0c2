package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Role says what a member of a team may do, on all of its sites or on one of them.
type Role string

// The roles. Manager is a role on single sites: an admin's rights there, except for transfers. A member
// without a role in the team is a guest.
const (
	RoleOwner       Role = "owner"
	RoleAdmin       Role = "admin"
	RoleManager     Role = "manager"
	RoleDeveloper   Role = "developer"
	RoleContributor Role = "contributor"
	RoleViewer      Role = "viewer"
	RoleBilling     Role = "billing"
	RoleGuest       Role = ""
)

// TeamRoles are the roles that a member can have in a team, the highest first; SiteRoles those on a site.
var (
	TeamRoles = []Role{RoleOwner, RoleAdmin, RoleDeveloper, RoleContributor, RoleViewer, RoleBilling}
	SiteRoles = []Role{RoleManager, RoleDeveloper, RoleContributor, RoleViewer}
)

// The scopes of each role: docs/teams.md has the table.
var (
	siteReads   = Scopes{SitesRead, DeploymentsRead, DomainsRead, BackupsRead}
	viewerMay   = append(slices.Clone(siteReads), WebhooksRead, AccountRead, TeamRead)
	developerOn = append(slices.Clone(siteReads), PreviewsWrite, DeploymentsWrite, EnvRead, SitesWrite, EnvWrite, DomainsWrite, BackupsWrite)

	scopesInTeam = map[Role]Scopes{
		RoleOwner: AllScopes,
		RoleAdmin: slices.DeleteFunc(slices.Clone(AllScopes), func(s Scope) bool {
			return s == All || s == BillingRead || s == BillingWrite
		}),
		RoleDeveloper:   append(slices.Clone(developerOn), WebhooksRead, WebhooksWrite, AccountRead, TeamRead, KeysWrite),
		RoleContributor: append(slices.Clone(viewerMay), PreviewsWrite),
		RoleViewer:      viewerMay,
		RoleBilling:     {AccountRead, TeamRead, BillingRead, BillingWrite},
	}
	scopesOnSite = map[Role]Scopes{
		RoleManager:     developerOn,
		RoleDeveloper:   developerOn,
		RoleContributor: append(slices.Clone(siteReads), PreviewsWrite),
		RoleViewer:      siteReads,
	}
	ranks = map[Role]int{
		RoleOwner: 6, RoleAdmin: 5, RoleManager: 4, RoleDeveloper: 3, RoleContributor: 2, RoleViewer: 1, RoleBilling: 1,
	}
)

// AtLeast reports whether the role is as high as another one.
func (r Role) AtLeast(other Role) bool { return ranks[r] >= ranks[other] }

// MayGrant reports whether somebody with this role may give, change or take the other one. Nobody acts above their own
// role, and what concerns billing is the owners'.
func (r Role) MayGrant(other Role) bool {
	if other == RoleBilling || other == RoleOwner {
		return r == RoleOwner
	}
	return r.AtLeast(RoleAdmin)
}

// Membership holds what a user may do for an owner. The zero value is nothing.
type Membership struct {
	Team    string // the team's id; empty for a personal account
	Slug    string
	Role    Role // empty: a guest, or no member
	Sites   map[id.Site]Role
	Blocked bool // the team requires a second factor, which the user has not

	Linked     bool // the user has an account at the team's sign-in provider
	BreakGlass bool // an emergency owner, who has a second factor
	requireSSO bool
	snapshot   string
}

// Member reports whether there is any right at all.
func (m Membership) Member() bool { return m.Role != "" || len(m.Sites) > 0 }

// MembershipOf returns what a user may do for an owner, now.
func MembershipOf(ctx context.Context, r db.Reader, user UserID, owner OwnerID) (m Membership, err error) {
	var sites string
	var suspended db.Time
	err = r.QueryRow(ctx, `SELECT team_id, slug, role, sites, blocked, suspended_at, sso_required, sso_linked, break_glass
		FROM memberships WHERE user_id = $1 AND owner_id = $2`,
		user, owner).Scan(&m.Team, &m.Slug, &m.Role, &sites, &m.Blocked, &suspended, &m.requireSSO, &m.Linked, &m.BreakGlass)
	if errors.Is(err, sql.ErrNoRows) {
		return Membership{}, nil
	}
	if err != nil {
		return Membership{}, fmt.Errorf("read membership: %w", err)
	}
	if suspended != 0 {
		return Membership{}, errSuspended(fault.Forbidden, "")
	}
	m.Sites, m.snapshot = SplitSiteRoles(sites), string(m.Role)+" "+sites
	return m, nil
}

// SplitSiteRoles reads roles on sites as they are stored: site:role, separated by spaces.
func SplitSiteRoles(text string) map[id.Site]Role {
	var out map[id.Site]Role
	for s := range strings.FieldsSeq(text) {
		if out == nil {
			out = map[id.Site]Role{}
		}
		site, role, _ := strings.Cut(s, ":")
		out[id.Site(site)] = Role(role)
	}
	return out
}

// errNoMember is for credentials of a team whose user is no member any more: to them it is as if they were revoked.
var errNoMember = fault.New(fault.Unauthorized, "not_a_member", "You are no longer a member of this team",
	"ask an owner or admin of the team for an invitation")

var errTwoFactor = fault.New(fault.Forbidden, "two_factor_required", "This team requires two-factor authentication",
	"add an authenticator app or a passkey under Account > Sign-in and security, then try again")

// errStepUp is for sessions that haven't passed the second factor that their user has.
var errStepUp = fault.New(fault.Forbidden, StepUpCode, "This team requires two-factor authentication",
	"this session began without it: confirm it with your passkey or authenticator app")

// StepUpCode is the code of the fault that StepUp helps with.
const StepUpCode = "step_up_required"

// admits is nil for a membership that lets its user act.
func (m Membership) admits() error {
	if !m.Member() {
		return errNoMember
	}
	if m.Blocked {
		return errTwoFactor
	}
	return nil
}

// CallerFor returns the user acting for an owner with a key or an app: their personal account, or a team that they belong
// to. Others are an Unauthorized fault; members who lack the second factor or the sign-in that the team requires are
// Forbidden.
func (a *Accounts) CallerFor(ctx context.Context, r db.Reader, u User, owner OwnerID) (Caller, error) {
	c := u.Caller()
	if owner == u.Owner {
		return c, nil
	}
	c.Owner = owner
	_, err := c.cap(ctx, r)
	return c, err
}

// CallerIn is CallerFor for a session of the user.
func (a *Accounts) CallerIn(ctx context.Context, u User, s Session, owner OwnerID) (Caller, error) {
	c := u.Caller()
	c.session = s.ID
	if s.Only != "" {
		c.Through = s.Provider
	}
	if owner == u.Owner {
		return c, s.opens(owner)
	}
	c.Owner = owner
	glass, err := c.cap(ctx, a.db)
	if err == nil && glass {
		err = a.noteBreakGlass(ctx, u, owner, s)
	}
	return c, err
}

// Beside returns a caller's user acting for another owner by the same session, key or app.
func (a *Accounts) Beside(ctx context.Context, r db.Reader, by Caller, u User, owner OwnerID) (Caller, error) {
	c := u.Caller()
	if owner == u.Owner {
		return c, nil
	}
	c.Owner, c.session, c.Through = owner, by.session, by.Through
	_, err := c.cap(ctx, r)
	return c, err
}

// cap narrows a caller to what their membership allows, where the owner is not their personal account.
func (c *Caller) cap(ctx context.Context, r db.Reader) (glass bool, err error) {
	m, err := MembershipOf(ctx, r, c.User, c.Owner)
	if err == nil {
		glass, err = m.admitted(ctx, r, c.Actor(netip.Addr{}))
	}
	if err != nil {
		return false, err
	}
	c.Admin = false
	c.Team, c.Slug, c.Role, c.SiteRoles, c.snapshot = m.Team, m.Slug, m.Role, m.Sites, m.snapshot
	c.granted, c.Scopes = c.Scopes, c.Scopes.within(scopesInTeam[m.Role])
	return glass, nil
}

// Narrow makes a caller of another package, such as an app that acts for a user, no wider than the user's membership.
func (a *Accounts) Narrow(ctx context.Context, c *Caller) error {
	_, err := c.cap(ctx, a.db)
	return err
}

// within returns what both of two lists allow.
func (s Scopes) within(role Scopes) (out Scopes) {
	if role.Include(All) {
		return s
	}
	for _, one := range AllScopes {
		if one != All && s.Include(one) && role.Include(one) {
			out = append(out, one)
		}
	}
	return out
}

// For returns the caller as they may use a scope: with their role in the team on all sites, or on those sites alone on
// which they have a role that includes it. least is the lowest role that it takes; empty means any, and RoleAdmin or
// higher is never one on a site.
func (c Caller) For(s Scope, least Role) (Caller, error) {
	if c.Team == "" {
		return c, c.Require(s)
	}
	if !c.granted.Include(s) {
		return c, c.requireGranted(s)
	}
	if c.Scopes.Include(s) && c.Role.AtLeast(least) {
		return c, nil
	}
	var sites []id.Site
	for _, site := range slices.Sorted(maps.Keys(c.SiteRoles)) {
		role := c.SiteRoles[site]
		if scopesOnSite[role].Include(s) && role.AtLeast(least) && c.Allows(site) {
			sites = append(sites, site)
		}
	}
	if len(sites) == 0 {
		return c, ErrRole(s, least)
	}
	c.Sites = sites
	return c, nil
}

// RequireOn returns nil when the caller may use a scope on a site, beside the one that the route asks for.
func (c Caller) RequireOn(s Scope, site id.Site) error {
	c, err := c.For(s, "")
	if err != nil {
		return err
	}
	return c.RequireSite(site)
}

// RoleAllows reports whether the caller's role includes a scope on a site, whatever their key or app was given of it.
func (c Caller) RoleAllows(s Scope, site id.Site) bool {
	return c.Team == "" || scopesInTeam[c.Role].Include(s) || scopesOnSite[c.SiteRoles[site]].Include(s)
}

// ActingMembershipOf is MembershipOf for what a user has begun and others finish, such as an invitation: nothing while the
// user is suspended, blocked by the team, or without an account at the provider that the team requires.
func ActingMembershipOf(ctx context.Context, r db.Reader, user UserID, owner OwnerID) (Membership, error) {
	if err := stands(ctx, r, user, fault.Forbidden); fault.As(err) != nil {
		return Membership{}, nil
	} else if err != nil {
		return Membership{}, err
	}
	m, err := MembershipOf(ctx, r, user, owner)
	if m.Blocked || m.requireSSO && !m.Linked && !m.BreakGlass {
		m = Membership{}
	}
	return m, err
}

// MayOn is nil while a user may use a scope on a site of an owner: for work that goes on after the request that began it.
func MayOn(ctx context.Context, r db.Reader, user UserID, owner OwnerID, s Scope, site id.Site) error {
	if err := stands(ctx, r, user, fault.Forbidden); err != nil {
		return err
	}
	m, err := MembershipOf(ctx, r, user, owner)
	if err != nil {
		return err
	}
	if err := m.admits(); err != nil {
		return err
	}
	if m.requireSSO && !m.Linked && !m.BreakGlass {
		return errSSO
	}
	c := Caller{User: user, Owner: owner, Team: m.Team, Role: m.Role, SiteRoles: m.Sites, granted: Scopes{All}, Scopes: Scopes{All}}
	if m.Team != "" {
		c.Scopes = c.Scopes.within(scopesInTeam[m.Role])
	}
	return c.RequireOn(s, site)
}

// ErrRole is for members whose role doesn't include a scope, or is lower than least.
func ErrRole(s Scope, least Role) error {
	details := "your role in this team doesn't include the scope " + string(s)
	if least != "" {
		details = "this requires the scope " + string(s) + " and at least the role " + string(least)
	}
	return fault.New(fault.Forbidden, "role_required", "Your role doesn't allow this", details)
}

// MayMakeKeys reports whether the caller's role lets them make keys that act for their owner.
func (c Caller) MayMakeKeys() bool {
	if c.Team == "" || c.Role.AtLeast(RoleDeveloper) {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(c.SiteRoles)), func(r Role) bool { return r.AtLeast(RoleDeveloper) })
}

// Unrestricted reports whether the caller's credential is as much as its user's session: it is no app's, has all scopes, and is not
// restricted to sites or to the team whose provider it came through. Such a caller may act for all that the user may.
func (c Caller) Unrestricted() bool {
	granted := c.Scopes
	if c.Team != "" {
		granted = c.granted
	}
	return !c.Service && c.Grant == "" && c.Through == "" && granted.Include(All) && len(c.Sites) == 0
}

// Whole reports whether the caller's credential has all that its user may do in the account that it acts for: it is no app's and no
// service key, and neither its scopes nor its sites are restricted.
func (c Caller) Whole() bool {
	if c.Service || c.Grant != "" || len(c.Sites) > 0 {
		return false
	}
	if c.Team == "" {
		return c.Scopes.Include(All)
	}
	return c.Role != "" && !slices.ContainsFunc(scopesInTeam[c.Role], func(s Scope) bool { return !c.granted.Include(s) })
}
