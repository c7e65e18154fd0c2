package git

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"reflect"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/pushes"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/idempotency"
)

type gitBody struct {
	HookURL     *string  `json:"hookUrl" doc:"URL to enter as a webhook at the Git provider. Contains a secret. Null if there is no Git hook."`
	Provider    *string  `json:"provider" doc:"The Git provider of the last call: github, gitlab, gitea, bitbucket or bitbucket_server. Null if there was none."`
	Connected   bool     `json:"connected" doc:"Whether the Git provider has called since the hook was created."`
	AutoDeploy  bool     `json:"autoDeploy" doc:"Whether pushes deploy."`
	Previews    string   `json:"previews" enum:"off,branches,pull_requests,all" doc:"What gets previews: nothing, pushed branches, open pull requests, or both. Off for WordPress sites."`
	Watch       []string `json:"watch" doc:"File patterns. Pushes that change no matching file are skipped. If empty, build.watch in the live deployment's slipway.toml applies, otherwise the root directory."`
	PreviewDays int      `json:"previewDays" doc:"Days without a deployment after which the preview address of a branch or pull request is removed. 0: never."`
	Tags        string   `json:"tags" enum:"ignore,preview" doc:"Whether a pushed tag gets a preview."`
	Deleted     string   `json:"deletedBranches" enum:"end,keep" doc:"Whether the preview address of a deleted branch is removed."`
	Forks       string   `json:"forks" enum:"approval,ignore" doc:"Whether members can approve previews of pull requests from forks. These previews get no variables, databases or stored files."`
	Database    string   `json:"previewDatabase" enum:"none,empty,copy" doc:"Databases of a preview, one for each database of the site, under the same variables: none, empty, or a copy of production's made at the preview's first start. They are deleted with the preview. Pull requests from forks never get any."`
	Connection  *string  `json:"connectionId" doc:"The connected account that reads the repository, unless the site has its own credential, and reports deployments to the Git provider."`
	Report      bool     `json:"report" doc:"Whether deployments are reported to the Git provider: as a commit status, a deployment record, and one comment on the pull request."`
	Protection  string   `json:"previewProtection" enum:"none,password,members" doc:"Protection of preview and deployment URLs: none, the site's password, or a member's sign-in. The serving settings can protect all addresses."`
	PollMinutes int      `json:"pollMinutes" doc:"Minutes between polls for new commits, for a Git provider that can't reach this server. 0: never."`
	PolledAt    *string  `json:"polledAt" format:"date-time"`
	PollError   *string  `json:"pollError" doc:"Error of the last poll."`
	LastEventAt *string  `json:"lastEventAt" format:"date-time"`
	LastEvent   *string  `json:"lastEvent" doc:"The last event from the Git provider and its result."`

	Workflows *workflowsBody `json:"workflows" doc:"The workflows of GitHub Actions that may deploy the site without a stored secret. Null: none."`
}

type workflowsBody struct {
	Repository  string `json:"repository" doc:"The GitHub repository: owner/name."`
	Branch      string `json:"branch" doc:"The branch whose runs may deploy to production. Other runs may deploy previews."`
	Environment string `json:"environment" doc:"The GitHub environment in which runs may deploy to production. Empty: any."`
}

