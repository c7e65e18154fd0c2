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

// Routes lists the routes of creating sites and watching a site.
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

// SiteHead is the data of the header of a site's pages (templates/frame_site.html). Pages' data embed it.
type SiteHead struct {
	Site site.Site
	Tab  string
	Sub  string // title of a subpage; empty for pages that the navigation lists
	URL  string // https://…, the site's own address
	Host string

	Latest    *deployment.Deployment // newest deployment; nil: none
	Live      *deployment.Deployment // live deployment if the site must be redeployed, otherwise nil
	Waiting   *deployment.Deployment // commit that was pushed and waits to be deployed; nil: none
	Visit     string                 // https://…, the site's main URL: of its primary domain, or URL
	VisitHost string                 // its host in Unicode
	Theme     Theme

	Databases  bool // whether it has databases
	OwnActions bool // the page has its own buttons instead of the site's

	Process *Process // of the live deployment's program; nil: no program
}

// Head returns the header. Templates use it when a page's own field, such as Live, hides one of the header's.
func (h SiteHead) Head() SiteHead { return h }

// Health returns the site's status, or "crashed" if its program crashed and isn't running again.
func (h SiteHead) Health() string { return HealthOf(h.Site, h.Process) }

// HealthOf returns a site's status, or "crashed" if its program crashed and isn't running again.
func HealthOf(s site.Site, p *Process) string {
	if s.Status == site.Active && p != nil && p.State == "crashed" {
		return "crashed"
	}
	return string(s.Status)
}

// Base returns the path of the site's pages.
func (h SiteHead) Base() string { return "/sites/" + string(h.Site.ID) }

// Deployable reports whether the site can be deployed from a repository. A WordPress site may have one for wp-content.
func (h SiteHead) Deployable() bool { return h.Site.Type == site.Static || h.Site.Repository != "" }

// Uploaded reports whether the site's files are uploaded.
func (h SiteHead) Uploaded() bool { return h.Site.Source() == site.SourceUpload }

// CanRedeploy reports whether the live commit can be built again for production. A commit promoted from another branch
// can't, since production is built from its own branch.
func (h SiteHead) CanRedeploy() bool {
	return h.Live != nil && h.Live.CommitHash != "" && h.Live.Status.Ended() && (h.Site.Branch == "" || h.Live.Branch == h.Site.Branch)
}

// CanDeploy reports whether a deployment can be started now.
func (h SiteHead) CanDeploy() bool { return h.Deployable() && h.Site.Status != site.Stopped }

// Head loads the header of the caller's site. Other sites are not found.
func (d *Pages) Head(ctx context.Context, q *shell.Request, tab string) (SiteHead, error) {
	s, err := d.Sites.Get(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id"))
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
		Theme: ThemeOf(s, taken[s.ID]),
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

// DeploySite starts a deployment and redirects to its page.
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

// mayDeploy refuses production deployments of callers who may only create previews.
func mayDeploy(c account.Caller, x deployment.Deployment) error {
	if x.Target == deployment.Production {
		return c.RequireOn(account.DeploymentsWrite, x.Site)
	}
	return nil
}

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
