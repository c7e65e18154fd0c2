package teams

import (
	"cmp"

	"slipway/internal/tenant/account"
)

// choice is a role in a form, with its description.
type choice struct {
	Role  account.Role
	Name  string
	Words string
	No    bool // whether the caller may not assign it
}

// RoleName returns a role's display name.
func RoleName(r account.Role) string {
	if r == account.RoleGuest {
		return "Guest"
	}
	for _, c := range append(teamRoles, siteRoles...) {
		if c.Role == r {
			return c.Name
		}
	}
	return cmp.Or(string(r), "Guest")
}

// The roles and their descriptions, as in docs/teams.md.
var (
	teamRoles = []choice{
		{
			Role: account.RoleOwner, Name: "Owner",
			Words: "Everything, including deleting the team, its owners, and requiring two-factor authentication.",
		},
		{Role: account.RoleAdmin, Name: "Admin", Words: "Manages members, apps, service keys and all sites. Can delete and transfer sites."},
		{
			Role: account.RoleDeveloper, Name: "Developer",
			Words: "Creates and changes sites, deploys to production, and reads environment variables.",
		},
		{Role: account.RoleContributor, Name: "Contributor", Words: "Deploys previews. Can't read environment variables or change settings."},
		{Role: account.RoleViewer, Name: "Viewer", Words: "Sees sites, deployments and domains. Can't change anything."},
		{Role: account.RoleBilling, Name: "Billing", Words: "Sees plans and invoices, but no sites."},
	}
	siteRoles = []choice{
		{Role: account.RoleManager, Name: "Manager", Words: "An admin's rights on this site, except for transfers."},
		{Role: account.RoleDeveloper, Name: "Developer", Words: "Changes settings, deploys to production, and reads environment variables."},
		{Role: account.RoleContributor, Name: "Contributor", Words: "Deploys previews."},
		{Role: account.RoleViewer, Name: "Viewer", Words: "Sees the site. Can't change anything."},
	}
)

// rolesFor returns the roles that a member with this role may assign.
func rolesFor(by account.Role) (list []choice) {
	for _, c := range teamRoles {
		c.No = !by.MayGrant(c.Role)
		list = append(list, c)
	}
	return list
}
