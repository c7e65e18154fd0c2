package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

const DeploymentsPerPage = 25

func (d *Pages) deploymentRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/deployments", shell.User, d.deploymentsPage).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/follow", shell.User, d.deploymentsLive).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/{deployment}", shell.User, d.deploymentPage).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/{deployment}/follow", shell.User, d.deploymentLive).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/{deployment}/log", shell.User, d.logDownload).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/{deployment}/log/follow", shell.User, d.logLive).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/deployments/{deployment}/log/error", shell.User, d.logError).Takes(account.DeploymentsRead),
		shell.Post("/sites/{id}/deployments/{deployment}/cancel", shell.User, d.cancelDeployment, nil).Takes(account.PreviewsWrite),
		shell.Post("/sites/{id}/deployments/{deployment}/retry", shell.User, d.retryDeployment, nil).Takes(account.PreviewsWrite),
		shell.Post("/sites/{id}/deployments/{deployment}/promote", shell.User, d.promoteDeployment, nil).Takes(account.DeploymentsWrite),
	}
}

func DeploymentPath(s site.ID, x deployment.ID) string {
	return "/sites/" + string(s) + "/deployments/" + string(x)
}

// DeploymentRow is a deployment as lists and its page show it.
type DeploymentRow struct {
	deployment.Deployment
	head SiteHead
}

// Row returns a deployment of the site with this header.
func Row(h SiteHead, x deployment.Deployment) *DeploymentRow { return &DeploymentRow{x, h} }

// RowsOf returns deployments of the site with this header.
func RowsOf(h SiteHead, list []deployment.Deployment) []DeploymentRow {
	out := make([]DeploymentRow, len(list))
	for i, x := range list {
		out[i] = DeploymentRow{x, h}
	}
	return out
}

// Path is where its page is.
func (r DeploymentRow) Path() string { return DeploymentPath(r.Site, r.ID) }

// Name returns the title of a deployment, or what stands in for one.
func (r DeploymentRow) Name() string {
	line, _, _ := strings.Cut(r.CommitMessage, "\n")
	switch {
	case r.Title != "":
		return r.Title
	case line != "":
		return line
	case r.Cause == deployment.ByProvision:
		return "First deployment"
	}
	return "Deployment " + r.ID.Label()
}

// State is how the deployment is said to be: its status, or "skipped" where a pushed commit was not to be deployed.
func (r DeploymentRow) State() string {
	if r.Skipped() != "" {
		return "skipped"
	}
	return string(r.Status)
}

// By says what triggered it.
func (r DeploymentRow) By() string {
	switch r.Cause {
	case deployment.ByProvision:
		return "created with the site"
	case deployment.ByAPI:
		return "by API"
	case deployment.ByHook:
		return "by deploy hook"
	case deployment.ByDashboard:
		return "from the dashboard"
	case deployment.ByPush:
		return "by push"
	case deployment.ByRollback:
		return "by rollback"
	case deployment.ByPromote:
		return "by promotion"
	case deployment.ByRestore:
		return "by restoring a backup"
	}
	return string(r.Cause)
}

// Ended reports whether nothing will change any more.
func (r DeploymentRow) Ended() bool { return r.Status.Ended() }

// Host is its own address without the scheme.
func (r DeploymentRow) Host() string { return strings.TrimPrefix(r.URL, "https://") }

// VisitURL returns the address by which visitors know the site.
func (r DeploymentRow) VisitURL() string { return r.head.Visit }

// VisitHost returns VisitURL without the scheme.
func (r DeploymentRow) VisitHost() string { return r.head.VisitHost }

// Label names the deployment for screen readers, apart from others of the same title.
func (r DeploymentRow) Label() string {
	if r.CommitHash != "" {
		return shell.Short(80, r.Name()) + " (" + shell.Short(7, r.CommitHash) + ", " + r.ID.Label() + ")"
	}
	return shell.Short(80, r.Name()) + " (" + r.ID.Label() + ")"
}

// CanRollBack reports whether its release can be made live again.
func (r DeploymentRow) CanRollBack() bool {
	return r.Target == deployment.Production && r.Status == deployment.Success && r.Release != "" && !r.Current &&
		(r.Release != r.head.Site.LiveRelease || r.Bundle != "") &&
		r.head.Site.Status != site.Stopped
}

// CanPromote reports whether it is a preview whose release can be made live.
func (r DeploymentRow) CanPromote() bool {
	return r.Target == deployment.Preview && !r.Fork && r.Status == deployment.Success && r.Release != "" &&
		r.head.Site.Status != site.Stopped
}

