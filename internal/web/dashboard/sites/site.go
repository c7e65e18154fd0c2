package sites

import (
	"context"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// siteRoutes is every route of the list of sites, of making one, and of watching one.
func (d *Pages) Routes() []shell.Route {
	rs := []shell.Route{
		shell.Get("/new", shell.User, d.newPage).Takes(account.SitesWrite).Wide(),
		shell.Post("/new", shell.User, d.newStep, d.newPage).Takes(account.SitesWrite).Wide(),

		shell.Get("/sites/{id}", shell.User, d.siteOverview).Takes(account.SitesRead),
		shell.Get("/sites/{id}/follow", shell.User, d.siteLive).Takes(account.SitesRead),
		shell.Get("/sites/{id}/logs", shell.User, d.programPage).Takes(account.SitesRead),
		shell.Get("/sites/{id}/logs/follow", shell.User, d.programLive).Takes(account.SitesRead),
		shell.Get("/sites/{id}/logs/lines", shell.User, d.programFollow).Takes(account.SitesRead),
		shell.Get("/sites/{id}/logs/download", shell.User, d.programDownload).Takes(account.SitesRead),
		shell.Post("/sites/{id}/commands", shell.User, d.runCommand, d.programPage).Takes(account.SitesWrite),
		shell.Get("/sites/{id}/traffic", shell.User, d.trafficPage).Takes(account.SitesRead),
		shell.Get("/sites/{id}/traffic/follow", shell.User, d.trafficLive).Takes(account.SitesRead),
		shell.Get("/sites/{id}/traffic/log", shell.User, d.accessLog).Takes(account.SitesRead),
		shell.Get("/sites/{id}/pictures/{picture}", shell.User, d.pictureFile).Takes(account.SitesRead),
		shell.Get("/sites/{id}/first", shell.User, d.firstDeployment).Takes(account.SitesRead),
		shell.Get("/sites/{id}/first/follow", shell.User, d.firstLive).Takes(account.SitesRead),
		shell.Post("/sites/{id}/deploy", shell.User, d.DeploySite, d.deploymentsPage).Takes(account.PreviewsWrite),
		shell.Post("/sites/{id}/drop", shell.User, d.deployDropped, d.deploymentsPage).Takes(account.DeploymentsWrite).Receives(d.receiveDropped),
		shell.Post("/sites/{id}/rollback", shell.User, d.rollBack, nil).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/stop", shell.User, d.stopSite, nil).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/start", shell.User, d.startSite, nil).Takes(account.SitesWrite),
	}
	for _, more := range [][]shell.Route{
		d.deploymentRoutes(),
		d.terminalRoutes(),
	} {
		rs = append(rs, more...)
	}
	return rs
}

// SiteHead holds the data of the header of every page of a site (templates/frame_site.html). Pages'
// data embed it.
type SiteHead struct {
	Site site.Site
	Tab  string
	Sub  string // what the page is about, where it lies below one of the navigation; empty: it is one of them
	URL  string // https://…, of the site's own address
	Host string

	Latest    *deployment.Deployment // the newest deployment; nil: none yet
	Live      *deployment.Deployment // the live deployment, where the site needs to be redeployed; else nil
	Waiting   *deployment.Deployment // stands for the commit that was pushed and waits to be deployed; nil: none does
	Visit     string                 // https://…, by which visitors know the site: its primary domain's, or URL
	VisitHost string                 // its host as people read it: with the letters of an IDN
	Theme     Theme

	Databases  bool // whether it has any
	OwnActions bool // the page has buttons of its own instead of the site's

	Process *Process // of the live deployment's program; nil: the site has none
}

// Head is the header itself: a page's own field of the same name, such as Live, would hide one
// of the header's from the template.
func (h SiteHead) Head() SiteHead { return h }

// Health is how the site is: its status, or "crashed" where its program ended by itself and is not up again.
func (h SiteHead) Health() string { return HealthOf(h.Site, h.Process) }

// HealthOf returns a site's status, or "crashed" where its program ended by itself and is not up again.
func HealthOf(s site.Site, p *Process) string {
	if s.Status == site.Active && p != nil && p.State == "crashed" {
		return "crashed"
	}
	return string(s.Status)
}

// Base is where the site's pages are.
func (h SiteHead) Base() string { return "/sites/" + string(h.Site.ID) }

// Deployable reports whether there is a repository of which a deployment can be asked for: a
// WordPress may have one for its wp-content.
func (h SiteHead) Deployable() bool { return h.Site.Type == site.Static || h.Site.Repository != "" }

// Uploaded reports whether the site has no repository: its files are uploaded.
func (h SiteHead) Uploaded() bool { return h.Site.Source() == site.SourceUpload }

