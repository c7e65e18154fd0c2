package teams

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

type teamBody struct {
	ID               team.ID  `json:"id" example:"team_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name             string   `json:"name"`
	Slug             string   `json:"slug"`
	Role             *string  `json:"role" doc:"The caller's role. Null for guests, who have roles only on single sites."`
	Members          int      `json:"members" doc:"Number of members, including guests."`
	RequireTwoFactor bool     `json:"requireTwoFactor" doc:"Whether members without two-factor authentication, and their API keys, are blocked."`
	RequireSSO       bool     `json:"requireSso" doc:"Whether members must sign in with the team's provider. API keys and apps work while their user's account there is linked."`
	Apps             string   `json:"apps" enum:"all,approved,none" doc:"Which OAuth apps members can authorize for the team."`
	EndedApps        []string `json:"endedApps,omitempty" doc:"After a change of apps: the apps whose access it ended."`
	CreatedAt        string   `json:"createdAt" format:"date-time"`
}

type memberBody struct {
	UserID    account.UserID `json:"userId" example:"usr_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Email     string         `json:"email"`
	Role      *string        `json:"role" doc:"owner, admin, developer, contributor, viewer or billing. Null for guests."`
	Sites     []siteRoleBody `json:"sites" doc:"Roles on single sites. The higher of the two roles applies."`
	TwoFactor bool           `json:"twoFactor"`
	SSO       bool           `json:"sso" doc:"Whether an account at the team's sign-in provider is linked."`
	Emergency bool           `json:"emergencyOwner" doc:"Whether this owner can sign in without the team's provider."`
	JoinedAt  string         `json:"joinedAt" format:"date-time"`
}

type siteRoleBody struct {
	SiteID site.ID `json:"siteId"`
	Role   string  `json:"role" enum:"manager,developer,contributor,viewer"`
}