func (a *API) gitRoutes() {
	a.AddHook(gitCalls{a})
	a.AddHook(appCalls{a})
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Git", Summary: summary, Doc: doc, Scope: s, Noun: "Git settings", Private: true}
	}
	contract.Get(a.API,
		r("/sites/{id}/git", "getGit", "Read a site's Git settings",
			"Includes the hook's URL, which contains a secret and isn't shown to apps.", account.DeploymentsWrite),
		a.getGit)
	contract.ChangePrepared(a.API, http.MethodPatch,
		r("/sites/{id}/git", "updateGit", "Change a site's Git settings",
			"Takes effect on the next push; `previewProtection` within a second.", account.DeploymentsWrite),
		a.hashPreviewPassword, a.updateGit)
	create := r("/sites/{id}/git/hook", "createGitHook", "Create a Git hook",
		"Returns a URL and a secret for the Git provider's webhook settings. The secret is shown only once. The site's previous "+
			"hook stops working. Apps can't create it: it would outlive their access.",
		account.DeploymentsWrite)
	create.Status, create.NoApps = http.StatusCreated, true
	contract.Post(a.API, create, a.createGitHook)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/git/events",
		ID:      "listGitEvents",
		Tag:     "Git",
		Summary: "List events of a site's repository",
		Noun:    "event",
		Scope:   account.DeploymentsRead,
		Doc:     "The latest 50 events, newest first: webhook calls of the Git provider and changes found by polling, with their results.",
	}, a.listGitEvents)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/pulls",
		ID:      "listPulls",
		Tag:     "Git",
		Summary: "List pull requests",
		Noun:    "pull request",
		Scope:   account.DeploymentsRead,
		Doc: "As last reported by the Git provider, open ones first. Those that are `waiting` are from forks and are built " +
			"once a member approves their commit.",
	}, a.listPulls)
	contract.Post(a.API, contract.Route{
		Path:    "/sites/{id}/pulls/{number}/approve",
		ID:      "approvePull",
		Tag:     "Git",
		Summary: "Approve a pull request from a fork",
		Noun:    "pull request",
		Scope:   account.DeploymentsWrite,
		Limited: true,
		Doc: "Builds exactly this commit as a preview, without the site's variables, credential and caches. Each later commit " +
			"needs another approval.",
	}, a.approvePull)
	contract.PostHook(a.API, contract.Route{
		Path: "/hooks/git/{hook}", ID: "callGitHook", Tag: "Git", Summary: "Report a push", Noun: "Git hook", Hook: true,
		Doc: "Called by GitHub, GitLab, Gitea, Forgejo, Bitbucket and Bitbucket Server. The body is at most 1 MiB, and signed with " +
			"the hook's secret as the provider does. " +
			"A push to the production branch deploys exactly the pushed commit; a push to another branch deploys a preview if the site's " +
			"settings allow it. Events that deploy nothing are answered with `skipped` and the reason. Repeated deliveries are processed once.",
	}, reflect.TypeFor[calledGitHook](), a.callGitHook)
	contract.PostHook(a.API, contract.Route{
		Path:    "/hooks/github/{hook}",
		ID:      "callGitHubApp",
		Tag:     "Git",
		Summary: "Report an event of a GitHub App",
		Noun:    "GitHub App",
		Hook:    true,
		Doc: "Called by GitHub: the webhook of the operator's GitHub App, signed with its secret. A push or pull request has " +
			"the effect of a call to the Git hook of each site that reads the repository with an account connected through the app.",
	}, reflect.TypeFor[calledGitHubApp](), a.answerGitHubApp)
}

func (a *API) showGit(s pushes.Settings) gitBody {
	b := gitBody{
		Provider:    contract.Some(string(s.Provider)),
		Connected:   s.LastEventAt != 0,
		AutoDeploy:  s.AutoDeploy,
		Previews:    string(s.Previews),
		Watch:       append([]string{}, s.Watch...),
		PreviewDays: s.PreviewDays,
		Tags:        s.Tags,
		Deleted:     s.DeletedBranches,
		Forks:       s.Forks,
		Database:    s.PreviewDatabase,
		PollMinutes: s.PollMinutes,
		PolledAt:    contract.When(s.PolledAt),
		PollError:   contract.Some(s.PollError),
		LastEventAt: contract.When(s.LastEventAt),
		LastEvent:   contract.Some(s.LastEvent),
	}
	if w := s.Workflows; w.Repository != "" {
		b.Workflows = &workflowsBody{w.Repository, w.Branch, w.Environment}
	}
	if s.Hook != "" {
		b.HookURL = contract.Some(a.gitHookURL(s.Hook))
	}
	return b
}

func (a *API) gitHookURL(id pushes.HookID) string {
	return a.APIURL + "/hooks/git/" + url.PathEscape(id.Reveal())
}

func (a *API) getGit(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (gitBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return gitBody{}, err
	}
	s, err := a.Git.Get(ctx, a.DB, c.Owner, in.ID)
	if err != nil {
		return gitBody{}, err
	}
	return a.showGitWith(ctx, a.DB, c, s)
}

