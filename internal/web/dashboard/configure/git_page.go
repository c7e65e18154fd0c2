package configure

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/pushes"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) gitRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/git", shell.User, d.gitPage).Takes(account.DeploymentsWrite),
		shell.Get("/sites/{id}/git/follow", shell.User, d.gitLive).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/git", shell.User, d.saveGit, d.gitPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/git/hook", shell.User, d.newGitHook, d.gitPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/git/workflows", shell.User, d.allowWorkflows, d.gitPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/git/approve", shell.User, d.approvePull, d.gitPage).Takes(account.DeploymentsWrite),
		shell.Get("/sites/{id}/pulls/{number}", shell.User, d.pullPage).Takes(account.DeploymentsRead),
		shell.Get("/sites/{id}/pulls/{number}/follow", shell.User, d.pullLive).Takes(account.DeploymentsRead),
	}
}

// forgeGuide says where to enter a Git provider's webhook.
type forgeGuide struct {
	Provider, Name string
	Link           string // URL of the page if the repository's provider is known
	Steps          []string
}

// guides returns the guides of all providers. The second string of each step is the label on the provider's page.
func guides(repository string) []forgeGuide {
	web := ""
	if host, path, ok := strings.Cut(repository, "/"); ok {
		web = "https://" + host + "/" + path
	}
	return []forgeGuide{
		{
			"github",
			"GitHub",
			web + "/settings/hooks/new",
			[]string{
				"Open Settings, Webhooks, Add webhook.",
				"Paste the address as Payload URL and choose the content type application/json.",
				"Paste the secret as Secret.",
				"Choose the individual events Pushes, Branch or tag deletion and Pull requests, then Add webhook.",
			},
		},
		{
			"gitlab",
			"GitLab",
			web + "/-/hooks",
			[]string{
				"Open Settings, Webhooks, Add new webhook.",
				"Paste the address as URL and the secret as Secret token.",
				"Choose Push events, Tag push events and Merge request events, then Add webhook.",
			},
		},
		{
			"gitea",
			"Gitea or Forgejo",
			web + "/settings/hooks/gitea/new",
			[]string{
				"Open Settings, Webhooks, Add webhook, and choose Gitea or Forgejo.",
				"Paste the address as Target URL and the secret as Secret.",
				"Choose the custom events Push, Delete, Pull request and Pull request synchronized, then Add webhook.",
			},
		},
		{
			"bitbucket",
			"Bitbucket",
			web + "/admin/webhooks",
			[]string{
				"Open Repository settings, Webhooks, Add webhook.", "Paste the address as URL and the secret as Secret.",
				"Choose Repository push and Pull request created, updated, merged and declined, then Save.",
			},
		},
		{
			"bitbucket_server",
			"Bitbucket Server",
			"",
			[]string{
				"Open Repository settings, Webhooks, Create webhook.", "Paste the address as URL and the secret as Secret.",
				"Choose Repository push and Pull request opened, source branch updated, merged, declined and deleted, then Create.",
			},
		},
	}
}

// pullRow is a pull request with its deployments and preview.
type pullRow struct {
	pushes.Pull
	URL string // at the provider; empty if unknown
}

// previewRow is a preview address and its deployment.
type previewRow struct {
	preview.Address
	Dep *sites.DeploymentRow // nil: none has succeeded yet
}

// Host returns the address without its scheme.
func (p previewRow) Host() string { return strings.TrimPrefix(p.URL, "https://") }

type gitData struct {
	sites.SiteHead
	Settings pushes.Settings
	Account  *connection.Connection // reads the repository; nil: none
	Install  string                 // page that grants repositories to its GitHub App; empty: not a GitHub App
	HookURL  string                 // empty: no hook
	Secret   string
	Forge    string // the repository's provider; empty: unknown
	Guides   []forgeGuide
	Pulls    []pullRow
	Previews []previewRow
	Events   []pushes.Logged
}

// ForgeName returns the provider's display name, or "" if unknown.
func (g gitData) ForgeName() string { return forge.Provider(g.Forge).Name() }

// ByApp reports whether pushes arrive through a GitHub App instead of a repository's webhook.
func (g gitData) ByApp() bool { return g.Account != nil && g.Account.ByGitHubApp() }

// pullsShown keeps a busy repository's page below 100 KB.
const pullsShown = 30

func (d *Pages) gitData(ctx context.Context, q *shell.Request) (gitData, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return gitData{}, err
	}
	data := gitData{SiteHead: head, Guides: guides(head.Site.Repository)}
	who, id := q.Caller.Owner, head.Site.ID
	if data.Settings, err = d.Git.Get(ctx, d.DB, who, id); err != nil {
		return data, err
	}
	if data.Account, err = d.accountOf(ctx, q, head); err != nil {
		return data, err
	}
	if data.ByApp() {
		app, err := d.Connections.App(ctx, d.DB, data.Account.App)
		if err != nil {
			return data, err
		}
		data.Install = app.InstallURL()
	}
	data.Forge = string(data.Settings.Forge(head.Site.Repository))
	if hook := data.Settings.Hook; hook != "" {
		data.HookURL, data.Secret = d.APIURL+"/hooks/git/"+url.PathEscape(hook.Reveal()), data.Settings.Secret()
	}
	pulls, err := d.Git.Pulls(ctx, d.DB, who, id)
	if err != nil {
		return data, err
	}
	for _, p := range pulls {
		if len(data.Pulls) == pullsShown || !p.Open {
			break
		}
		data.Pulls = append(data.Pulls, pullRow{p, data.Settings.PullURL(head.Site.Repository, p.Number)})
	}
	addresses, err := d.Deployments.Previews.List(ctx, who, id)
	if err != nil {
		return data, err
	}
	addresses = addresses[:min(len(addresses), pullsShown)]
	var ids []deployment.ID
	for _, a := range addresses {
		ids = append(ids, a.Deployment)
	}
	served, err := d.Deployments.Several(ctx, who, ids)
	if err != nil {
		return data, err
	}
	for _, a := range addresses {
		row := previewRow{Address: a}
		if x, ok := served[a.Deployment]; ok {
			row.Dep = sites.Row(head, x)
		}
		data.Previews = append(data.Previews, row)
	}
	events, err := d.Git.Events(ctx, d.DB, who, id)
	data.Events = events[:min(len(events), 20)]
	return data, err
}

