package dashboard

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
	"slipway/internal/tenant/site"
)

const deploymentsPerPage = 25

func (d *Dashboard) deploymentRoutes() []route {
	return []route{
		get("/sites/{id}/deployments", user, d.deploymentsPage),
		get("/sites/{id}/deployments/follow", user, d.deploymentsLive),
		get("/sites/{id}/deployments/{deployment}", user, d.deploymentPage),
		get("/sites/{id}/deployments/{deployment}/follow", user, d.deploymentLive),
		get("/sites/{id}/deployments/{deployment}/log", user, d.logDownload),
		get("/sites/{id}/deployments/{deployment}/log/follow", user, d.logLive),
		get("/sites/{id}/deployments/{deployment}/log/error", user, d.logError),
		post("/sites/{id}/deployments/{deployment}/cancel", user, d.cancelDeployment, nil),
		post("/sites/{id}/deployments/{deployment}/retry", user, d.retryDeployment, nil),
		post("/sites/{id}/deployments/{deployment}/promote", user, d.promoteDeployment, nil),
	}
}

func deploymentPath(s site.ID, x deployment.ID) string {
	return "/sites/" + string(s) + "/deployments/" + string(x)
}

// deploymentRow is a deployment as lists and its page show it.
type deploymentRow struct {
	deployment.Deployment
	head siteHead
}

func rowsOf(h siteHead, list []deployment.Deployment) []deploymentRow {
	out := make([]deploymentRow, len(list))
	for i, x := range list {
		out[i] = deploymentRow{x, h}
	}
	return out
}

// Path is where its page is.
func (r deploymentRow) Path() string { return deploymentPath(r.Site, r.ID) }

