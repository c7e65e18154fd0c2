package dashboard

import (
	"context"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
)

// siteRoutes is every route of one site, of making one, and of webhooks.
func (d *Dashboard) siteRoutes() []route {
	rs := []route{
		get("/new", user, d.newPage),
		post("/new", user, d.newStep, d.newPage),

		get("/sites/{id}", user, d.siteOverview),
		get("/sites/{id}/follow", user, d.siteLive),
		get("/sites/{id}/logs", user, d.programPage),
		get("/sites/{id}/logs/follow", user, d.programLive),
		post("/sites/{id}/commands", user, d.runCommand, d.programPage),
		get("/sites/{id}/traffic", user, d.trafficPage),
		get("/sites/{id}/traffic/follow", user, d.trafficLive),
		get("/sites/{id}/traffic/log", user, d.accessLog),
		get("/sites/{id}/rules", user, d.rulesPage),
		post("/sites/{id}/rules", user, d.saveServing, d.rulesPage),
		get("/sites/{id}/pictures/{picture}", user, d.pictureFile),
		get("/sites/{id}/first", user, d.firstDeployment),
		get("/sites/{id}/first/follow", user, d.firstLive),
		post("/sites/{id}/deploy", user, d.deploySite, d.deploymentsPage),
		post("/sites/{id}/rollback", user, d.rollBack, nil),
		post("/sites/{id}/stop", user, d.stopSite, nil),
		post("/sites/{id}/start", user, d.startSite, nil),
		post("/sites/{id}/restart", user, d.restartSite, nil),
		get("/sites/{id}/settings", user, d.settingsPage),
		post("/sites/{id}/settings", user, d.saveSettings, d.settingsPage),
		post("/sites/{id}/delete", user, d.deleteSite, d.settingsPage),
	}
	for _, more := range [][]route{
		d.deploymentRoutes(),
		d.domainRoutes(),
		d.envRoutes(),
		d.databaseRoutes(),
		d.backupRoutes(),
		d.deletedRoutes(),
		d.wordpressRoutes(),
		d.terminalRoutes(),
		d.hookRoutes(),
		d.gitRoutes(),
		d.webhookRoutes(),
	} {
		rs = append(rs, more...)
	}
	return rs
}

// siteHead holds the data of the header of every page of a site (templates/frame_site.html). Pages'
// data embed it.
type siteHead struct {
	Site site.Site
	Tab  string
	URL  string // https://…, of the site's own address
	Host string

	Live      *deployment.Deployment // the live deployment, where the site needs to be redeployed; else nil
	Visit     string                 // https://…, by which visitors know the site: its primary domain's, or URL
	VisitHost string                 // its host as people read it: with the letters of an IDN
	Theme     siteTheme

	Databases bool // whether it has any
}

// Head is the header itself: a page's own field of the same name, such as Live, would hide one
// of the header's from the template.
func (h siteHead) Head() siteHead { return h }

// Base is where the site's pages are.
func (h siteHead) Base() string { return "/sites/" + string(h.Site.ID) }

// Deployable reports whether there is a repository of which a deployment can be asked for: a
// WordPress may have one for its wp-content.
func (h siteHead) Deployable() bool { return h.Site.Type == site.Static || h.Site.Repository != "" }

// CanRedeploy reports whether the commit that is live can be built again for production. One
// that was promoted from another branch can't: production is built from its branch.
func (h siteHead) CanRedeploy() bool {
	return h.Live != nil && h.Live.CommitHash != "" && h.Live.Status.Ended() && (h.Site.Branch == "" || h.Live.Branch == h.Site.Branch)
}

// CanDeploy reports whether asking for one now would be answered.
func (h siteHead) CanDeploy() bool { return h.Deployable() && h.Site.Status != site.Stopped }

// head loads the asker's own site; any other does not exist.
func (d *Dashboard) head(ctx context.Context, q *request, tab string) (siteHead, error) {
	s, err := d.Sites.Get(ctx, q.caller.Owner, site.ID(q.PathValue("id")))
	if err != nil {
		return siteHead{}, err
	}
	thumbnails, err := d.Thumbnails.OfSites(ctx, q.caller.Owner, []site.ID{s.ID})
	if err != nil {
		return siteHead{}, err
	}
	var current *deployment.Deployment
	if s.NeedsRedeploy && s.LiveDeployment != "" {
		x, err := d.Deployments.Several(ctx, q.caller.Owner, []deployment.ID{deployment.ID(s.LiveDeployment)})
		if err != nil {
			return siteHead{}, err
		}
		if live, ok := x[deployment.ID(s.LiveDeployment)]; ok {
			current = &live
		}
	}
	primary, err := d.Domains.Primary(ctx, d.DB, string(s.ID))
	if err != nil {
		return siteHead{}, err
	}
	url := d.Sites.URL(s.Slug)
	h := siteHead{
		Site:  s,
		Tab:   tab,
		URL:   url,
		Host:  strings.TrimPrefix(url, "https://"),
		Live:  current,
		Theme: themeOf(s, thumbnails[s.ID]),
	}
	databases, err := d.Databases.List(ctx, d.DB, q.caller.Owner, s.ID)
	if err != nil {
		return siteHead{}, err
	}
	h.Databases = len(databases) > 0 || tab == "databases"
	h.Visit, h.VisitHost = h.URL, h.Host
	if primary != "" {
		port := ""
		if i := strings.IndexByte(h.Host, ':'); i > 0 {
			port = h.Host[i:]
		}
		h.Visit, h.VisitHost = "https://"+primary+port, domain.Unicode(primary)+port
	}
	return h, nil
}

// deploySite asks for a deployment and goes to where it can be watched.
func (d *Dashboard) deploySite(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	t := deploy.Trigger{
		Cause:      deployment.ByDashboard,
		Branch:     strings.TrimSpace(q.value("branch")),
		Commit:     strings.TrimSpace(q.value("commit")),
		Title:      strings.TrimSpace(q.value("title")),
		ClearCache: q.checked("clear_cache"),
	}
	var x deployment.Deployment
	err := d.act(ctx, q, "deployment.triggered", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Deployments.TriggerTx(ctx, tx, q.caller.Owner, id, t)
		return string(x.ID), err
	})
	return goTo(deploymentPath(id, x.ID), ""), err
}

// rollBack makes an earlier release live again.
func (d *Dashboard) rollBack(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	var x deployment.Deployment
	err := d.act(ctx, q, "deployment.rolled_back", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Deployments.RollbackTx(ctx, tx, q.caller.Owner, id, deployment.ParseID(q.value("deployment")))
		return string(x.ID), err
	})
	return goTo("/sites/"+string(id), "Rolled back"), err
}

func (d *Dashboard) stopSite(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	err := d.act(ctx, q, "site.stopped", func(tx *db.Tx) (string, error) {
		_, err := d.Sites.StopTx(ctx, tx, q.caller.Owner, id)
		return string(id), err
	})
	return goTo("/sites/"+string(id), "Site stopped"), err
}

func (d *Dashboard) startSite(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	err := d.act(ctx, q, "site.started", func(tx *db.Tx) (string, error) {
		_, err := d.Sites.StartTx(ctx, tx, q.caller.Owner, id)
		return string(id), err
	})
	return goTo("/sites/"+string(id), "Site started"), err
}
