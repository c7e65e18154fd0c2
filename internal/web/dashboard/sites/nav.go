package sites

import (
	"cmp"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Rail returns the navigation of a site's pages.
func (h SiteHead) Rail() []shell.NavGroup {
	link := func(tab, name, key string) shell.NavLink {
		path := h.Base() + "/" + tab
		if tab == "overview" {
			path = h.Base()
		}
		return shell.NavLink{Icon: tab, Name: name, Path: path, Key: key, On: tab == h.Tab}
	}
	first := []shell.NavLink{link("overview", "Overview", "o")}
	if h.IsWordPress() {
		first = append(first, link("wordpress", "WordPress", "p"))
	}
	first = append(first, link("deployments", "Deployments", "d"))
	var observe []shell.NavLink
	if h.HasProgram() {
		observe = append(observe, link("logs", "Logs", "l"))
	}
	observe = append(observe, link("traffic", "Traffic", "t"))
	if h.HasProgram() {
		observe = append(observe, link("terminal", "Terminal", ""))
	}
	configure := []shell.NavLink{link("domains", "Domains", "n"), link("env", "Environment", "e"), link("rules", "Routing", "r")}
	configure = append(configure, link("git", "Git", ""), link("hooks", "Deploy hooks", ""))
	if h.HasProgram() || h.Databases {
		configure = append(configure, link("databases", "Databases", ""))
	}
	configure = append(configure, link("backups", "Backups", "b"), link("settings", "Settings", ","))
	return []shell.NavGroup{{Links: first}, {Title: "Observe", Links: observe}, {Title: "Configure", Links: configure}}
}

// Here returns the navigation link of the page.
func (h SiteHead) Here() (here shell.NavLink) {
	for _, g := range h.Rail() {
		for _, l := range g.Links {
			if l.On {
				here = l
			}
		}
	}
	return here
}

// Heading returns the page's title.
func (h SiteHead) Heading() string { return cmp.Or(h.Sub, h.Here().Name) }

// Next returns the action of the site's main button, the owner's most likely next step: start, view-error,
// view-progress, redeploy, deploy-waiting, deploy, admin or visit. Changed settings come before a waiting commit, since
// whoever reviews what goes live wants the settings in the live version.
func (h SiteHead) Next() string {
	switch last := h.Latest; {
	case h.Site.Status == site.Stopped:
		return "start"
	case last != nil && !last.Status.Ended():
		return "view-progress"
	case last != nil && last.Status == deployment.Failed:
		return "view-error"
	case h.Site.NeedsRedeploy && h.CanRedeploy():
		return "redeploy"
	case h.Waiting != nil:
		return "deploy-waiting"
	case h.Deployable() && (h.Site.NeedsRedeploy || h.Site.LiveDeployment == ""):
		return "deploy"
	case h.IsWordPress() && h.Site.Status == site.Active:
		return "admin"
	}
	return "visit"
}

// Progress returns the latest deployment's progress for the favicon: busy, bad or "".
func (h SiteHead) Progress() string {
	switch last := h.Latest; {
	case last != nil && !last.Status.Ended():
		return "busy"
	case last != nil && last.Status == deployment.Failed, h.Site.Status == site.Failed:
		return "bad"
	}
	return ""
}

// HeadState identifies the state of the header and navigation. Live pages reload these when it changes.
func (h SiteHead) HeadState() string {
	state := h.Next() + " " + h.Health() + " " + string(h.Site.Status)
	if h.Latest != nil {
		state += " " + string(h.Latest.ID)
	}
	if h.Site.NeedsRedeploy {
		state += " redeploy"
	}
	if h.Waiting != nil {
		state += " " + h.Waiting.CommitHash
	}
	return state
}

// Waits returns the commit that waits to be deployed, or nil.
func (h SiteHead) Waits() *DeploymentRow {
	if h.Waiting == nil {
		return nil
	}
	return Row(h, *h.Waiting)
}

// LatestPath returns the path of the latest deployment's page.
func (h SiteHead) LatestPath() string { return DeploymentPath(h.Site.ID, h.Latest.ID) }