// PromoteTo says what promoting it will do.
func (r DeploymentRow) PromoteTo() string {
	return fmt.Sprintf(
		"%s will serve this preview of %s (%s) immediately, without a new build. Build-time environment variables are those of the preview.",
		r.head.VisitHost,
		r.Branch,
		shell.Short(7, r.CommitHash),
	)
}

// PreviewHost is the stable address of its branch without the scheme; empty for production.
func (r DeploymentRow) PreviewHost() string { return strings.TrimPrefix(r.PreviewURL, "https://") }

// RedeployLabel says which commit building it once more builds.
func (r DeploymentRow) RedeployLabel() string {
	verb := "Retry"
	switch {
	case r.Status == deployment.Success:
		verb = "Redeploy"
	case r.Skipped() != "":
		verb = "Deploy"
	}
	if r.CommitHash == "" {
		return verb
	}
	return verb + " " + shell.Short(7, r.CommitHash)
}

// RollBackTo says what rolling back to it will do.
func (r DeploymentRow) RollBackTo() string {
	what := "“" + shell.Short(80, r.Name()) + "”"
	if r.CommitHash != "" {
		what += " (" + shell.Short(7, r.CommitHash) + ")"
	}
	return fmt.Sprintf(
		"%s will serve %s, deployed %s, immediately and without a new build. Build-time environment variables are those of that deployment. "+
			"The next deployment of the production branch replaces it.",
		r.head.VisitHost,
		what,
		shell.Relative(time.Until(r.CreatedAt.Time())),
	)
}

// Waits says what a pending one waits for.
func (r DeploymentRow) Waits() string {
	if r.Queue == nil {
		return ""
	}
	why := "waiting for a build slot"
	if r.Queue.Reason == "site_busy" {
		why = "waiting for the previous deployment to finish"
	}
	if r.Queue.Position <= 1 {
		return "Next in the queue, " + why
	}
	return fmt.Sprintf("Number %d in the queue, %s", r.Queue.Position, why)
}

// PlanView returns the build plan; nil before it is known.
func (r DeploymentRow) PlanView() *planView {
	if len(r.Plan) == 0 {
		return nil
	}
	var p framework.Plan
	if json.Unmarshal(r.Plan, &p) != nil {
		return nil // of another version of the program
	}
	v := viewOf(p)
	return &v
}

// stageNames are the stages in people's words.
var stageNames = map[string]string{
	"queue": "Queue", "fetch": "Fetch", "prepare": "Prepare", "install": "Install", "build": "Build",
	"publish": "Publish", "activate": "Activate", "start": "Start",
}

// StageName is a stage in people's words.
func (r DeploymentRow) StageName(s string) string {
	if w, ok := stageNames[s]; ok {
		return w
	}
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

type deploymentsData struct {
	SiteHead
	Rows  []DeploymentRow
	Pages shell.Pages
	Open  bool // the form for a deployment of one's own is open
	Live  string

	Filter   deploymentFilter
	Statuses []deployment.Status
}

// deploymentFilter holds the filters of the list. Unknown values are ignored.
type deploymentFilter struct{ Branch, Target, Status, Author, Pull string }

func readDeploymentFilter(q *shell.Request) deploymentFilter {
	f := deploymentFilter{
		shell.Short(255, shell.Clean(strings.TrimSpace(q.Query("branch")))),
		q.Query("target"),
		q.Query("status"),
		shell.Short(200, shell.Clean(strings.TrimSpace(q.Query("author")))),
		"",
	}
	if n, err := strconv.Atoi(q.Query("pull")); err == nil && n > 0 {
		f.Pull = strconv.Itoa(n)
	}
	if !slices.Contains(deployment.Targets, deployment.Target(f.Target)) {
		f.Target = ""
	}
	if !slices.Contains(deployment.Statuses, deployment.Status(f.Status)) {
		f.Status = ""
	}
	return f
}

func (f deploymentFilter) link(path string, page int) string {
	return shell.Link(
		path, "branch", f.Branch, "target", f.Target, "status", f.Status, "author", f.Author, "pull", f.Pull, "page",
		strconv.Itoa(page),
	)
}

// Any reports whether the list is narrowed at all.
func (f deploymentFilter) Any() bool { return f != deploymentFilter{} }

// RollBackTo returns the newest deployment of the page that can be rolled back to; empty: there is none.
func (d deploymentsData) RollBackTo() deployment.ID {
	for _, r := range d.Rows {
		if r.CanRollBack() {
			return r.ID
		}
	}
	return ""
}

func (d *Pages) deploymentsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.deploymentsData(ctx, q)
	return shell.Page("site_deployments", "Deployments of "+data.Site.Name, data), err
}

// deploymentsLive sends the list again whenever it changes.
func (d *Pages) deploymentsLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "deployments"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.deploymentsData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_deployments", "deployments", data)
		return html, false, err
	}), nil
}