// accountOf returns a site's connected account, or nil.
func (d *Pages) accountOf(ctx context.Context, q *shell.Request, head sites.SiteHead) (*connection.Connection, error) {
	if d.Connections == nil {
		return nil, nil
	}
	use, err := d.Connections.UseOf(ctx, d.DB, head.Site.ID)
	if err != nil || use.Connection == "" {
		return nil, err
	}
	c, err := d.Connections.Get(ctx, d.DB, q.Caller.Owner, use.Connection)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return &c, err
}

func (d *Pages) gitPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.gitData(ctx, q)
	return shell.Page("site_git", "Git of "+data.Site.Name, data), err
}

// gitLive updates pull requests, previews and events when they change.
func (d *Pages) gitLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "git"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.gitData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_git", "git-live", data)
		return html, false, err
	}), nil
}

// saveGit saves the Git settings, all of which are in the form.
func (d *Pages) saveGit(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return shell.Answer{}, err
	}
	auto, previews := q.Checked("auto_deploy"), pushes.Previews(q.Value("previews"))
	tags, deleted, forks := q.Value("tags"), q.Value("deleted_branches"), q.Value("forks")
	p := pushes.Patch{AutoDeploy: &auto, Previews: &previews, Tags: &tags, DeletedBranches: &deleted, Forks: &forks, Watch: []string{}}
	if database := q.Value("preview_database"); database != "" { // forms from before an upgrade lack this field
		p.PreviewDatabase = &database
	}
	for line := range strings.Lines(q.Value("watch")) {
		line = strings.TrimSpace(line)
		if line != "" {
			p.Watch = append(p.Watch, line)
		}
	}
	for name, to := range map[string]**int{"preview_days": &p.PreviewDays, "poll_minutes": &p.PollMinutes} {
		n, err := strconv.Atoi(strings.TrimSpace(q.Value(name)))
		if err != nil {
			return shell.Answer{}, shell.At(name, &fault.Error{Kind: fault.Invalid, Message: "Enter a number"})
		}
		*to = &n
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Git.UpdateTx(ctx, tx, q.Caller.Owner, head.Site.ID, p)
		if err == nil {
			err = d.OAuth.TakenOverTx(ctx, tx, oauth.Polling, string(head.Site.ID))
		}
		if err == nil {
			err = d.OAuth.TakenOverTx(ctx, tx, oauth.Repository, string(head.Site.ID))
		}
		return audit.Event{Action: "site.updated", Subject: string(head.Site.ID), Detail: "git"}, err
	})
	if f := fault.As(err); f != nil {
		switch {
		case f.Code == "invalid_watch":
			err = shell.At("watch", err)
		case f.Message == "Invalid previewDays":
			err = shell.At("preview_days", err)
		case f.Message == "Invalid pollMinutes":
			err = shell.At("poll_minutes", err)
		}
	}
	return shell.GoTo(head.Base()+"/git", "Saved"), err
}

// newGitHook creates a new webhook URL and invalidates the previous one.
func (d *Pages) newGitHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, _, err := d.Git.NewHookTx(ctx, tx, q.Caller.Owner, head.Site.ID)
		return audit.Event{Action: "git_hook.created", Subject: string(head.Site.ID)}, err
	})
	return shell.GoTo(head.Base()+"/git#hook", "Git hook created"), err
}

// allowWorkflows sets the GitHub Actions workflows that may deploy the site. An empty repository allows none.
func (d *Pages) allowWorkflows(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return shell.Answer{}, err
	}
	value := func(name string) string { return strings.TrimSpace(q.Value(name)) }
	w := pushes.Workflows{
		Repository: value("workflows"), Branch: cmp.Or(value("workflows_branch"), head.Site.Branch, "main"),
		Environment: value("workflows_environment"), By: q.Caller.User,
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		did := audit.Event{Action: "site.updated", Subject: string(head.Site.ID), Detail: text.Line("git, workflows of "+w.Repository, 150)}
		return did, d.Git.AllowTx(ctx, tx, q.Caller.Owner, head.Site.ID, w)
	})
	if f := fault.As(err); f != nil && f.Code == "invalid_workflows" {
		field := "workflows"
		switch f.Message {
		case "Invalid branch of workflows":
			field = "workflows_branch"
		case "Invalid environment of workflows":
			field = "workflows_environment"
		}
		err = shell.At(field, err)
	}
	return shell.GoTo(head.Base()+"/git#workflows", "Saved"), err
}

// approvePull builds the commit shown of a fork's pull request.
func (d *Pages) approvePull(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return shell.Answer{}, err
	}
	number, commit, _ := strings.Cut(q.Value("pull"), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return shell.Answer{}, fault.Missing("pull request")
	}
	var x deployment.Deployment
	err = d.Act(ctx, q, "pull_request.approved", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Git.ApproveTx(ctx, tx, q.Caller.Owner, head.Site.ID, n, commit, deployment.ByDashboard)
		return string(x.ID), err
	})
	return shell.GoTo(sites.DeploymentPath(head.Site.ID, x.ID), ""), err
}