// showGitWith is showGit with the site's connection.
func (a *API) showGitWith(ctx context.Context, r db.Reader, c account.Caller, s pushes.Settings) (gitBody, error) {
	b := a.showGit(s)
	if oauth.IsApp(c) {
		b.HookURL = nil
	}
	u, err := a.Connections.UseOf(ctx, r, s.Site)
	if err != nil {
		return b, err
	}
	b.Connection, b.Report = contract.Some(string(u.Connection)), u.Report && u.Connection != ""
	v, err := a.Sites.ServingOf(ctx, r, s.Site)
	b.Protection = "none"
	switch {
	case v.SignIn != "none":
		b.Protection = "members"
	case v.Protection != "none":
		b.Protection = "password"
	}
	return b, err
}

type updateGitIn struct {
	contract.ByID[site.ID]
	Body struct {
		AutoDeploy *bool    `json:"autoDeploy,omitempty"`
		Previews   *string  `json:"previews,omitempty" enum:"off,branches,pull_requests,all" doc:"Must be off for WordPress sites, which have no previews."`
		Watch      []string `json:"watch,omitempty" maxItems:"50" doc:"At most 50 patterns such as src/**, docs or !**/*.md, relative to the repository's root; the last matching pattern wins. If empty, slipway.toml or the root directory decides." example:"[\"apps/web/**\", \"!**/*.md\"]"`

		PreviewDays *int    `json:"previewDays,omitempty" minimum:"0" maximum:"365"`
		Tags        *string `json:"tags,omitempty" enum:"ignore,preview"`
		Deleted     *string `json:"deletedBranches,omitempty" enum:"end,keep"`
		Forks       *string `json:"forks,omitempty" enum:"approval,ignore"`
		Database    *string `json:"previewDatabase,omitempty" enum:"none,empty,copy" doc:"Applies to databases created from now on. With none, previews get no database at their next start."`
		Connection  *string `json:"connectionId,omitempty" doc:"Id of a connected account at the repository's Git provider. An empty string removes it. Choosing another one takes access to all sites."`
		Report      *bool   `json:"report,omitempty"`
		PollMinutes *int    `json:"pollMinutes,omitempty" minimum:"0" maximum:"60"`
		Protection  *string `json:"previewProtection,omitempty" enum:"none,password,members"`
		Password    *string `json:"previewPassword,omitempty" minLength:"8" maxLength:"200" writeOnly:"true" doc:"The site's password for visitors, 8 to 200 characters."`

		Workflows *struct {
			Repository  string `json:"repository" doc:"owner/name. Empty: no workflow may deploy the site."`
			Branch      string `json:"branch,omitempty" maxLength:"255" doc:"The branch whose runs may deploy to production. Default: the site's production branch, or main."`
			Environment string `json:"environment,omitempty" maxLength:"255" doc:"The GitHub environment in which runs may deploy to production. Default: any."`
		} `json:"workflows,omitempty" doc:"Lets workflows of a GitHub repository get API keys for this site that expire after an hour. Takes a key with all scopes that doesn't expire."`
	}
}

// hashPreviewPassword runs before the transaction because hashing is slow.
func (a *API) hashPreviewPassword(ctx context.Context, c account.Caller, in *updateGitIn) (string, error) {
	if in.Body.Password == nil {
		return "", nil
	}
	return a.Sites.PasswordHash(ctx, c.Owner, in.ID, *in.Body.Password)
}

// protectPreviews changes the protection of previews.
func (a *API) protectPreviews(ctx context.Context, tx *db.Tx, c account.Caller, id site.ID, how, password *string, hash string) error {
	v, err := a.Sites.ServingOf(ctx, tx, id)
	if err != nil {
		return err
	}
	p := site.ServingPatch{Password: password}
	if how != nil {
		if v.Protection == "all" || v.SignIn == "all" {
			return fault.New(fault.Conflict, "all_protected", "All addresses of the site are protected",
				"change protection and signIn in PATCH /sites/{id}/serving")
		}
		word := map[bool]string{true: "previews", false: "none"}
		protection, signIn := word[*how == "password"], word[*how == "members"]
		p.Protection, p.SignIn = &protection, &signIn
	}
	_, err = a.Sites.UpdateServingTx(ctx, tx, c.Owner, id, p, hash)
	return err
}

