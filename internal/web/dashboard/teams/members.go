package teams

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

// perPage is the number of members per page.
const perPage = 50

type membersData struct {
	head
	Members     []team.Member
	Invitations []team.Invitation
	Total       int
	Search      string
	Pages       shell.Pages
	Link        string // invitation link, shown once if it couldn't be emailed
	LinkFor     string
	Removed     string // address of a member who was just removed
	Known       []team.Known
}

func (d *Pages) membersPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.membersData(ctx, q)
	return shell.Page("team_members", "Members", data), err
}

func (d *Pages) membersData(ctx context.Context, q *shell.Request) (data membersData, err error) {
	if data.head, err = d.headOf(ctx, q); err != nil {
		return data, err
	}
	data.Search = shell.Short(100, strings.TrimSpace(q.Query("q")))
	n := shell.PageNumber(q)
	data.Members, data.Total, err = d.Teams.Members(ctx, q.Caller.Owner, team.MemberFilter{Search: data.Search, Page: n, Limit: perPage})
	if err != nil {
		return data, err
	}
	data.Pages = shell.Turn(n, data.Total, perPage, func(p int) string {
		return shell.Link(data.Base()+"/members", "q", data.Search, "page", strconv.Itoa(p))
	})
	if data.May {
		data.Invitations, err = d.Teams.Invitations(ctx, q.Caller.Owner)
	}
	return data, err
}

type inviteData struct {
	head
	Roles, SiteRoles []choice
	Sites            []site.Site
	More             int // number of sites not listed
}

func (d *Pages) invitePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	h, err := d.headOf(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	sites, total, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Sort: site.ByName, Page: 1, Limit: 100})
	return shell.Page("team_invite", "Invite member", inviteData{h, rolesFor(q.Caller.Role), siteRoles, sites, total - len(sites)}), err
}

func (d *Pages) invite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	n := team.NewInvitation{Email: q.Value("email"), Role: account.Role(q.Value("role"))}
	if q.Value("role") == "guest" {
		n.Role, n.Sites = account.RoleGuest, map[site.ID]account.Role{}
		for _, id := range q.PostForm["sites"] {
			n.Sites[site.ID(id)] = account.Role(q.Value("site_role"))
		}
	} else if n.Role == account.RoleGuest {
		return shell.Answer{}, shell.At("role", &fault.Error{Kind: fault.Invalid, Message: "Choose a role"})
	}
	var i team.Invitation
	var token string
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		i, token, err = d.Teams.InviteTx(ctx, tx, q.Caller, n)
		return audit.Event{Action: "invitation.created", Subject: i.ID, Detail: i.Email + " as " + cmp.Or(string(i.Role), "guest")}, err
	})
	if err != nil {
		return shell.Answer{}, atTeam(err)
	}
	return d.invited(ctx, q, i, token)
}

// invited confirms that an invitation was emailed, or shows its link.
func (d *Pages) invited(ctx context.Context, q *shell.Request, i team.Invitation, token string) (shell.Answer, error) {
	if d.Accounts.Mails() {
		return shell.GoTo("/teams/"+q.Caller.Slug+"/members", "Invitation sent to "+i.Email), nil
	}
	data, err := d.membersData(ctx, q)
	data.Link, data.LinkFor = d.Base(q)+"/invitations/"+token, i.Email
	return shell.Page("team_members", "Members", data), err
}

func (d *Pages) resend(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var i team.Invitation
	var token string
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		i, token, err = d.Teams.ResendTx(ctx, tx, q.Caller, q.PathValue("invitation"))
		return audit.Event{Action: "invitation.resent", Subject: i.ID, Detail: i.Email}, err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	return d.invited(ctx, q, i, token)
}

func (d *Pages) revoke(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		i, err := d.Teams.RevokeInvitationTx(ctx, tx, q.Caller, q.PathValue("invitation"))
		return audit.Event{Action: "invitation.revoked", Subject: i.ID, Detail: i.Email}, err
	})
	return shell.GoTo("/teams/"+q.Caller.Slug+"/members", "Invitation revoked"), err
}

// siteRole is a member's role on a site.
type siteRole struct {
	ID, Name string
	Role     account.Role
}

type memberData struct {
	head
	Member    team.Member
	Self      bool
	MayChange bool // whether the caller may change the member's team role
	Roles     []choice
	SiteRoles []choice
	On        []siteRole
	Sites     []site.Site
	More      int
}

// Example returns a role that can be set, for the example call.
func (d memberData) Example() account.Role {
	if d.Member.Role == account.RoleOwner {
		return account.RoleOwner
	}
	return account.RoleViewer
}

