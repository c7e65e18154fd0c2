package dashboard

import (
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
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
)

func (d *Dashboard) gitRoutes() []route {
	return []route{
		get("/sites/{id}/git", user, d.gitPage),
		get("/sites/{id}/git/follow", user, d.gitLive),
		post("/sites/{id}/git", user, d.saveGit, d.gitPage),
		post("/sites/{id}/git/hook", user, d.newGitHook, d.gitPage),
		post("/sites/{id}/git/approve", user, d.approvePull, d.gitPage),
		get("/sites/{id}/pulls/{number}", user, d.pullPage),
		get("/sites/{id}/pulls/{number}/follow", user, d.pullLive),
	}
}

// forgeGuide says where a forge's webhook is entered.
type forgeGuide struct {
	Provider, Name string
	Link           string // the very page, where the repository's forge is known
	Steps          []string
}

// guides are those of all forges; the second word of each step is as the forge's page says it.
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

// pullRow is a pull request with what there is of it.
type pullRow struct {
	pushes.Pull
	URL string // at the forge; empty where it is not known
}

// previewRow is a preview address with the deployment that it serves.
type previewRow struct {
	preview.Address
	Dep *deploymentRow // nil: none has succeeded yet
}

// Host is the address without the scheme.
func (p previewRow) Host() string { return strings.TrimPrefix(p.URL, "https://") }

type gitData struct {
	siteHead
	Settings pushes.Settings
	Account  *connection.Connection // that the repository is read with; nil: none
	Install  string                 // where its GitHub App is given repositories; empty: it is none
	HookURL  string                 // empty: there is no hook
	Secret   string
	Forge    string // the provider that the repository is known to be on; empty: not known
	Guides   []forgeGuide
	Pulls    []pullRow
	Previews []previewRow
	Events   []pushes.Logged
}

// ForgeName is how people call the repository's forge; empty where it is not known.
func (g gitData) ForgeName() string { return forge.Provider(g.Forge).Name() }

// ByApp reports whether pushes arrive by a GitHub App, without a webhook of the repository.
func (g gitData) ByApp() bool { return g.Account != nil && g.Account.ByGitHubApp() }

// pullsShown keeps the page of a busy repository under 100 KB.
const pullsShown = 30

func (d *Dashboard) gitData(ctx context.Context, q *request) (gitData, error) {
	head, err := d.head(ctx, q, "git")
	if err != nil {
		return gitData{}, err
	}
	data := gitData{siteHead: head, Guides: guides(head.Site.Repository)}
	who, id := q.caller.Owner, head.Site.ID
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
		ids = append(ids, deployment.ID(a.Deployment))
	}
	served, err := d.Deployments.Several(ctx, who, ids)
	if err != nil {
		return data, err
	}
	for _, a := range addresses {
		row := previewRow{Address: a}
		if x, ok := served[deployment.ID(a.Deployment)]; ok {
			row.Dep = &deploymentRow{x, head}
		}
		data.Previews = append(data.Previews, row)
	}
	events, err := d.Git.Events(ctx, d.DB, who, id)
	data.Events = events[:min(len(events), 20)]
	return data, err
}

// accountOf returns the connected account that a site uses; nil where it uses none.
func (d *Dashboard) accountOf(ctx context.Context, q *request, head siteHead) (*connection.Connection, error) {
	if d.Connections == nil {
		return nil, nil
	}
	use, err := d.Connections.UseOf(ctx, d.DB, string(head.Site.ID))
	if err != nil || use.Connection == "" {
		return nil, err
	}
	c, err := d.Connections.Get(ctx, d.DB, q.caller.Owner, use.Connection)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return &c, err
}

func (d *Dashboard) gitPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.gitData(ctx, q)
	return page("site_git", "Git of "+data.Site.Name, data), err
}

// gitLive sends pull requests, previews and events again whenever they change.
func (d *Dashboard) gitLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "git"); err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: 3 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.gitData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_git", "git-live", data)
		return html, false, err
	}}}, nil
}

// saveGit changes the Git settings: the form holds all of them.
func (d *Dashboard) saveGit(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "git")
	if err != nil {
		return answer{}, err
	}
	auto, previews := q.checked("auto_deploy"), pushes.Previews(q.value("previews"))
	tags, deleted, forks := q.value("tags"), q.value("deleted_branches"), q.value("forks")
	p := pushes.Patch{AutoDeploy: &auto, Previews: &previews, Tags: &tags, DeletedBranches: &deleted, Forks: &forks, Watch: []string{}}
	if database := q.value("preview_database"); database != "" { // a page from before an upgrade has no such field
		p.PreviewDatabase = &database
	}
	for line := range strings.Lines(q.value("watch")) {
		if line = strings.TrimSpace(line); line != "" {
			p.Watch = append(p.Watch, line)
		}
	}
	for name, to := range map[string]**int{"preview_days": &p.PreviewDays, "poll_minutes": &p.PollMinutes} {
		n, err := strconv.Atoi(strings.TrimSpace(q.value(name)))
		if err != nil {
			return answer{}, at(name, &fault.Error{Kind: fault.Invalid, Message: "Enter a number"})
		}
		*to = &n
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Git.UpdateTx(ctx, tx, q.caller.Owner, head.Site.ID, p)
		return account.AuditEvent{Action: "site.updated", Subject: string(head.Site.ID), Detail: "git"}, err
	})
	if f := fault.As(err); f != nil {
		switch {
		case f.Code == "invalid_watch":
			err = at("watch", err)
		case f.Message == "Invalid previewDays":
			err = at("preview_days", err)
		case f.Message == "Invalid pollMinutes":
			err = at("poll_minutes", err)
		}
	}
	return goTo(head.Base()+"/git", "Saved"), err
}

// newGitHook makes the address that the forge calls; an earlier one ends.
func (d *Dashboard) newGitHook(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "git")
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, _, err := d.Git.NewHookTx(ctx, tx, q.caller.Owner, head.Site.ID)
		return account.AuditEvent{Action: "git_hook.created", Subject: string(head.Site.ID)}, err
	})
	return goTo(head.Base()+"/git#hook", "Git hook created"), err
}

// approvePull builds the commit of a fork's pull request that the page showed.
func (d *Dashboard) approvePull(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "git")
	if err != nil {
		return answer{}, err
	}
	number, commit, _ := strings.Cut(q.value("pull"), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return answer{}, fault.Missing("pull request")
	}
	var x deployment.Deployment
	err = d.act(ctx, q, "pull_request.approved", func(tx *db.Tx) (_ string, err error) {
		x, err = d.Git.ApproveTx(ctx, tx, q.caller.Owner, head.Site.ID, n, commit, deployment.ByDashboard)
		return string(x.ID), err
	})
	return goTo(deploymentPath(head.Site.ID, x.ID), ""), err
}