// CanRedeploy reports whether the commit that is live can be built again for production. One
// that was promoted from another branch can't: production is built from its branch.
func (h SiteHead) CanRedeploy() bool {
	return h.Live != nil && h.Live.CommitHash != "" && h.Live.Status.Ended() && (h.Site.Branch == "" || h.Live.Branch == h.Site.Branch)
}

// CanDeploy reports whether asking for one now would be answered.
func (h SiteHead) CanDeploy() bool { return h.Deployable() && h.Site.Status != site.Stopped }

// Head loads the asker's own site; any other does not exist.
func (d *Pages) Head(ctx context.Context, q *shell.Request, tab string) (SiteHead, error) {
	s, err := d.Sites.Get(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id"))
	if err != nil {
		return SiteHead{}, err
	}
	thumbnails, err := d.Thumbnails.OfSites(ctx, q.Caller.Owner, []site.ID{s.ID})
	if err != nil {
		return SiteHead{}, err
	}
	taken, err := d.Screenshots.OfSites(ctx, q.Caller.Owner, []site.ID{s.ID})
	if err != nil {
		return SiteHead{}, err
	}
	var current *deployment.Deployment
	if s.NeedsRedeploy && s.LiveDeployment != "" {
		x, err := d.Deployments.Several(ctx, q.Caller.Owner, []deployment.ID{s.LiveDeployment})
		if err != nil {
			return SiteHead{}, err
		}
		if live, ok := x[s.LiveDeployment]; ok {
			current = &live
		}
	}
	primary, err := d.Domains.Primary(ctx, d.DB, s.ID)
	if err != nil {
		return SiteHead{}, err
	}
	url := d.Sites.URL(s.Slug)
	latest, err := d.Deployments.Latest(ctx, d.DB, []site.ID{s.ID})
	if err != nil {
		return SiteHead{}, err
	}
	h := SiteHead{
		Site:  s,
		Tab:   tab,
		URL:   url,
		Host:  strings.TrimPrefix(url, "https://"),
		Live:  current,
		Theme: ThemeOf(s, thumbnails[s.ID], taken[s.ID]),
	}
	if last, ok := latest[s.ID]; ok {
		h.Latest = &last
	}
	if s.Repository != "" {
		if h.Waiting, err = d.Deployments.Waiting(ctx, d.DB, s); err != nil {
			return SiteHead{}, err
		}
	}
	databases, err := d.Databases.List(ctx, d.DB, q.Caller.Owner, s.ID)
	if err != nil {
		return SiteHead{}, err
	}
	h.Databases = len(databases) > 0 || tab == "databases"
	h.Process = d.ProcessOf(s)
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

// DeploySite asks for a deployment and goes to where it can be watched.
func (d *Pages) DeploySite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	t := deploy.Trigger{
		Cause:      deployment.ByDashboard,
		Branch:     strings.TrimSpace(q.Value("branch")),
		Commit:     strings.TrimSpace(q.Value("commit")),
		Title:      strings.TrimSpace(q.Value("title")),
		ClearCache: q.Checked("clear_cache"),
	}
	var x deployment.Deployment
	err := d.Act(ctx, q, "deployment.triggered", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Deployments.TriggerTx(ctx, tx, q.Caller.Owner, id, t)
		if err == nil {
			err = mayDeploy(q.Caller, x)
		}
		if err == nil {
			err = d.Deployments.LimitTx(ctx, tx, q.Caller, x)
		}
		return string(x.ID), err
	})
	return shell.GoTo(DeploymentPath(id, x.ID), ""), err
}

// mayDeploy is nil unless a deployment is to production and the caller may only make previews.
func mayDeploy(c account.Caller, x deployment.Deployment) error {
	if x.Target == deployment.Production {
		return c.RequireOn(account.DeploymentsWrite, x.Site)
	}
	return nil
}

// rollBack makes an earlier release live again.
func (d *Pages) rollBack(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	var x deployment.Deployment
	err := d.Act(ctx, q, "deployment.rolled_back", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Deployments.RollbackTx(ctx, tx, q.Caller.Owner, id, deployment.ParseID(q.Value("deployment")))
		return string(x.ID), err
	})
	return shell.GoTo("/sites/"+string(id), "Rolled back"), err
}

func (d *Pages) stopSite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.Act(ctx, q, "site.stopped", func(tx *db.Tx) (string, error) {
		_, err := d.Sites.StopTx(ctx, tx, q.Caller.Owner, id)
		return string(id), err
	})
	return shell.GoTo("/sites/"+string(id), "Site stopped"), err
}

func (d *Pages) startSite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.Act(ctx, q, "site.started", func(tx *db.Tx) (string, error) {
		_, err := d.Sites.StartTx(ctx, tx, q.Caller.Owner, id)
		return string(id), err
	})
	return shell.GoTo("/sites/"+string(id), "Site started"), err
}