type invitationBody struct {
	ID        string         `json:"id" example:"inv_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Email     string         `json:"email"`
	Role      *string        `json:"role" doc:"Null for guests."`
	Sites     []siteRoleBody `json:"sites"`
	CreatedAt string         `json:"createdAt" format:"date-time"`
	ExpiresAt string         `json:"expiresAt" format:"date-time"`
}

type newInvitationBody struct {
	invitationBody
	URL *string `json:"url" doc:"URL to accept the invitation, for you to pass on. Null if the installation sends emails. A person without an account needs one from an operator first, unless an operator sends the invitation."`
}

func (a *API) teamRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Teams", Summary: summary, Doc: doc, Scope: s, Noun: "team", Wide: true}
	}
	contract.Get(a.API, r("/teams", "listTeams", "List teams",
		"The teams that the user belongs to. A key of a team lists that team alone.", account.AccountRead), a.listTeams)
	person := func(r contract.Route) contract.Route { r.Scope, r.Person = account.All, true; return r }
	create := person(r("/teams", "createTeam", "Create a team",
		"The user becomes its owner. Requires a key of the personal account with all scopes. To create a key that acts for the "+
			"team, use `POST /keys` with `teamId`.", ""))
	create.Status, create.Limited = 201, true
	contract.Post(a.API, create, a.createTeam)
	contract.Get(a.API, r("/teams/{id}", "getTeam", "Read a team",
		"By its id or slug. A key acts for one owner, so this takes a key of the team.", account.TeamRead), a.getTeam)
	contract.Change(a.API, "PATCH", r("/teams/{id}", "updateTeam", "Change a team", "Only owners can change `requireTwoFactor` "+
		"and `requireSso`. Requiring single sign-on takes an owner who signed in with the team's provider within the last 15 minutes.",
		account.TeamWrite), a.updateTeam)
	remove := r("/teams/{id}", "deleteTeam", "Delete a team",
		"`confirm` is the team's slug. A team that has sites is a 409 `team_has_sites`, unless `sites=delete`: then it answers "+
			"202 with an operation that deletes them first. The slug stays reserved for 90 days.",
		account.TeamWrite)
	remove.Role = account.RoleOwner
	contract.Change(a.API, "DELETE", remove, a.deleteTeam)

	contract.Get(a.API, r("/teams/{id}/members", "listMembers", "List members", "Guests included, those who joined first at the top.",
		account.TeamRead), a.listMembers)
	contract.Change(a.API, "PATCH", r("/teams/{id}/members/{userId}", "updateMember", "Change a member's role",
		"Members can't assign, change or remove a role above their own; only owners manage owners and billing members. The last "+
			"owner can't be removed: 409 `last_owner`.",
		account.TeamWrite), a.updateMember)
	emergency := r("/teams/{id}/members/{userId}/emergency", "setEmergencyOwner", "Change an emergency owner",
		"An emergency owner can sign in without the team's provider, for example when it is down. Requires an owner with two-factor "+
			"authentication; a team has at most 2. Each use is logged and mailed to the owners.",
		account.TeamWrite)
	emergency.Role = account.RoleOwner
	contract.Change(a.API, "PUT", emergency, a.setEmergencyOwner)
	contract.Change(a.API, "DELETE", r("/teams/{id}/members/{userId}", "removeMember", "Remove a member",
		"Their keys for the team stop working immediately; open streams end within 5 seconds. Service keys that they created are "+
			"kept and listed in `serviceKeys`: rotate them. `known` lists these and the hooks and webhooks whose URLs or secrets they "+
			"could read, at most 100.",
		account.TeamWrite), a.removeMember)
	leave := person(r("/teams/{id}/leave", "leaveTeam", "Leave a team", "It takes a key of the personal account with all scopes.", ""))
	contract.Post(a.API, leave, a.leaveTeam)

	contract.Get(a.API, r("/teams/{id}/invitations", "listInvitations", "List invitations",
		"Those that can still be accepted, newest first.", account.TeamWrite), a.listInvitations)
	invite := r("/teams/{id}/invitations", "createInvitation", "Invite a member",
		"Sends an email to the address, and replaces an earlier invitation for it. The response doesn't reveal whether a user has this address. "+
			"An invitation is valid for 7 days, for that address only.", account.TeamWrite)
	invite.Status, invite.Limited, invite.Private, invite.Noun = 201, true, true, "invitation"
	contract.Post(a.API, invite, a.createInvitation)
	contract.Change(a.API, "DELETE", r("/teams/{id}/invitations/{invitation}", "revokeInvitation", "Revoke an invitation", "",
		account.TeamWrite), a.revokeInvitation)
	resend := r("/teams/{id}/invitations/{invitation}/resend", "resendInvitation", "Send an invitation again",
		"With a new link, valid for another 7 days. The previous link stops working.", account.TeamWrite)
	resend.Private = true
	contract.Post(a.API, resend, a.resendInvitation)
	accept := person(r("/invitations/accept", "acceptInvitation", "Accept an invitation",
		"Requires a key of the invited user's personal account with all scopes.", ""))
	accept.Noun, accept.Finds = "invitation", true
	contract.Post(a.API, accept, a.acceptInvitation)

	on := func(path, id, summary, doc string, s account.Scope) contract.Route {
		r := r(path, id, summary, doc, s)
		r.Wide = false
		return r
	}
	contract.Get(a.API, on("/sites/{id}/members", "listSiteMembers", "List a site's members",
		"Members of the team with a role on this site.", account.TeamRead), a.listSiteMembers)
	put := on("/sites/{id}/members/{userId}", "setSiteMember", "Set a member's role on a site",
		"For members and guests of the team; invite others first.", account.TeamWrite)
	contract.Change(a.API, "PUT", put, a.setSiteMember)
	contract.Change(a.API, "DELETE", on("/sites/{id}/members/{userId}", "removeSiteMember", "Remove a member's role on a site",
		"A guest without a role on another site leaves the team.", account.TeamWrite), a.removeSiteMember)
	a.auditRoutes()
}

// own checks that the team in the path is the one that the caller acts for.
func (a *API) own(ctx context.Context, c account.Caller, name string) error {
	if c.Team != "" && (c.Team == name || c.Slug == name) {
		return nil
	}
	if c.Team == "" {
		if _, err := a.Teams.Find(ctx, a.DB, c.User, name); err == nil {
			return contract.ErrMismatch(c, name)
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return fault.Missing("team")
}

func (a *API) listTeams(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[teamBody], error) {
	list, err := a.Teams.List(ctx, c.User)
	if c.Team != "" {
		list = slices.DeleteFunc(list, func(t team.Team) bool { return t.ID != team.ID(c.Team) })
		if c.Service {
			list = nil
			var t team.Team
			if t, err = a.Teams.Get(ctx, a.DB, c.Owner); err == nil {
				t.Role = c.Role
				list = []team.Team{t}
			}
		}
	}
	return contract.Part(*in, contract.Each(list, showTeam), err)
}

type createTeamIn struct {
	Body struct {
		Name string `json:"name" doc:"1 to 100 characters."`
		Slug string `json:"slug,omitempty" doc:"2 to 48 lowercase letters, digits and hyphens. Default: derived from the name."`
	}
}

func (a *API) createTeam(ctx context.Context, tx *db.Tx, c account.Caller, in *createTeamIn) (_ teamBody, did audit.Event, _ error) {
	u, err := a.Accounts.User(ctx, c.User)
	if err != nil {
		return teamBody{}, did, err
	}
	t, err := a.Teams.CreateTx(ctx, tx, u, team.NewTeam{Name: in.Body.Name, Slug: in.Body.Slug})
	if err != nil {
		return teamBody{}, did, err
	}
	return showTeam(t), audit.Logged, a.LogIn(ctx, tx, c, t.Owner, audit.Event{Action: "team.created", Subject: string(t.ID), Detail: t.Name})
}

func (a *API) getTeam(ctx context.Context, c account.Caller, in *contract.ByID[string]) (teamBody, error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return teamBody{}, err
	}
	t, err := a.Teams.Get(ctx, a.DB, c.Owner)
	t.Role = c.Role
	return showTeam(t), err
}

type updateTeamIn struct {
	contract.ByID[string]
	Body struct {
		Name             *string `json:"name,omitempty"`
		Slug             *string `json:"slug,omitempty" doc:"Slug of the team, used in dashboard URLs and in the operator's limits."`
		RequireTwoFactor *bool   `json:"requireTwoFactor,omitempty" doc:"Block members without two-factor authentication, and their API keys. Requires a caller who has it."`
		RequireSSO       *bool   `json:"requireSso,omitempty" doc:"Block members who don't sign in with the team's provider, and API keys and apps of members who have no linked account there."`
		Apps             *string `json:"apps,omitempty" enum:"all,approved,none" doc:"Which OAuth apps members can authorize for the team. The access of other apps ends immediately, with the webhooks, deploy hooks and notification channels that they created."`
	}
}

func (a *API) updateTeam(ctx context.Context, tx *db.Tx, c account.Caller, in *updateTeamIn) (_ teamBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return teamBody{}, did, err
	}
	b := in.Body
	t, err := a.Teams.UpdateTx(ctx, tx, c, team.Patch{
		Name: b.Name, Slug: b.Slug, RequireTwoFactor: b.RequireTwoFactor, RequireSSO: b.RequireSSO, Apps: b.Apps,
	})
	did = audit.Event{Action: "team.updated", Subject: string(t.ID), Detail: t.Name}
	if b.RequireTwoFactor != nil {
		did.Detail += map[bool]string{
			true:  ": two-factor authentication required",
			false: ": two-factor authentication not required",
		}[*b.RequireTwoFactor]
	}
	if len(t.EndedApps) > 0 {
		did.Detail += ": access ended of " + text.Line(strings.Join(t.EndedApps, ", "), 300)
	}
	if b.RequireSSO != nil {
		did.Detail += map[bool]string{true: ": single sign-on required", false: ": single sign-on not required"}[*b.RequireSSO]
	}
	t.Role = c.Role
	return showTeam(t), did, err
}

type deleteTeamIn struct {
	contract.ByID[string]
	Sites string `query:"sites" enum:"delete" doc:"delete: also delete the team's sites."`
	Body  struct {
		Confirm string `json:"confirm" doc:"The team's slug, as confirmation."`
	}
}

// deletedTeam is 200 if the team is deleted, and 202 with an operation if its sites must be deleted first.
type deletedTeam struct {
	Message   string                  `json:"message"`
	Operation *contract.OperationBody `json:"operation,omitempty" doc:"The operation that deletes the sites, then the team."`
}

func (d deletedTeam) StatusCode() int {
	if d.Operation != nil {
		return http.StatusAccepted
	}
	return http.StatusOK
}

func (a *API) deleteTeam(ctx context.Context, tx *db.Tx, c account.Caller, in *deleteTeamIn) (_ deletedTeam, did audit.Event, _ error) {
	err := a.own(ctx, c, in.ID)
	if err == nil {
		err = contract.OneOf("sites", in.Sites, "delete")
	}
	if err == nil {
		err = account.LockOwnerTx(ctx, tx, c.Owner) // waits for a concurrent removal of the caller
	}
	if err == nil {
		// Write the entry first: it requires a membership, which is deleted with the team.
		err = a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), audit.Event{Action: "team.deleted", Subject: c.Team, Detail: c.Slug})
	}
	if err != nil {
		return deletedTeam{}, did, err
	}
	_, o, err := a.Teams.DeleteTx(ctx, tx, c, in.Body.Confirm, in.Sites == "delete")
	if err != nil || o == nil {
		return deletedTeam{Message: "Team deleted"}, audit.Logged, err
	}
	shown := contract.ShowOperation(*o)
	return deletedTeam{"The team is deleted once its sites are", &shown}, audit.Logged, nil
}

func (a *API) listMembers(ctx context.Context, c account.Caller, in *contract.PartOf[string]) (contract.Data[memberBody], error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Data[memberBody]{}, err
	}
	return a.members(ctx, c, in.PartIn, team.MemberFilter{})
}

// MemberIn is the input of operations on one member.
type MemberIn struct {
	contract.ByID[site.ID]
	User account.UserID `path:"userId"`
}

type updateMemberIn struct {
	MemberIn
	Body struct {
		Role *string `json:"role" enum:"owner,admin,developer,contributor,viewer,billing" doc:"Null: make a member who has a role on a site a guest."`
	}
}

func (a *API) updateMember(ctx context.Context, tx *db.Tx, c account.Caller, in *updateMemberIn) (_ memberBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, string(in.ID)); err != nil {
		return memberBody{}, did, err
	}
	role := account.RoleGuest
	if in.Body.Role != nil {
		role = account.Role(*in.Body.Role)
		if role == "" {
			role = "none"
		}
	}
	user := in.User
	did = audit.Event{
		Action: "member.role_changed", Subject: string(in.User), About: user, Detail: "to " + cmp.Or(string(role), "guest"),
	}
	err := a.beforeOwn(ctx, tx, c, user, &did)
	if err != nil {
		return memberBody{}, did, err
	}
	m, err := a.Teams.ChangeTx(ctx, tx, c, user, role)
	return showMember(m), did, err
}

type setEmergencyOwnerIn struct {
	MemberIn
	Body struct {
		Enabled bool `json:"enabled"`
	}
}

func (a *API) setEmergencyOwner(
	ctx context.Context, tx *db.Tx, c account.Caller, in *setEmergencyOwnerIn,
) (_ memberBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, string(in.ID)); err != nil {
		return memberBody{}, did, err
	}
	user := in.User
	m, err := a.Teams.SetEmergencyTx(ctx, tx, c, user, in.Body.Enabled)
	did = audit.Event{
		Action: "member.emergency", Subject: string(in.User), About: user,
		Detail: map[bool]string{true: "emergency owner", false: "no emergency owner"}[in.Body.Enabled],
	}
	return showMember(m), did, err
}

// beforeOwn writes the audit log entry before a caller changes their own membership, because afterwards it would be
// refused.
func (a *API) beforeOwn(ctx context.Context, tx *db.Tx, c account.Caller, user account.UserID, did *audit.Event) error {
	if user != c.User || c.Service {
		return nil
	}
	err := a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), *did)
	*did = audit.Logged
	return err
}

type removedMember struct {
	Message     string   `json:"message"`
	ServiceKeys []string `json:"serviceKeys" doc:"Names of service keys that the member created. They keep working: rotate them."`
	Known       []known  `json:"known" doc:"Credentials of the team that the member created or could read. They keep working: rotate them."`
}

// known is a credential of a team that a former member knows.
type known struct {
	Kind   string  `json:"kind" enum:"service_key,deploy_hook,git_hook,webhook"`
	Name   string  `json:"name" doc:"Name of a key or hook, or host of a webhook. Empty for Git hooks."`
	SiteID *string `json:"siteId" doc:"Site of a hook."`
}

func (a *API) removeMember(ctx context.Context, tx *db.Tx, c account.Caller, in *MemberIn) (_ removedMember, did audit.Event, _ error) {
	if err := a.own(ctx, c, string(in.ID)); err != nil {
		return removedMember{}, did, err
	}
	user := in.User
	did = audit.Event{Action: "member.removed", Subject: string(in.User), About: user}
	if err := a.beforeOwn(ctx, tx, c, user, &did); err != nil {
		return removedMember{}, did, err
	}
	m, list, err := a.Teams.RemoveTx(ctx, tx, c, user)
	if did.Action == "member.removed" {
		did.Detail = m.Email
	}
	out := removedMember{"Member removed", team.ServiceKeys(list), []known{}}
	for _, k := range list {
		one := known{Kind: k.Kind, Name: k.Name}
		if k.Site != "" {
			one.SiteID = contract.Some(string(k.Site))
		}
		out.Known = append(out.Known, one)
	}
	return out, did, err
}

func (a *API) leaveTeam(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[string],
) (_ contract.Message, did audit.Event, _ error) {
	t, err := a.Teams.Find(ctx, tx, c.User, in.ID)
	if err == nil {
		err = a.LogIn(ctx, tx, c, t.Owner, audit.Event{Action: "member.left", Subject: string(c.User)})
	}
	if err != nil {
		return contract.Message{}, did, err
	}
	return contract.Message{Message: "You left the team"}, audit.Logged, a.Teams.LeaveTx(ctx, tx, c.User, t)
}

func (a *API) listInvitations(ctx context.Context, c account.Caller, in *contract.PartOf[string]) (contract.Data[invitationBody], error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Data[invitationBody]{}, err
	}
	list, err := a.Teams.Invitations(ctx, c.Owner)
	return contract.Part(in.PartIn, contract.Each(list, showInvitation), err)
}

type createInvitationIn struct {
	contract.ByID[string]
	Body struct {
		Email string         `json:"email"`
		Role  string         `json:"role,omitempty" enum:"owner,admin,developer,contributor,viewer,billing" doc:"Default: a guest, for whom sites is required."`
		Sites []siteRoleBody `json:"sites,omitempty" maxItems:"100" doc:"Roles on single sites."`
	}
}

func (a *API) createInvitation(
	ctx context.Context, tx *db.Tx, c account.Caller, in *createInvitationIn,
) (_ newInvitationBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return newInvitationBody{}, did, err
	}
	n := team.NewInvitation{Email: in.Body.Email, Role: account.Role(in.Body.Role), Sites: map[site.ID]account.Role{}}
	for _, s := range in.Body.Sites {
		n.Sites[s.SiteID] = account.Role(s.Role)
	}
	i, token, err := a.Teams.InviteTx(ctx, tx, c, n)
	did = audit.Event{Action: "invitation.created", Subject: i.ID, Detail: i.Email + " as " + cmp.Or(string(i.Role), "guest")}
	return newInvitationBody{showInvitation(i), a.acceptURL(token)}, did, err
}

// acceptURL returns the page for accepting an invitation; nil if it was mailed.
func (a *API) acceptURL(token string) *string {
	if a.Accounts.Mails() {
		return nil
	}
	return contract.Some(a.BaseURL + "/invitations/" + token)
}

// InvitationIn is the input of operations on one invitation.
type InvitationIn struct {
	contract.ByID[string]
	Invitation string `path:"invitation"`
}

func (a *API) revokeInvitation(
	ctx context.Context, tx *db.Tx, c account.Caller, in *InvitationIn,
) (_ contract.Message, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	i, err := a.Teams.RevokeInvitationTx(ctx, tx, c, in.Invitation)
	return contract.Message{Message: "Invitation revoked"}, audit.Event{
		Action: "invitation.revoked", Subject: in.Invitation,
		Detail: i.Email,
	}, err
}

func (a *API) resendInvitation(
	ctx context.Context, tx *db.Tx, c account.Caller, in *InvitationIn,
) (_ newInvitationBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return newInvitationBody{}, did, err
	}
	i, token, err := a.Teams.ResendTx(ctx, tx, c, in.Invitation)
	did = audit.Event{Action: "invitation.resent", Subject: in.Invitation, Detail: i.Email}
	return newInvitationBody{showInvitation(i), a.acceptURL(token)}, did, err
}

type acceptInvitationIn struct {
	Body struct {
		Token string `json:"token" doc:"Token from the link in the email."`
	}
}

type acceptedBody struct {
	Team   teamBody   `json:"team"`
	Member memberBody `json:"member"`
}

func (a *API) acceptInvitation(
	ctx context.Context, tx *db.Tx, c account.Caller, in *acceptInvitationIn,
) (_ acceptedBody, did audit.Event, _ error) {
	u, err := a.Accounts.User(ctx, c.User)
	if err != nil {
		return acceptedBody{}, did, err
	}
	m, t, err := a.Teams.AcceptTx(ctx, tx, u, strings.TrimSpace(in.Body.Token))
	if err != nil {
		return acceptedBody{}, did, err
	}
	err = a.LogIn(ctx, tx, c, t.Owner, audit.Event{Action: "member.added", Subject: string(m.User), Detail: "as " +
		cmp.Or(string(m.Role), "guest")})
	return acceptedBody{showTeam(t), showMember(m)}, audit.Logged, err
}

func (a *API) listSiteMembers(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[memberBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[memberBody]{}, err
	}
	return a.members(ctx, c, in.PartIn, team.MemberFilter{Site: in.ID})
}

// members lists members of the caller's team, or a page of them if requested.
func (a *API) members(
	ctx context.Context, c account.Caller, in contract.PartIn, f team.MemberFilter,
) (out contract.Data[memberBody], err error) {
	var p contract.Paging
	if in != (contract.PartIn{}) {
		if p, err = contract.PageIn(in).Parse(); err != nil {
			return out, err
		}
		f.Page, f.Limit = p.Page, p.Limit
	}
	list, total, err := a.Teams.Members(ctx, c.Owner, f)
	out.Data = contract.Each(list, showMember)
	if f.Limit > 0 {
		cut := contract.Paged(out.Data, p, total)
		out.Pagination = &cut.Pagination
	}
	return out, err
}

type setSiteMemberIn struct {
	MemberIn
	Body struct {
		Role string `json:"role" enum:"manager,developer,contributor,viewer"`
	}
}

func (a *API) setSiteMember(
	ctx context.Context, tx *db.Tx, c account.Caller, in *setSiteMemberIn,
) (_ memberBody, did audit.Event, _ error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = c.RequireSite(in.ID)
	}
	if err == nil {
		err = requireTeam(c)
	}
	if err != nil {
		return memberBody{}, did, err
	}
	did = audit.Event{
		Action: "member.site_role", Subject: string(in.ID), About: in.User, Detail: in.Body.Role + " on " + s.Name,
	}
	if err := a.beforeOwn(ctx, tx, c, in.User, &did); err != nil {
		return memberBody{}, did, err
	}
	m, err := a.Teams.SetSiteTx(ctx, tx, c, in.ID, in.User, account.Role(in.Body.Role))
	return showMember(m), did, err
}

func (a *API) removeSiteMember(
	ctx context.Context, tx *db.Tx, c account.Caller, in *MemberIn,
) (_ contract.Message, did audit.Event, _ error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = c.RequireSite(in.ID)
	}
	if err == nil {
		err = requireTeam(c)
	}
	if err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{
		Action: "member.site_role", Subject: string(in.ID), About: in.User, Detail: "none on " + s.Name,
	}
	if err := a.beforeOwn(ctx, tx, c, in.User, &did); err != nil {
		return contract.Message{}, did, err
	}
	_, err = a.Teams.RemoveSiteTx(ctx, tx, c, in.ID, in.User)
	return contract.Message{Message: "Role removed"}, did, err
}

// requireTeam returns a fault for personal accounts.
func requireTeam(c account.Caller) error {
	if c.Team != "" {
		return nil
	}
	return fault.New(fault.Conflict, "not_a_team", "This site belongs to a personal account",
		"create a team and transfer the site to it first")
}

func showTeam(t team.Team) teamBody {
	return teamBody{
		t.ID, t.Name, t.Slug, contract.Some(string(t.Role)), t.Members, t.RequireTwoFactor, t.RequireSSO, t.Apps, t.EndedApps,
		t.CreatedAt.String(),
	}
}

func showMember(m team.Member) memberBody {
	return memberBody{
		UserID: m.User, Email: m.Email, Role: contract.Some(string(m.Role)), Sites: showSiteRoles(m.Sites), TwoFactor: m.TwoFactor,
		SSO: m.SSO, Emergency: m.Emergency,
		JoinedAt: m.JoinedAt.String(),
	}
}

func showSiteRoles(roles map[site.ID]account.Role) []siteRoleBody {
	out := []siteRoleBody{}
	for id, role := range roles {
		out = append(out, siteRoleBody{id, string(role)})
	}
	slices.SortFunc(out, func(a, b siteRoleBody) int { return cmp.Compare(a.SiteID, b.SiteID) })
	return out
}

func showInvitation(i team.Invitation) invitationBody {
	return invitationBody{i.ID, i.Email, contract.Some(string(i.Role)), showSiteRoles(i.Sites), i.CreatedAt.String(), i.ExpiresAt.String()}
}