func (d *Pages) deploymentsData(ctx context.Context, q *shell.Request) (deploymentsData, error) {
	head, err := d.Head(ctx, q, "deployments")
	if err != nil {
		return deploymentsData{}, err
	}
	n, f := shell.PageNumber(q), readDeploymentFilter(q)
	pull, _ := strconv.Atoi(f.Pull) // empty: none
	list, total, err := d.Deployments.List(ctx, q.Caller.Owner, head.Site.ID, deployment.Filter{
		Branch: f.Branch,
		Target: deployment.Target(f.Target),
		Status: deployment.Status(f.Status),
		Author: f.Author,
		Pull:   pull,
		Page:   n,
		Limit:  DeploymentsPerPage,
	})
	if err != nil {
		return deploymentsData{}, err
	}
	base := head.Base() + "/deployments"
	return deploymentsData{
		SiteHead: head,
		Rows:     RowsOf(head, list),
		Pages:    shell.Turn(n, total, DeploymentsPerPage, func(p int) string { return f.link(base, p) }),
		Open:     q.Problem != nil,
		Live:     f.link(base+"/follow", n),
		Filter:   f,
		Statuses: deployment.Statuses,
	}, nil
}

type deploymentData struct {
	SiteHead
	Dep DeploymentRow
	Log logView
}

// Progress is how this deployment goes, for the icon of the browser's tab.
func (x deploymentData) Progress() string {
	switch {
	case !x.Dep.Ended():
		return "busy"
	case x.Dep.Status == deployment.Failed:
		return "bad"
	case x.Dep.Status == deployment.Success:
		return "ok"
	}
	return ""
}

// Title names the deployment and how it goes: people look at other tabs meanwhile.
func (x deploymentData) Title() string {
	return shell.Word("deployment", x.Dep.State()) + ": " + x.Dep.Name()
}

// Refreshing reports whether the page changes by itself.
func (x deploymentData) Refreshing() bool { return !x.Dep.Ended() }

// deployment loads the asker's own deployment of the site in the address.
func (d *Pages) deployment(ctx context.Context, q *shell.Request) (SiteHead, DeploymentRow, error) {
	head, err := d.Head(ctx, q, "deployments")
	if err != nil {
		return head, DeploymentRow{}, err
	}
	x, err := d.Deployments.Get(ctx, q.Caller.Owner, deployment.ParseID(q.PathValue("deployment")))
	if err == nil && x.Site != head.Site.ID {
		err = fault.Missing("deployment")
	}
	return head, DeploymentRow{x, head}, err
}

func (d *Pages) deploymentPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	head.Sub, head.OwnActions = x.Name(), true
	log, err := d.logView(ctx, q, x)
	data := deploymentData{head, x, log}
	return shell.Page("site_deployment", data.Title(), data), err
}

// deploymentLive sends the part over the log again whenever it changes.
func (d *Pages) deploymentLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, _, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(2*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		head, x, err := d.deployment(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_deployment", "deployment", deploymentData{head, x, logView{}})
		return html, x.Ended(), err
	}), nil
}

func (d *Pages) cancelDeployment(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	if err := mayDeploy(q.Caller, x.Deployment); err != nil {
		return shell.Answer{}, err
	}
	err = d.Act(ctx, q, "deployment.canceled", func(tx *db.Tx) (string, error) {
		_, err := d.Deployments.CancelTx(ctx, tx, q.Caller.Owner, x.ID)
		return string(x.ID), err
	})
	return shell.GoTo(x.Path(), "Canceling the deployment"), err
}

func (d *Pages) retryDeployment(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	if err := mayDeploy(q.Caller, x.Deployment); err != nil {
		return shell.Answer{}, err
	}
	var again deployment.Deployment
	err = d.Act(ctx, q, "deployment.retried", func(tx *db.Tx) (_ string, err error) {
		again, err = d.Deployments.RetryTx(ctx, tx, q.Caller.Owner, x.ID, deployment.ByDashboard)
		if err == nil {
			err = d.Deployments.LimitTx(ctx, tx, q.Caller, again)
		}
		return string(again.ID), err
	})
	return shell.GoTo(DeploymentPath(x.Site, again.ID), ""), err
}

// promoteDeployment makes a preview's release live.
func (d *Pages) promoteDeployment(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var live deployment.Deployment
	err = d.Act(ctx, q, "deployment.promoted", func(tx *db.Tx) (_ string, err error) {
		live, err = d.Deployments.PromoteTx(ctx, tx, q.Caller.Owner, x.ID)
		return string(live.ID), err
	})
	return shell.GoTo(DeploymentPath(x.Site, live.ID), "Promoted to production"), err
}
