package deployments

import (
	"context"
	"encoding/json"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type deploymentBody struct {
	ID            deployment.ID   `json:"id" example:"dep_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID        site.ID         `json:"siteId"`
	Status        string          `json:"status" enum:"pending,building,deploying,success,failed,canceled"`
	Trigger       string          `json:"trigger" enum:"provision,api,hook,dashboard,push,rollback,promote,restore"`
	Target        string          `json:"target" enum:"production,preview" doc:"A production deployment replaces the live one. A preview is served at its own address."`
	Title         *string         `json:"title"`
	Branch        *string         `json:"branch" doc:"Null until the repository's default branch is known."`
	BranchURL     *string         `json:"branchUrl" doc:"URL of the branch at the Git provider. Null if unknown."`
	PullRequest   *pullRef        `json:"pullRequest" doc:"The pull request that the deployment is a preview of."`
	CommitHash    *string         `json:"commitHash"`
	CommitURL     *string         `json:"commitUrl" doc:"URL of the commit at the Git provider. Null if unknown."`
	CommitMessage *string         `json:"commitMessage"`
	CommitAuthor  *string         `json:"commitAuthor"`
	Source        sourceBody      `json:"source" doc:"What it is made of."`
	Framework     *string         `json:"framework" doc:"The detected framework."`
	Runtime       *string         `json:"runtime"`
	Plan          json.RawMessage `json:"plan" doc:"How it was built, and the source of each setting."`
	URL           string          `json:"url" doc:"The immutable address of this deployment."`
	PreviewURL    *string         `json:"previewUrl" doc:"The stable address of the latest preview of the branch or pull request. Null for production."`
	IsCurrent     bool            `json:"isCurrent" doc:"Whether this deployment is live."`
	Queue         *queueBody      `json:"queue" doc:"Queue position of a pending deployment, and what it is waiting for."`
	Stages        []stageBody     `json:"stages"`
	Error         *string         `json:"error" doc:"Why it failed or was canceled."`
	RollbackOf    *string         `json:"rollbackOf" doc:"The deployment whose release a rollback made live again."`
	PromotedFrom  *string         `json:"promotedFrom" doc:"The preview whose release a promotion made live."`
	CreatedAt     string          `json:"createdAt" format:"date-time"`
	StartedAt     *string         `json:"startedAt" format:"date-time"`
	CompletedAt   *string         `json:"completedAt" format:"date-time"`
	Duration      *int64          `json:"duration" doc:"Whole seconds from startedAt to completedAt."`
}

type pullRef struct {
	Number int     `json:"number"`
	Title  *string `json:"title" doc:"Title at the Git provider. Null if unknown."`
	Fork   bool    `json:"fork" doc:"Whether the commit is from a fork. Builds of forks get no variables and no credential."`
	URL    *string `json:"url" doc:"URL of the pull request at the Git provider. Null if unknown."`
}

type sourceBody struct {
	Kind     string  `json:"kind" enum:"git,upload"`
	UploadID *string `json:"uploadId"`
	Files    *int64  `json:"files" doc:"Files that were uploaded."`
	Bytes    *int64  `json:"bytes" doc:"Bytes that were uploaded."`
	Digest   *string `json:"digest" doc:"Digest of the list of uploaded files."`
	Dirty    *bool   `json:"dirty" doc:"Whether there were changes beside commitHash, as the client claims."`
}

func showSource(d deployment.Deployment) sourceBody {
	if d.Source == nil {
		return sourceBody{Kind: site.SourceGit}
	}
	s := *d.Source
	return sourceBody{site.SourceUpload, contract.Some(string(d.Upload)), &s.Files, &s.Bytes, contract.Some(s.Digest), &s.Dirty}
}

type queueBody struct {
	Position int    `json:"position" doc:"1 is next in the queue."`
	Reason   string `json:"reason" enum:"site_busy,workers_busy"`
}

type stageBody struct {
	Name        string  `json:"name"`
	Status      string  `json:"status" enum:"pending,running,success,failed,skipped"`
	StartedAt   *string `json:"startedAt" format:"date-time"`
	CompletedAt *string `json:"completedAt" format:"date-time"`
}

func (a *API) deploymentRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Deployments", Summary: summary, Doc: doc, Scope: s, Noun: "deployment"}
	}
	contract.Get(a.API,
		r("/sites/{id}/deployments", "listDeployments", "List a site's deployments",
			"Newest first. Filter with `branch`, `target`, `status`, `author` and `pullRequest`.", account.DeploymentsRead),
		a.listDeployments)
	contract.Get(a.API,
		r("/deployments/{id}", "getDeployment", "Read a deployment", "The id may be spelled `dep_…` or `dpl_…`.", account.DeploymentsRead),
		a.getDeployment)
	a.logRoute(r("/deployments/{id}/logs", "getDeploymentLogs", "Read a deployment's log",
		"Up to 10,000 lines; pass `next` as `after` for the next ones. "+
			"With `Accept: text/event-stream` the log is streamed: one event per line with its number as id, comments as heartbeats, "+
			"and an event `end` with the status when the deployment has ended. `Last-Event-ID` resumes a stream. "+
			"Values of secret variables never appear.",
		account.DeploymentsRead))
	cancel := r("/deployments/{id}/cancel", "cancelDeployment", "Cancel a deployment",
		"A queued deployment is canceled immediately, a running one when its processes have ended. Canceling a production "+
			"deployment requires the scope `deployments:write`.",
		account.PreviewsWrite)
	contract.Post(a.API, cancel, a.cancelDeployment)
	contract.Post(a.API,
		r("/deployments/{id}/promote", "promoteDeployment", "Promote a preview to production",
			"Makes the release of a successful preview live immediately, without building it again.",
			account.DeploymentsWrite),
		a.promoteDeployment)
	retry := r("/deployments/{id}/retry", "retryDeployment", "Retry a deployment",
		"Builds the same commit again, for the same target. If the deployment ended before its commit was known, the latest commit "+
			"of its branch is built. Redeploying to production requires the scope `deployments:write`.",
		account.PreviewsWrite)
	retry.Limited = true
	contract.Post(a.API, retry, a.retryDeployment)
}

// deployment returns a deployment that the caller may access, by either spelling of its id.
func (a *API) deployment(ctx context.Context, c account.Caller, id string) (deployment.Deployment, error) {
	d, err := a.Deployments.Get(ctx, c.Owner, deployment.ParseID(id))
	if err != nil {
		return d, err
	}
	return d, c.RequireSite(d.Site)
}

type listDeploymentsIn struct {
	contract.ByID[site.ID]
	contract.PageIn
	Branch string `query:"branch" doc:"Only deployments of this branch."`
	Target string `query:"target" doc:"Only production or preview deployments."`
	Status string `query:"status" doc:"Only deployments with this status."`
	Author string `query:"author" maxLength:"200" doc:"Only deployments of commits by this author."`
	Pull   int    `query:"pullRequest" minimum:"0" maximum:"999999999" doc:"Only deployments of this pull request."`
}

func (a *API) listDeployments(ctx context.Context, c account.Caller, in *listDeploymentsIn) (contract.Page[deploymentBody], error) {
	p, err := in.Parse()
	if err != nil {
		return contract.Page[deploymentBody]{}, err
	}
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Page[deploymentBody]{}, err
	}
	list, total, err := a.Deployments.List(ctx, c.Owner, in.ID, deployment.Filter{
		Branch: in.Branch,
		Target: deployment.Target(in.Target),
		Status: deployment.Status(in.Status),
		Author: in.Author,
		Pull:   in.Pull,
		Page:   p.Page,
		Limit:  p.Limit,
	})
	if err != nil {
		return contract.Page[deploymentBody]{}, err
	}
	shown := contract.Each(list, showDeployment)
	return contract.Paged(shown, p, total), a.namePulls(ctx, a.DB, in.ID, shown)
}

// namePulls adds the titles of pull requests to a site's deployments.
func (a *API) namePulls(ctx context.Context, r db.Reader, id site.ID, list []deploymentBody) error {
	var numbers []int
	for _, b := range list {
		if b.PullRequest != nil {
			numbers = append(numbers, b.PullRequest.Number)
		}
	}
	titles, err := a.Git.PullTitles(ctx, r, id, numbers)
	if err != nil {
		return err
	}
	for _, b := range list {
		if b.PullRequest != nil {
			b.PullRequest.Title = contract.Some(titles[b.PullRequest.Number])
		}
	}
	return nil
}

func (a *API) getDeployment(ctx context.Context, c account.Caller, in *contract.ByID[string]) (deploymentBody, error) {
	d, err := a.deployment(ctx, c, in.ID)
	if err != nil {
		return deploymentBody{}, err
	}
	b := showDeployment(d)
	return b, a.namePulls(ctx, a.DB, d.Site, []deploymentBody{b})
}

func (a *API) cancelDeployment(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *contract.ByID[string],
) (_ deploymentBody, did audit.Event, _ error) {
	x, err := a.deployment(ctx, c, in.ID)
	if err == nil {
		err = contract.MayDeploy(c, x)
	}
	if err != nil {
		return deploymentBody{}, did, err
	}
	d, err := a.Deployments.CancelTx(ctx, tx, c.Owner, deployment.ParseID(in.ID))
	did = audit.Event{Action: "deployment.canceled", Subject: string(d.ID)}
	if err != nil {
		return deploymentBody{}, did, err
	}
	b := showDeployment(d)
	return b, did, a.namePulls(ctx, tx, d.Site, []deploymentBody{b})
}

func (a *API) retryDeployment(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[string],
) (_ contract.Triggered, did audit.Event, _ error) {
	x, err := a.deployment(ctx, c, in.ID)
	if err == nil {
		err = contract.MayDeploy(c, x)
	}
	if err != nil {
		return contract.Triggered{}, did, err
	}
	d, err := a.Deployments.RetryTx(ctx, tx, c.Owner, deployment.ParseID(in.ID), deployment.ByAPI)
	if err == nil {
		err = a.Deployments.LimitTx(ctx, tx, c, d)
	}
	did = audit.Event{Action: "deployment.retried", Subject: string(d.ID)}
	return contract.Triggered{Message: "Deployment triggered", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}

func (a *API) promoteDeployment(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[string],
) (_ contract.Triggered, did audit.Event, _ error) {
	if _, err := a.deployment(ctx, c, in.ID); err != nil {
		return contract.Triggered{}, did, err
	}
	d, err := a.Deployments.PromoteTx(ctx, tx, c.Owner, deployment.ParseID(in.ID))
	did = audit.Event{Action: "deployment.promoted", Subject: string(d.ID)}
	return contract.Triggered{Message: "Deployment promoted", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}

func showDeployment(d deployment.Deployment) deploymentBody {
	b := deploymentBody{
		ID:            d.ID,
		SiteID:        d.Site,
		Status:        string(d.Status),
		Trigger:       string(d.Cause),
		Target:        string(d.Target),
		PreviewURL:    contract.Some(d.PreviewURL),
		Title:         contract.Some(d.Title),
		Branch:        contract.Some(d.Branch),
		CommitHash:    contract.Some(d.CommitHash),
		CommitMessage: contract.Some(d.CommitMessage),
		CommitAuthor:  contract.Some(d.CommitAuthor),
		Source:        showSource(d),
		Framework:     contract.Some(d.Framework),
		Runtime:       contract.Some(d.Runtime),
		Plan:          contract.PlainText(d.Plan),
		URL:           d.URL,
		IsCurrent:     d.Current,
		Error:         contract.Some(d.Error),
		CreatedAt:     d.CreatedAt.String(),
		StartedAt:     contract.When(d.StartedAt),
		CompletedAt:   contract.When(d.CompletedAt),
	}
	b.BranchURL, b.CommitURL = contract.Some(d.BranchURL()), contract.Some(d.CommitURL())
	if d.Pull > 0 {
		b.PullRequest = &pullRef{d.Pull, nil, d.Fork, contract.Some(d.PullURL())}
	}
	switch d.Cause {
	case deployment.ByRollback:
		b.RollbackOf = contract.Some(string(d.ReleaseOf))
	case deployment.ByPromote:
		b.PromotedFrom = contract.Some(string(d.ReleaseOf))
	}
	if d.Queue != nil {
		b.Queue = &queueBody{d.Queue.Position, d.Queue.Reason}
	}
	b.Stages = contract.Each(d.Stages, func(s journal.Stage) stageBody {
		return stageBody{s.Name, s.Status, contract.When(s.StartedAt), contract.When(s.CompletedAt)}
	})
	if d.StartedAt != 0 && d.CompletedAt != 0 {
		// Computed from the displayed times, which are whole seconds.
		secs := int64(d.CompletedAt.Sub(d.StartedAt).Seconds())
		b.Duration = &secs
	}
	return b
}