// Name returns the title of a deployment, or what stands in for one.
func (r deploymentRow) Name() string {
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

// By says what triggered it.
func (r deploymentRow) By() string {
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
func (r deploymentRow) Ended() bool { return r.Status.Ended() }

// Host is its own address without the scheme.
func (r deploymentRow) Host() string { return strings.TrimPrefix(r.URL, "https://") }

// VisitURL returns the address by which visitors know the site.
func (r deploymentRow) VisitURL() string { return r.head.Visit }

// VisitHost returns VisitURL without the scheme.
func (r deploymentRow) VisitHost() string { return r.head.VisitHost }

// Label names the deployment for screen readers, apart from others of the same title.
func (r deploymentRow) Label() string {
	if r.CommitHash != "" {
		return short(80, r.Name()) + " (" + short(7, r.CommitHash) + ", " + r.ID.Label() + ")"
	}
	return short(80, r.Name()) + " (" + r.ID.Label() + ")"
}

// CanRollBack reports whether its release can be made live again.
func (r deploymentRow) CanRollBack() bool {
	return r.Target == deployment.Production && r.Status == deployment.Success && r.Release != "" && !r.Current &&
		(string(r.Release) != r.head.Site.LiveRelease || r.Bundle != "") &&
		r.head.Site.Status != site.Stopped
}

// CanPromote reports whether it is a preview whose release can be made live.
func (r deploymentRow) CanPromote() bool {
	return r.Target == deployment.Preview && !r.Fork && r.Status == deployment.Success && r.Release != "" &&
		r.head.Site.Status != site.Stopped
}

// PromoteTo says what promoting it will do.
func (r deploymentRow) PromoteTo() string {
	return fmt.Sprintf(
		"%s will serve this preview of %s (%s) immediately, without a new build. Build-time environment variables are those of the preview.",
		r.head.VisitHost,
		r.Branch,
		short(7, r.CommitHash),
	)
}

// PreviewHost is the stable address of its branch without the scheme; empty for production.
func (r deploymentRow) PreviewHost() string { return strings.TrimPrefix(r.PreviewURL, "https://") }

// RedeployLabel says which commit building it once more builds.
func (r deploymentRow) RedeployLabel() string {
	verb := "Retry"
	if r.Status == deployment.Success {
		verb = "Redeploy"
	}
	if r.CommitHash == "" {
		return verb
	}
	return verb + " " + short(7, r.CommitHash)
}

// RollBackTo says what rolling back to it will do.
func (r deploymentRow) RollBackTo() string {
	what := "“" + short(80, r.Name()) + "”"
	if r.CommitHash != "" {
		what += " (" + short(7, r.CommitHash) + ")"
	}
	return fmt.Sprintf(
		"%s will serve %s, deployed %s, immediately and without a new build. Build-time environment variables are those of that deployment. "+
			"The next deployment of the production branch replaces it.",
		r.head.VisitHost,
		what,
		relative(time.Until(r.CreatedAt.Time())),
	)
}

// Waits says what a pending one waits for.
func (r deploymentRow) Waits() string {
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
func (r deploymentRow) PlanView() *planView {
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
func (r deploymentRow) StageName(s string) string {
	if w, ok := stageNames[s]; ok {
		return w
	}
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

type deploymentsData struct {
	siteHead
	Rows  []deploymentRow
	Pages pages
	Open  bool // the form for a deployment of one's own is open
	Live  string

	Filter   deploymentFilter
	Statuses []deployment.Status
}

// deploymentFilter holds the filters of the list. Unknown values are ignored.
type deploymentFilter struct{ Branch, Target, Status, Author, Pull string }

func readDeploymentFilter(q *request) deploymentFilter {
	f := deploymentFilter{
		short(255, clean(strings.TrimSpace(q.query("branch")))),
		q.query("target"),
		q.query("status"),
		short(200, clean(strings.TrimSpace(q.query("author")))),
		"",
	}
	if n, err := strconv.Atoi(q.query("pull")); err == nil && n > 0 {
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
	return link(
		path, "branch", f.Branch, "target", f.Target, "status", f.Status, "author", f.Author, "pull", f.Pull, "page",
		strconv.Itoa(page),
	)
}

// Any reports whether the list is narrowed at all.
func (f deploymentFilter) Any() bool { return f != deploymentFilter{} }

func (d *Dashboard) deploymentsPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.deploymentsData(ctx, q)
	return page("site_deployments", "Deployments of "+data.Site.Name, data), err
}

// deploymentsLive sends the list again whenever it changes.
func (d *Dashboard) deploymentsLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "deployments"); err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: 3 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.deploymentsData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_deployments", "deployments", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) deploymentsData(ctx context.Context, q *request) (deploymentsData, error) {
	head, err := d.head(ctx, q, "deployments")
	if err != nil {
		return deploymentsData{}, err
	}
	n, f := pageNumber(q), readDeploymentFilter(q)
	pull, _ := strconv.Atoi(f.Pull) // empty: none
	list, total, err := d.Deployments.List(ctx, q.caller.Owner, head.Site.ID, deployment.Filter{
		Branch: f.Branch,
		Target: deployment.Target(f.Target),
		Status: deployment.Status(f.Status),
		Author: f.Author,
		Pull:   pull,
		Page:   n,
		Limit:  deploymentsPerPage,
	})
	if err != nil {
		return deploymentsData{}, err
	}
	base := head.Base() + "/deployments"
	return deploymentsData{
		siteHead: head,
		Rows:     rowsOf(head, list),
		Pages:    turn(n, total, deploymentsPerPage, func(p int) string { return f.link(base, p) }),
		Open:     q.problem != nil,
		Live:     f.link(base+"/follow", n),
		Filter:   f,
		Statuses: deployment.Statuses,
	}, nil
}

// pageNumber is which page of a list is asked for; what is no number is the first.
func pageNumber(q *request) int {
	n, _ := strconv.Atoi(q.query("page"))
	return max(1, min(n, 100_000))
}

type deploymentData struct {
	siteHead
	Dep deploymentRow
	Log logView
}

// Refreshing reports whether the page changes by itself.
func (x deploymentData) Refreshing() bool { return !x.Dep.Ended() }

// deployment loads the asker's own deployment of the site in the address.
func (d *Dashboard) deployment(ctx context.Context, q *request) (siteHead, deploymentRow, error) {
	head, err := d.head(ctx, q, "deployments")
	if err != nil {
		return head, deploymentRow{}, err
	}
	x, err := d.Deployments.Get(ctx, q.caller.Owner, deployment.ParseID(q.PathValue("deployment")))
	if err == nil && x.Site != head.Site.ID {
		err = fault.Missing("deployment")
	}
	return head, deploymentRow{x, head}, err
}

func (d *Dashboard) deploymentPage(ctx context.Context, q *request) (answer, error) {
	head, x, err := d.deployment(ctx, q)
	if err != nil {
		return answer{}, err
	}
	log, err := d.logView(ctx, q, x)
	return page("site_deployment", x.Name(), deploymentData{head, x, log}), err
}

// deploymentLive sends the part over the log again whenever it changes.
func (d *Dashboard) deploymentLive(ctx context.Context, q *request) (answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return answer{}, err
	}
	wake, stop := d.Deployments.Listen(x.ID)
	return answer{live: live{wake: wake, stop: stop, poll: 2 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		head, x, err := d.deployment(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_deployment", "deployment", deploymentData{head, x, logView{}})
		return html, x.Ended(), err
	}}}, nil
}

func (d *Dashboard) cancelDeployment(ctx context.Context, q *request) (answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return answer{}, err
	}
	err = d.act(ctx, q, "deployment.canceled", func(tx *db.Tx) (string, error) {
		_, err := d.Deployments.CancelTx(ctx, tx, q.caller.Owner, x.ID)
		return string(x.ID), err
	})
	return goTo(x.Path(), "Canceling the deployment"), err
}

func (d *Dashboard) retryDeployment(ctx context.Context, q *request) (answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var again deployment.Deployment
	err = d.act(ctx, q, "deployment.retried", func(tx *db.Tx) (_ string, err error) {
		again, err = d.Deployments.RetryTx(ctx, tx, q.caller.Owner, x.ID, deployment.ByDashboard)
		return string(again.ID), err
	})
	return goTo(deploymentPath(x.Site, again.ID), ""), err
}

// promoteDeployment makes a preview's release live.
func (d *Dashboard) promoteDeployment(ctx context.Context, q *request) (answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var live deployment.Deployment
	err = d.act(ctx, q, "deployment.promoted", func(tx *db.Tx) (_ string, err error) {
		live, err = d.Deployments.PromoteTx(ctx, tx, q.caller.Owner, x.ID)
		return string(live.ID), err
	})
	return goTo(deploymentPath(x.Site, live.ID), "Promoted to production"), err
}