func (a *API) updateGit(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateGitIn,
	hash string,
) (_ gitBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return gitBody{}, did, err
	}
	now, err := a.Git.Get(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return gitBody{}, did, err
	}
	shown, err := a.showGitWith(ctx, tx, c, now)
	if err == nil {
		err = contract.CheckPatch(ctx, "Git settings", []string{
			"autoDeploy", "previews", "watch", "previewDays", "tags", "deletedBranches", "forks", "previewDatabase",
			"pollMinutes", "connectionId", "report", "previewProtection", "previewPassword", "workflows",
		}, shown, nil)
	}
	if err != nil {
		return gitBody{}, did, err
	}
	p := pushes.Patch{
		AutoDeploy:      in.Body.AutoDeploy,
		Watch:           in.Body.Watch,
		PreviewDays:     in.Body.PreviewDays,
		Tags:            in.Body.Tags,
		DeletedBranches: in.Body.Deleted,
		Forks:           in.Body.Forks,
		PreviewDatabase: in.Body.Database,
		PollMinutes:     in.Body.PollMinutes,
	}
	if in.Body.Previews != nil {
		mode := pushes.Previews(*in.Body.Previews)
		p.Previews = &mode
	}
	s, err := a.Git.UpdateTx(ctx, tx, c.Owner, in.ID, p)
	if err == nil && in.Body.AutoDeploy != nil && !oauth.IsApp(c) {
		err = a.OAuth.TakenOverTx(ctx, tx, oauth.Repository, string(in.ID))
	}
	switch {
	case err != nil || in.Body.PollMinutes == nil:
	case !oauth.IsApp(c):
		err = a.OAuth.TakenOverTx(ctx, tx, oauth.Polling, string(in.ID))
	case now.PollMinutes == 0: // polling ends with the app's access
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.Polling, string(in.ID))
	}
	if err == nil && (in.Body.Connection != nil || in.Body.Report != nil) {
		err = a.useConnection(ctx, tx, c, in.ID, in.Body.Connection, in.Body.Report)
	}
	if err == nil && (in.Body.Protection != nil || in.Body.Password != nil) {
		err = a.protectPreviews(ctx, tx, c, in.ID, in.Body.Protection, in.Body.Password, hash)
	}
	detail := "git"
	if w := in.Body.Workflows; err == nil && w != nil {
		detail = cmp.Or(text.Line("git, workflows of "+w.Repository, 150), detail)
		err = a.allowWorkflows(ctx, tx, c, in.ID, pushes.Workflows{Repository: w.Repository, Branch: w.Branch, Environment: w.Environment})
		if err == nil {
			s, err = a.Git.Get(ctx, tx, c.Owner, in.ID)
		}
	}
	if err != nil {
		return gitBody{}, did, err
	}
	did = audit.Event{Action: "site.updated", Subject: string(in.ID), Detail: detail}
	out, err := a.showGitWith(ctx, tx, c, s)
	return out, did, err
}

// allowWorkflows lets workflows get keys that act for the caller, with at most the caller's own rights and lifetime.
func (a *API) allowWorkflows(ctx context.Context, tx *db.Tx, c account.Caller, id site.ID, w pushes.Workflows) error {
	if !c.Unrestricted() || c.Expires != 0 || len(c.Nets) > 0 {
		return fault.New(fault.Forbidden, "wider_key", "This API key can't allow workflows",
			"workflows go on getting keys: use a key with all scopes that doesn't expire and isn't restricted to sites or IP addresses")
	}
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, id)
	if err != nil {
		return err
	}
	w.Branch, w.By = cmp.Or(w.Branch, s.Branch, "main"), c.User
	return a.Git.AllowTx(ctx, tx, c.Owner, id, w)
}

// useConnection changes the fields of a site's connection that aren't nil.
func (a *API) useConnection(ctx context.Context, tx *db.Tx, c account.Caller, id site.ID, to *string, report *bool) error {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, id)
	if err != nil {
		return err
	}
	u, err := a.Connections.UseOf(ctx, tx, id)
	if err != nil {
		return err
	}
	if to != nil {
		if id := connection.ID(*to); id != "" && id != u.Connection { // it may give access to more than the caller's sites
			if err := c.RequireAllSites(); err != nil {
				return err
			}
		}
		u.Connection = connection.ID(*to)
	}
	if report != nil {
		u.Report = *report
	}
	if u.Connection == "" && report != nil && *report {
		return fault.New(fault.Invalid, "invalid_report", "Invalid Git settings report",
			"deployments are reported through a connected account; set connectionId")
	}
	return a.Connections.UseTx(ctx, tx, c.Owner, id, s.Repository, u)
}