func (d *Pages) memberPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	h, err := d.headOf(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	m, err := d.Teams.MemberTx(ctx, d.DB, q.Caller.Owner, shell.PathID[account.UserID](q, "user"))
	if err != nil {
		return shell.Answer{}, err
	}
	data := memberData{
		head: h, Member: m, Self: m.User == q.User.ID, MayChange: q.Caller.Role.MayGrant(m.Role),
		Roles: rolesFor(q.Caller.Role), SiteRoles: siteRoles,
	}
	for _, id := range slices.Sorted(maps.Keys(m.Sites)) {
		s, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(id))
		if err != nil && !fault.Is(err, fault.NotFound) {
			return shell.Answer{}, err
		}
		data.On = append(data.On, siteRole{string(id), cmp.Or(s.Name, string(id)), m.Sites[id]})
	}
	var total int
	data.Sites, total, err = d.Sites.List(ctx, q.Caller.Owner, site.Filter{Sort: site.ByName, Page: 1, Limit: 100})
	data.More = total - len(data.Sites)
	return shell.Page("team_member", m.Email, data), err
}

func (d *Pages) changeRole(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	user, role := shell.PathID[account.UserID](q, "user"), account.Role(q.Value("role"))
	if role == "guest" {
		role = account.RoleGuest
	} else if role == account.RoleGuest {
		return shell.Answer{}, shell.At("role", &fault.Error{Kind: fault.Invalid, Message: "Choose a role"})
	}
	err := d.actOn(ctx, q, user, audit.Event{Action: "member.role_changed", Detail: "to " + cmp.Or(string(role), "guest")},
		func(tx *db.Tx) (team.Member, error) { return d.Teams.ChangeTx(ctx, tx, q.Caller, user, role) })
	return shell.GoTo("/teams/"+q.Caller.Slug+"/members", "Role changed"), err
}

func (d *Pages) setSiteRole(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	user, id, role := shell.PathID[account.UserID](q, "user"), site.ID(q.Value("site")), account.Role(q.Value("site_role"))
	err := d.actOn(ctx, q, user, audit.Event{Action: "member.role_changed", Detail: string(role) + " on " + shell.Short(60, string(id))},
		func(tx *db.Tx) (team.Member, error) {
			if _, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, id); err != nil {
				return team.Member{}, shell.At("site", err)
			}
			return d.Teams.SetSiteTx(ctx, tx, q.Caller, id, user, role)
		})
	return shell.GoTo("/teams/"+q.Caller.Slug+"/members/"+string(user), "Role on the site saved"), err
}

func (d *Pages) removeSiteRole(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	user, id := shell.PathID[account.UserID](q, "user"), q.Value("site")
	left := false
	err := d.actOn(ctx, q, user, audit.Event{Action: "member.role_changed", Detail: "no role on " + shell.Short(60, id)},
		func(tx *db.Tx) (team.Member, error) {
			m, err := d.Teams.RemoveSiteTx(ctx, tx, q.Caller, site.ID(id), user)
			left = m.Role == account.RoleGuest && len(m.Sites) <= 1 // it was their only role
			return m, err
		})
	to := "/teams/" + q.Caller.Slug + "/members"
	if !left {
		to += "/" + string(user)
	}
	return shell.GoTo(to, "Role on the site removed"), err
}

func (d *Pages) remove(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	user := shell.PathID[account.UserID](q, "user")
	var m team.Member
	var known []team.Known
	err := d.actOn(ctx, q, user, audit.Event{Action: "member.removed"}, func(tx *db.Tx) (_ team.Member, err error) {
		m, known, err = d.Teams.RemoveTx(ctx, tx, q.Caller, user)
		return m, err
	})
	switch {
	case err != nil:
	case user == q.User.ID:
		return shell.GoTo("/", "You left the team"), nil
	case len(known) > 0:
		data, err := d.membersData(ctx, q)
		data.Removed, data.Known = m.Email, known
		return shell.Page("team_members", "Members", data), err
	}
	return shell.GoTo("/teams/"+q.Caller.Slug+"/members", "Member removed"), err
}

// leave ends the caller's membership.
func (d *Pages) leave(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	t, err := d.Teams.Find(ctx, d.DB, q.User.ID, q.PathValue("team"))
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.DB.Write(ctx, func(tx *db.Tx) error {
		by := q.Actor()
		by.Owner = t.Owner
		if err := d.Accounts.AuditTx(ctx, tx, by, audit.Event{Action: "member.left", Subject: string(q.User.ID)}); err != nil {
			return err
		}
		return d.Teams.LeaveTx(ctx, tx, q.User.ID, t)
	})
	if err != nil { // the caller may no longer see the team's page
		return shell.Answer{}, err
	}
	return shell.GoTo("/", "You left the team "+t.Name), nil
}
