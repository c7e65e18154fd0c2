//go:build browser

package browser

import "testing"

// Peers holds the number of acts that a story takes on other platforms, from the list of projects to the end; 0 means
// that it isn't possible or not documented. Each platform gets the fewest acts that its documentation allows, with a
// connected Git account and one project. Links, buttons, checkboxes, menus and menu entries count as one act each.
// Typing, Enter in a field, scrolling and copying don't count.
type Peers struct {
	Story                  string
	Vercel, Render, Kinsta int
	Source                 string
}

// Ten lists the stories that must not take more acts in the dashboard than on the best other platform. "(i)" means that
// at least one act is inferred: the numbers come from documentation, not from using the dashboards, which also change.
var Ten = []Peers{
	{"repository to live site", 4, 4, 0, "vercel.com/docs/projects/managing-projects (3 February 2026): Add New, Project, Import, Deploy. " +
		"render.com/docs/your-first-deploy: New, Static Site, the repository, Deploy (i)"},
	{"add a variable and redeploy", 6, 4, 0, "vercel.com/docs/environment-variables/managing-environment-variables: the project, Environment Variables, " +
		"Add, Save, Redeploy, Redeploy (i). render.com/docs: the service, Environment, Add Environment Variable, Save, rebuild, and deploy (i)"},
	{"add a domain and see its DNS records", 4, 4, 4, "vercel.com/docs/deployments/environments: the project, Domains, Add, Add (i). " +
		"render.com/docs/custom-domains: the service, Settings, Add Custom Domain, Save. " +
		"kinsta.com/docs/create-wordpress-multisite-network: the site, Domains, Add domain, Add domains"},
	{"roll back", 4, 3, 0, "vercel.com/docs/instant-rollback (26 February 2026): the project, Instant Rollback, Continue, Confirm (i). " +
		"render.com/docs/rollbacks: the service, Rollback, Rollback to this deploy (i)"},
	{"read the error of a failed build", 2, 2, 0, "vercel.com/docs/deployments/logs (28 August 2026): the project, Build Logs. " +
		"render.com/docs/deploys: the service, the deploy (i)"},
	{"invite a member", 3, 3, 5, "vercel.com/docs/rbac/managing-team-members: Settings, Members, Invite (i). render.com/docs/team-members: Settings, Invite, " +
		"Send (i). kinsta.com/docs/invite-user-to-company: the name, Company settings, Users, Invite users, Invite user"},
	{"create a webhook and send a test", 4, 4, 0, "vercel.com/docs/webhooks (11 March 2026): Settings, Webhooks, an event, Create (i). " +
		"render.com/docs/webhooks: Integrations > Webhooks, Create Webhook, an event, Create Webhook. Neither sends a test: they are given it"},
	{"new WordPress and open wp-admin", 0, 0, 6, "kinsta.com/docs: Add site, Create new site, Continue, Create site, the site, Open WP Admin (i), and then " +
		"the password of WordPress"},
	{"back up and restore", 0, 0, 6, "kinsta.com/docs/wordpress-backups: the site, Backups, Back up now, Create backup, Restore to, Restore (i)"},
	{"find a log line of an hour ago", 4, 4, 2, "vercel.com/docs/logs/runtime: the project, Logs, Timeline, the range (i). render.com/docs/logging: the service, Logs, " +
		"the range, its choice (i). kinsta.com/help/view-server-logs: the site, Logs, and its text in the search box"},
}

// Fewest returns the fewest acts that any of the other platforms takes for a story of Ten.
func Fewest(t testing.TB, story string) int {
	t.Helper()
	for _, p := range Ten {
		if p.Story == story {
			least := 0
			for _, n := range []int{p.Vercel, p.Render, p.Kinsta} {
				if n > 0 && (least == 0 || n < least) {
					least = n
				}
			}
			return least
		}
	}
	t.Fatalf("no story is called %q", story)
	return 0
}

// Tell runs a story that starts on the list of sites, and checks that it took no more acts than on the best other
// platform.
func (h *Hand) Tell(story, home string, tell func()) {
	h.t.Helper()
	h.Go(home)
	h.Acts = 0
	tell()
	h.t.Logf("%-40s %d acts, the best peer %d", story, h.Acts, Fewest(h.t, story))
	if most := Fewest(h.t, story); h.Acts > most {
		h.t.Errorf("%s: %d acts, and a peer needs %d", story, h.Acts, most)
	}
}