type madeGitHook struct {
	URL    string `json:"url" doc:"URL for the Git provider's webhook settings."`
	Secret string `json:"secret" doc:"Secret or token for the Git provider's webhook settings. Returned only once."`
}

func (a *API) createGitHook(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
) (_ madeGitHook, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return madeGitHook{}, did, err
	}
	id, secret, err := a.Git.NewHookTx(ctx, tx, c.Owner, in.ID)
	did = audit.Event{Action: "git_hook.created", Subject: string(in.ID)}
	return madeGitHook{a.gitHookURL(id), secret}, did, err
}

type callGitHookIn struct {
	Hook string `path:"hook"`
}

type calledGitHook struct {
	Message      string          `json:"message"`
	DeploymentID deployment.ID   `json:"deploymentId,omitempty" doc:"The first deployment that the event triggered."`
	Status       string          `json:"status,omitempty"`
	Deployments  []deployment.ID `json:"deployments,omitempty" doc:"All deployments that the event triggered, if more than one."`
	Skipped      bool            `json:"skipped,omitempty" doc:"True if nothing was deployed."`
	Reason       string          `json:"reason,omitempty"`
}

func (a *API) callGitHook(ctx context.Context, r contract.Route, in *callGitHookIn) (*contract.Reply, error) {
	id := pushes.HookID(in.Hook)
	req := contract.From(ctx)
	if req.Push == nil { // otherwise it was found already
		set, err := a.Git.ByHook(ctx, a.DB, id)
		if err != nil {
			return nil, err
		}
		req.Push = &set
	}
	set := *req.Push
	if err := a.Accounts.Stands(ctx, a.DB, set.Owner); err != nil {
		return nil, err
	}
	if len(req.Body) > forge.MaxBody {
		return nil, forge.TooLarge(forge.MaxBody)
	}
	if err := set.Verify(req.HTTP.Header, req.Body); err != nil { // even if there is a stored answer
		return nil, err
	}
	event, err := forge.Read(req.HTTP.Header, req.Body) // large events take time, which no transaction should wait for
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(db.WithShare(ctx, string(set.Owner)), contract.HandlerTimeout)
	defer cancel()
	var k idempotency.Key
	if keys := req.HTTP.Header["Idempotency-Key"]; len(keys) > 0 {
		k = idempotency.Key{
			Scope:   "git/" + id.Digest(),
			Method:  r.Method,
			Path:    "/hooks/git",
			Key:     keys[0],
			Owner:   string(set.Owner),
			Request: req.Body,
		}
		if len(keys) > 1 {
			k.Key = ""
		}
		if err := idempotency.Check(k.Key); err != nil {
			return nil, err
		}
	}
	handle := func(ctx context.Context, tx *db.Tx) ([]byte, error) {
		o, err := a.Git.HandleTx(ctx, tx, set, event, req.HTTP.Header, req.Body)
		if err != nil {
			return nil, err
		}
		out := calledGitHook{Message: o.Message, Skipped: o.Reason != "", Reason: o.Reason}
		for _, d := range o.Deployments {
			out.Deployments = append(out.Deployments, d.ID)
			err := a.Accounts.AuditTx(ctx, tx, audit.Actor{
				Owner: set.Owner,
				Via:   "Git hook",
				Addr:  req.Addr,
			}, audit.Event{Action: "deployment.triggered", Subject: string(d.ID)})
			if err != nil {
				return nil, err
			}
		}
		switch len(out.Deployments) {
		case 0:
		case 1:
			out.Deployments = nil
			fallthrough
		default:
			out.DeploymentID, out.Status = o.Deployments[0].ID, string(o.Deployments[0].Status)
		}
		return r.Keep(out)
	}
	if k.Key == "" { // as Git providers call: concurrent calls share a commit
		var answer []byte
		err := a.pushes.Write(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			answer, err = handle(ctx, tx)
			return err
		})
		return contract.Unkeep(answer, false, err)
	}
	kept, replayed, err := a.Answers.Once(ctx, k, sha256.Sum256(req.Body), func(tx *db.Tx) ([]byte, error) { return handle(ctx, tx) })
	return contract.Unkeep(kept, replayed, err)
}

