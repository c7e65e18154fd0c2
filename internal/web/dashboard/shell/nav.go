package shell

import "slipway/internal/tenant/team"

// NavGroup is a titled group of links in the navigation.
type NavGroup struct {
	Title string
	Links []NavLink
}

// NavLink is a link in the navigation. Typing g and then Key opens it.
type NavLink struct {
	Icon, Name, Path string
	Key              string // Optional.
	On               bool
}

// Rail returns the navigation of the account and, for operators, of the installation.
func (v *view) Rail() []NavGroup {
	link := func(icon, name, path string, on bool) NavLink {
		return NavLink{Icon: icon, Name: name, Path: path, On: on}
	}
	at := func(icon, name, path string) NavLink { return link(icon, name, path, v.In(path)) }
	if v.q.member.Team != "" {
		return v.teamRail()
	}
	if v.q.Session.Only != "" {
		return nil
	}
	groups := []NavGroup{
		{"", []NavLink{
			{"sites", "Sites", "/", "s", v.Path == "/" || v.In("/sites") || v.In("/new") || v.In("/deleted")},
			{"webhook", "Webhooks", "/webhooks", "w", v.In("/webhooks")},
		}},
		{"Account", []NavLink{
			link("profile", "Profile", "/account", v.Path == "/account"),
			link("security", "Sign-in and security", "/account/security", v.In("/account/security") || v.In("/account/second-factor") ||
				v.In("/account/password") || v.In("/account/passkeys")),
			at("sessions", "Sessions", "/account/sessions"),
			at("keys", "API keys", "/account/keys"),
			link("apps", "Apps", "/account/apps", v.In("/account/apps") || v.In("/account/oauth-apps")),
			at("git", "Git accounts", "/account/git"),
			at("bell", "Notifications", "/account/notifications"),
			at("traffic", "Usage", "/account/usage"),
			at("audit", "Audit log", "/account/audit"),
		}},
	}
	if v.sells {
		groups[1].Links = append(groups[1].Links, v.planLinks()...)
	}
	if v.User.Admin {
		groups = append(groups, NavGroup{"Operator", []NavLink{
			link("overview", "Installation", "/operator", v.Path == "/operator"),
			at("users", "Users", "/operator/users"),
			at("sites", "All sites", "/operator/sites"),
			at("git", "Git apps", "/operator/git"),
			at("audit", "Operator audit log", "/operator/audit"),
		}})
		if v.sells {
			last := &groups[len(groups)-1]
			last.Links = append(last.Links, at("users", "Customers", "/operator/customers"), at("traffic", "Receivables", "/operator/receivables"))
		}
	}
	return groups
}

// teamRail returns the navigation of the page's team. Links that the member's role doesn't allow are removed when the
// page is sent (rights.go).
func (v *view) teamRail() []NavGroup {
	base := "/teams/" + v.q.member.Slug
	at := func(icon, name, path, key string, below ...string) NavLink {
		on := v.In(path)
		for _, p := range below {
			on = on || v.In(p)
		}
		return NavLink{icon, name, path, key, on}
	}
	groups := []NavGroup{
		{"", []NavLink{
			{"sites", "Sites", "/", "s", v.Path == "/" || v.In("/sites") || v.In("/new") || v.In("/deleted")},
			at("webhook", "Webhooks", "/webhooks", "w"),
		}},
		{"Team", []NavLink{
			at("users", "Members", base+"/members", "", base+"/invite", base+"/invitations"),
			at("keys", "API keys", "/account/keys", ""),
			at("apps", "Apps", "/account/apps", "", "/account/oauth-apps"),
			at("bell", "Notifications", "/account/notifications", ""),
			at("traffic", "Usage", base+"/usage", ""),
			at("audit", "Audit log", base+"/audit", ""),
			at("security", "Single sign-on", base+"/sso", ""),
			at("settings", "Settings", base+"/settings", ""),
		}},
	}
	if v.sells {
		groups[1].Links = append(groups[1].Links, v.planLinks()...)
	}
	return groups
}

// planLinks returns the links to the pages of the account's plan.
func (v *view) planLinks() []NavLink {
	return []NavLink{
		{Icon: "overview", Name: "Plan", Path: "/account/plan", On: v.In("/account/plan")},
		{Icon: "audit", Name: "Invoices", Path: "/account/invoices", On: v.In("/account/invoices")},
	}
}

// Switch lists the accounts that the user can switch to.
type Switch struct {
	Now   string // the team's name, or "Personal account"
	Slug  string // the current team; empty: the personal account
	Teams []team.Ref
}

// Switcher returns the account switcher, or nil for people without a team and in sessions restricted to one account.
func (v *view) Switcher() (*Switch, error) {
	if v.q.Session.Only != "" {
		return nil, nil
	}
	list, err := v.teams.Refs(v.q.Context(), v.User.ID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	s := &Switch{Now: "Personal account", Slug: v.q.member.Slug, Teams: list}
	for _, t := range list {
		if t.Slug == s.Slug {
			s.Now = t.Name
		}
	}
	return s, nil
}

// Here returns the navigation link whose path is the longest prefix of the page's path.
func (v *view) Here() (here NavLink) {
	for _, g := range v.Rail() {
		for _, l := range g.Links {
			if l.On && len(l.Path) >= len(here.Path) {
				here = l
			}
		}
	}
	return here
}
