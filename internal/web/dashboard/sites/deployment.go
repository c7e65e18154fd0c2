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

// DeploymentRow is a deployment with the header of its site.
type DeploymentRow struct {
	deployment.Deployment
	head SiteHead
}

// Row returns a DeploymentRow.
func Row(h SiteHead, x deployment.Deployment) *DeploymentRow { return &DeploymentRow{x, h} }

// RowsOf returns DeploymentRows of one site.
func RowsOf(h SiteHead, list []deployment.Deployment) []DeploymentRow {
	out := make([]DeploymentRow, len(list))
	for i, x := range list {
		out[i] = DeploymentRow{x, h}
	}
	return out
}

// Path returns the path of the deployment's page.
func (r DeploymentRow) Path() string { return DeploymentPath(r.Site, r.ID) }

// Name returns the deployment's title, or a substitute.
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

// State returns the displayed state: the status, or "skipped" for a commit that wasn't to be deployed.
func (r DeploymentRow) State() string {
	if r.Skipped() != "" {
		return "skipped"
	}
	return string(r.Status)
}

// By describes what triggered the deployment.
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

// Ended reports whether the deployment has reached its final status.
func (r DeploymentRow) Ended() bool { return r.Status.Ended() }

// Host returns the deployment's URL without its scheme.
func (r DeploymentRow) Host() string { return strings.TrimPrefix(r.URL, "https://") }

// VisitURL returns the site's main URL.
func (r DeploymentRow) VisitURL() string { return r.head.Visit }

// VisitHost returns the host of VisitURL.
func (r DeploymentRow) VisitHost() string { return r.head.VisitHost }

// Label identifies the deployment for screen readers among others with the same title.
func (r DeploymentRow) Label() string {
	if r.CommitHash != "" {
		return shell.Short(80, r.Name()) + " (" + shell.Short(7, r.CommitHash) + ", " + r.ID.Label() + ")"
	}
	return shell.Short(80, r.Name()) + " (" + r.ID.Label() + ")"
}

// CanRollBack reports whether the release can be made live again.
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

// PromoteTo describes the effect of promoting it.
func (r DeploymentRow) PromoteTo() string {
	return fmt.Sprintf(
		"%s will serve this preview of %s (%s) immediately, without a new build. Build-time environment variables are those of the preview.",
		r.head.VisitHost,
		r.Branch,
		shell.Short(7, r.CommitHash),
	)
}

// PreviewHost returns the host of its branch's preview address, or "" for production.
func (r DeploymentRow) PreviewHost() string { return strings.TrimPrefix(r.PreviewURL, "https://") }

// RedeployLabel says which commit a redeployment builds.
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

// RollBackTo describes the effect of rolling back to it.
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

// Waits describes what a pending deployment waits for.
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

// PlanView returns the build plan, or nil until it is known.
func (r DeploymentRow) PlanView() *planView {
	if len(r.Plan) == 0 {
		return nil
	}
	var p framework.Plan
	if json.Unmarshal(r.Plan, &p) != nil {
		return nil // stored by another version
	}
	v := viewOf(p)
	return &v
}

// stageNames holds the stages' display names.
var stageNames = map[string]string{
	"queue": "Queue", "fetch": "Fetch", "prepare": "Prepare", "install": "Install", "build": "Build",
	"publish": "Publish", "activate": "Activate", "start": "Start",
}

// StageName returns a stage's display name.
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
	Open  bool // whether the form of a manual deployment is open
	Live  string

	Filter   deploymentFilter
	Statuses []deployment.Status
}

// deploymentFilter is the filter of the list. Unknown values are ignored.
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
	return shell.Link(path, "branch", f.Branch, "target", f.Target, "status", f.Status, "author", f.Author, "pull",
		f.Pull, "page", strconv.Itoa(page))
}

// Any reports whether the list is filtered.
func (f deploymentFilter) Any() bool { return f != deploymentFilter{} }

// RollBackTo returns the newest deployment on the page that can be rolled back to, or "".
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

// deploymentsLive updates the list when it changes.
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
	pull, _ := strconv.Atoi(f.Pull) // 0 if empty
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

// Progress returns the deployment's progress for the favicon.
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

// Title returns the state and name for the tab's title, which shows progress while people use other tabs.
func (x deploymentData) Title() string {
	return shell.Word("deployment", x.Dep.State()) + ": " + x.Dep.Name()
}

// Refreshing reports whether the page updates itself.
func (x deploymentData) Refreshing() bool { return !x.Dep.Ended() }

// deployment loads the deployment in the URL if it belongs to the caller's site.
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

// deploymentLive updates the part above the log when it changes.
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