var gitHookForm = lazyregexp.New(`^/hooks/git/(ghk_[a-z2-7]{52})$`)

// gitCalls handles calls of Git hooks.
type gitCalls struct{ a *API }

func (gitCalls) Most() int { return forge.MaxBody }

func (gitCalls) Is(path string) bool { return gitHookForm.MatchString(path) }

func (c gitCalls) Key(ctx context.Context, r *http.Request) (string, bool) {
	m := gitHookForm.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return "", false
	}
	id := pushes.HookID(m[1])
	set, err := c.a.Git.ByHook(ctx, c.a.DB, id)
	if err == nil {
		contract.From(ctx).Push = &set
	}
	return "hook:" + id.Digest(), err == nil
}

type gitEventBody struct {
	ID           string  `json:"id"`
	Provider     string  `json:"provider" doc:"Source of the event: github, gitlab, gitea, bitbucket, bitbucket_server, github_app (through a GitHub App) or poll."`
	Name         string  `json:"name" doc:"The Git provider's name for the event."`
	Ref          *string `json:"ref" doc:"The branch, tag or pull request."`
	CommitHash   *string `json:"commitHash"`
	Outcome      string  `json:"outcome" doc:"Result of the event."`
	DeploymentID *string `json:"deploymentId"`
	At           string  `json:"at" format:"date-time"`
}

func (a *API) listGitEvents(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[gitEventBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[gitEventBody]{}, err
	}
	list, err := a.Git.Events(ctx, a.DB, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, func(l pushes.Logged) gitEventBody {
		return gitEventBody{
			l.ID, l.Provider, l.Name, contract.Some(l.Ref), contract.Some(l.Commit), l.Outcome,
			contract.Some(string(l.Deployment)), l.At.String(),
		}
	}), err)
}

type pullBody struct {
	Number     int     `json:"number"`
	Title      string  `json:"title"`
	Branch     string  `json:"branch"`
	Author     *string `json:"author"`
	CommitHash *string `json:"commitHash"`
	Open       bool    `json:"open"`
	Fork       *string `json:"fork" doc:"The repository of the branch. Null if it is the site's own."`
	Waiting    bool    `json:"waiting" doc:"Whether a member must approve the commit before it is built."`
	URL        *string `json:"url" doc:"URL of the pull request at the Git provider. Null if unknown."`
	UpdatedAt  string  `json:"updatedAt" format:"date-time"`
}

func (a *API) listPulls(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[pullBody], error) {
	s, err := a.Site(ctx, c, in.ID)
	if err != nil {
		return contract.Data[pullBody]{}, err
	}
	set, err := a.Git.Get(ctx, a.DB, c.Owner, s.ID)
	if err != nil {
		return contract.Data[pullBody]{}, err
	}
	list, err := a.Git.Pulls(ctx, a.DB, c.Owner, s.ID)
	return contract.Part(in.PartIn, contract.Each(list, func(p pushes.Pull) pullBody {
		return pullBody{
			p.Number,
			p.Title,
			p.Branch,
			contract.Some(p.Author),
			contract.Some(p.Commit),
			p.Open,
			contract.Some(p.Source),
			p.Waits(),
			contract.Some(set.PullURL(s.Repository, p.Number)),
			p.UpdatedAt.String(),
		}
	}), err)
}

type approvePullIn struct {
	contract.ByID[site.ID]
	Number int `path:"number" minimum:"1" maximum:"999999999"`
	Body   struct {
		Commit string `json:"commit" doc:"The reviewed commit. 409 if the pull request has a newer one."`
	}
}

func (a *API) approvePull(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *approvePullIn,
) (_ contract.Triggered, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Triggered{}, did, err
	}
	d, err := a.Git.ApproveTx(ctx, tx, c.Owner, in.ID, in.Number, in.Body.Commit, deployment.ByAPI)
	did = audit.Event{Action: "pull_request.approved", Subject: string(d.ID)}
	return contract.Triggered{Message: "Deployment triggered", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}
