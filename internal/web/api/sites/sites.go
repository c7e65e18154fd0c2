package sites

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/api/programs"
	"slipway/internal/wordpress/wordpress"
)

// NewSiteBody is a new site, without domains and updatedAt.
type NewSiteBody struct {
	ID            site.ID     `json:"id" example:"site_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name          string      `json:"name"`
	Slug          string      `json:"slug" doc:"URL-safe form of the name, unique in the installation."`
	Type          string      `json:"type" enum:"static,wordpress" doc:"static: files or an application, from a Git repository or from uploads. wordpress: a WordPress installation."`
	Runtime       string      `json:"runtime" doc:"How it is served: static, node, php or wordpress. For a static site, detected by its first deployment."`
	Status        string      `json:"status" enum:"pending,provisioning,active,error,stopped"`
	StatusReason  *string     `json:"statusReason" doc:"Why it is in this status, if there is a reason."`
	URL           string      `json:"url" example:"https://my-site.example.com"`
	Subdomain     string      `json:"subdomain"`
	Source        *string     `json:"source" enum:"git,upload" doc:"Where the files come from: the repository, or uploads. Null for a WordPress site without a repository."`
	Repository    *repository `json:"repository"`
	Framework     *string     `json:"framework" doc:"The requested framework preset."`
	Build         site.Build  `json:"build" doc:"Build settings. Absent ones are detected."`
	Run           site.Run    `json:"run" doc:"Settings of the site's application. Absent ones have their defaults."`
	Tags          []string    `json:"tags" doc:"Words that group sites, in lower case."`
	HasCredential bool        `json:"hasCredential" doc:"Whether a credential for the repository is stored. It is never shown."`
	NeedsRedeploy bool        `json:"needsRedeploy" doc:"Settings or variables changed since the last deployment."`
	Deployment    *string     `json:"deploymentId" doc:"The deployment that is live."`
	CreatedAt     string      `json:"createdAt" format:"date-time"`
}

type siteBody struct {
	NewSiteBody
	Domains   []domainSummary       `json:"domains"`
	Process   *programs.ProcessBody `json:"process" doc:"The site's application; null if it has none."`
	SSL       siteSSL               `json:"ssl" doc:"The certificate of the site's own address."`
	Backups   scheduleBody          `json:"backups" doc:"Backup schedule."`
	UpdatedAt string                `json:"updatedAt" format:"date-time"`
}

type siteSSL struct {
	Status        string  `json:"status" enum:"pending,active,failed,expired"`
	Reason        *string `json:"reason" doc:"Why there is no certificate yet, what failed, or which authority visitors must trust."`
	Issuer        *string `json:"issuer"`
	ExpiresAt     *string `json:"expiresAt" format:"date-time"`
	NextAttemptAt *string `json:"nextAttemptAt" format:"date-time"`
}

type repository struct {
	URL    string  `json:"url" example:"github.com/acme/site"`
	Branch *string `json:"branch" doc:"Null until the repository's default branch is known."`
}

type domainSummary struct {
	ID     domain.ID `json:"id"`
	Name   string    `json:"name"`
	Status string    `json:"status" enum:"pending,active,failed"`
}

type createdSite struct {
	Data    NewSiteBody `json:"data"`
	Message string      `json:"message"`
}

func (a *API) siteRoutes() {
	r := func(path, id, summary string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Sites", Summary: summary, Scope: s, Noun: "site"}
	}
	list := r("/sites", "listSites", "List sites", account.SitesRead)
	list.Doc = "The user's sites, newest first. A key that is restricted to some sites sees only those."
	contract.Get(a.API, list, a.listSites)

	create := r("/sites", "createSite", "Create a site", account.SitesWrite)
	create.Status, create.Wide = 201, true
	create.Limited, create.Finds = true, true
	create.Doc = "Returns at once with status `pending`; provisioning begins shortly after. For a `static` site that is its " +
		"first deployment, for `wordpress` the installation. " +
		"`type` is where the content comes from: `static` is a Git repository, also of a Node.js or PHP application. How it is " +
		"served is detected from the repository. With `source: upload` a static site has no repository, and stays `pending` until " +
		"its first upload is deployed."
	contract.Post(a.API, create, a.createSite)

	contract.Get(a.API, r("/sites/{id}", "getSite", "Read a site", account.SitesRead), a.getSite)

	update := r("/sites/{id}", "updateSite", "Change a site", account.SitesWrite)
	update.Doc = "Changes the fields that are sent. The address stays the same when the name changes. Build settings take " +
		"effect with the next deployment."
	contract.Change(a.API, "PATCH", update, a.updateSite)

	remove := r("/sites/{id}", "deleteSite", "Delete a site", account.SitesWrite)
	remove.Doc = "Permanently deletes the site and everything that belongs to it. When the response arrives, the site is no " +
		"longer listed or served; files, databases, certificates, variables, backups and logs are removed right after. With " +
		"`backup=true` a backup is taken first, which stays for 30 days and can be restored to a new site."
	remove.Role = account.RoleManager
	contract.Change(a.API, "DELETE", remove, a.deleteSite)

	trigger := r("/sites/{id}/deploy", "deploySite", "Deploy a site", account.PreviewsWrite)
	trigger.Doc = "Needs no body. A deployment to production takes the scope `deployments:write`, a preview `previews:write`. " +
		"Deployments of one site run one at a time, in the order they were triggered; none that was triggered through the API is " +
		"dropped. A site in status `error` can be deployed again."
	trigger.Limited = true
	contract.Post(a.API, trigger, a.deploySite)

	stop := r("/sites/{id}/stop", "stopSite", "Stop a site", account.SitesWrite)
	stop.Doc = "Takes an active site offline. Its releases stay stored."
	contract.Post(a.API, stop, a.stopSite)
	contract.Post(a.API, r("/sites/{id}/start", "startSite", "Start a stopped site", account.SitesWrite), a.startSite)

	rollback := r("/sites/{id}/rollback", "rollbackSite", "Roll a site back", account.DeploymentsWrite)
	rollback.Doc = "Makes an earlier deployment live again, at once and without building. Without a `deploymentId`, the one " +
		"that was live before the current one."
	contract.Post(a.API, rollback, a.rollbackSite)
}

type listSitesIn struct {
	contract.PageIn
	Type   string `query:"type" enum:"static,wordpress" doc:"Only sites of this type."`
	Status string `query:"status" enum:"active,pending,provisioning,error,stopped" doc:"Only sites in this status."`
	Tag    string `query:"tag" maxLength:"40" doc:"Only sites with this tag."`
	Search string `query:"search" maxLength:"100" doc:"Only sites with this text in their name, subdomain, domains, repository or tags, ignoring case."`
}

func (a *API) listSites(ctx context.Context, c account.Caller, in *listSitesIn) (contract.Page[siteBody], error) {
	p, err := in.Parse()
	if err == nil {
		err = contract.OneOf("type", in.Type, string(site.Static), string(site.WordPress))
	}
	if err == nil {
		err = contract.OneOf("status", in.Status, contract.Each(site.Statuses, func(s site.Status) string { return string(s) })...)
	}
	if err != nil {
		return contract.Page[siteBody]{}, err
	}
	f := site.Filter{Type: site.Type(in.Type), Status: site.Status(in.Status), Tag: in.Tag, Search: in.Search, Page: p.Page, Limit: p.Limit}
	for _, id := range c.Sites {
		f.Only = append(f.Only, site.ID(id))
	}
	list, total, err := a.Sites.List(ctx, c.Owner, f)
	if err != nil {
		return contract.Page[siteBody]{}, err
	}
	bodies, err := a.showSites(ctx, a.DB, list)
	return contract.Paged(bodies, p, total), err
}

// credential is the credential for a private repository.
type credential struct {
	Token     string `json:"token,omitempty" doc:"An access token, for https." writeOnly:"true"`
	User      string `json:"user,omitempty" doc:"Username for the token, if the host requires one."`
	DeployKey string `json:"deployKey,omitempty" doc:"A private key in PEM form, without a passphrase, for ssh. It takes precedence over a token." writeOnly:"true"`
}

func (c *credential) read() *fetch.Credential {
	if c == nil {
		return nil
	}
	return &fetch.Credential{Token: c.Token, User: c.User, DeployKey: c.DeployKey}
}

type createSiteIn struct {
	Body struct {
		Name       string        `json:"name" doc:"Display name, 1 to 100 characters."`
		Type       string        `json:"type" enum:"static,wordpress" doc:"Where the content comes from."`
		Source     string        `json:"source,omitempty" enum:"git,upload" doc:"Where the files of a static site come from. With upload it needs no repository: deploy a folder with the command line or the uploads API. Default: git."`
		Repository string        `json:"repository,omitempty" doc:"The Git repository, host/owner/repo. Required for static, unless source is upload; for wordpress it is the site's wp-content." example:"github.com/acme/site"`
		Branch     string        `json:"branch,omitempty" doc:"Default: the repository's default branch."`
		Framework  string        `json:"framework,omitempty" doc:"A preset's id, such as nextjs. Default: detected. An unknown one is ignored with a warning in the log."`
		Build      site.Build    `json:"build,omitempty" doc:"Build settings."`
		Run        site.Run      `json:"run,omitempty" doc:"Settings of the application, if the site is one."`
		Tags       []string      `json:"tags,omitempty" doc:"Up to 10 words of up to 40 characters that group sites. They are stored in lower case."`
		Credential *credential   `json:"credential,omitempty" doc:"For a private repository. Stored encrypted, never returned."`
		Env        []newVar      `json:"env,omitempty" maxItems:"100" doc:"Variables that its first deployment has, up to 100, as in \"Set variables\". Requires the scope env:write."`
		WordPress  newWordPress  `json:"wordpress,omitempty" doc:"How WordPress is installed, for sites of type wordpress."`
		Connection connection.ID `json:"connectionId,omitempty" doc:"A connected account at the repository's Git provider. It reads the repository instead of a credential, and reports deployments."`
	}
}

func (a *API) createSite(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createSiteIn,
) (_ createdSite, did audit.Event, _ error) {
	b := in.Body
	s, err := a.Sites.CreateTx(ctx, tx, c.Owner, site.NewSite{
		Name: b.Name, Type: b.Type, Source: b.Source, Repository: b.Repository,
		Branch: b.Branch, Framework: b.Framework, Build: b.Build, Run: b.Run, Tags: b.Tags, Credential: b.Credential.read(),
	})
	if err == nil && b.Connection != "" {
		err = a.Connections.UseTx(ctx, tx, c.Owner, s.ID, s.Repository, connection.Use{
			Connection: b.Connection,
			Report:     true,
		})
	}
	if err == nil && len(b.Env) > 0 {
		if err = c.RequireOn(account.EnvWrite, s.ID); err == nil {
			_, err = a.Sites.SetEnvTx(ctx, tx, c.Owner, s.ID, contract.Each(b.Env, func(v newVar) site.NewVar { return site.NewVar(v) }))
		}
	}
	if err == nil && s.Type == site.WordPress {
		var u account.User
		if u, err = a.Accounts.User(ctx, c.User); err == nil {
			err = a.WordPress.CreateTx(ctx, tx, s, wordpress.Settings(b.WordPress), u.Email)
		}
	}
	did = audit.Event{Action: "site.created", Subject: string(s.ID), Detail: s.Name}
	said := "Site created. Provisioning will begin shortly."
	if s.Source() == site.SourceUpload {
		said = "Site created. Upload files to deploy it."
	}
	return createdSite{a.showNewSite(&s), said}, did, err
}

func (a *API) getSite(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (siteBody, error) {
	s, err := a.Site(ctx, c, in.ID)
	if err != nil {
		return siteBody{}, err
	}
	return a.showSite(ctx, a.DB, s)
}

type updateSiteIn struct {
	contract.ByID[site.ID]
	Body struct {
		Name       *string        `json:"name,omitempty"`
		Repository *string        `json:"repository,omitempty" doc:"host/owner/repo. Empty removes it with its branch: a static site is then deployed from uploads. What is live stays live. Callers who are restricted to some sites send a credential with another repository; the connected account is no longer used then."`
		Branch     *string        `json:"branch,omitempty" doc:"Empty: the repository's default."`
		Framework  *string        `json:"framework,omitempty"`
		Build      *site.Build    `json:"build,omitempty" doc:"Absent fields are kept; null or an empty string resets a field to detection."`
		Run        *site.Run      `json:"run,omitempty" doc:"Absent fields are kept; null resets a field to its default, and so does an empty command."`
		Tags       *[]string      `json:"tags,omitempty" doc:"Replaces all tags: up to 10 words of up to 40 characters."`
		Backups    *schedulePatch `json:"backups,omitempty" doc:"Backup schedule. Absent fields are kept."`
		Credential *credential    `json:"credential,omitempty" doc:"Replaces the stored credential; an empty object removes it. A credential is sent only to the repository's host: if repository changes to another host, the stored credential is removed."`
	}
}

func (a *API) updateSite(ctx context.Context, tx *db.Tx, c account.Caller, in *updateSiteIn) (_ siteBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return siteBody{}, did, err
	}
	now, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return siteBody{}, did, err
	}
	shown, err := a.showSite(ctx, tx, now)
	if err != nil {
		return siteBody{}, did, err
	}
	err = contract.CheckPatch(ctx, "site", []string{
		"name", "repository", "branch", "framework", "build", "run", "tags", "credential", "backups",
	}, shown, map[string]string{
		"type": "a site keeps its type: create another site",
	})
	if err != nil {
		return siteBody{}, did, err
	}
	b := in.Body
	p := site.Patch{
		Name:       b.Name,
		Repository: b.Repository,
		Branch:     b.Branch,
		Framework:  b.Framework,
		Build:      b.Build,
		Run:        b.Run,
		BuildNulls: contract.Nulls(ctx, "build"),
		RunNulls:   contract.Nulls(ctx, "run"),
		Tags:       b.Tags,
		Credential: b.Credential.read(),
	}
	own, err := now.Repoints(c, p)
	if err != nil {
		return siteBody{}, did, err
	}
	s, err := a.Sites.UpdateTx(ctx, tx, c.Owner, in.ID, p)
	if err == nil && own { // else the connected account would give access to the repository once the credential is removed
		err = a.Connections.UseTx(ctx, tx, c.Owner, in.ID, s.Repository, connection.Use{})
	}
	if err == nil && s.Repository != now.Repository && oauth.IsApp(c) { // deploying its pushes ends with the app's access
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.Repository, string(in.ID))
	}
	if err != nil {
		return siteBody{}, did, err
	}
	if b.Run != nil && b.Run.Instances != nil {
		if err := a.Deployments.CheckInstances(ctx, tx, s); err != nil {
			return siteBody{}, did, err
		}
	}
	if b.Backups != nil {
		if _, err := a.Backups.ScheduleTx(ctx, tx, c.Owner, in.ID, b.Backups.read()); err != nil {
			return siteBody{}, did, err
		}
	}
	did = audit.Event{Action: "site.updated", Subject: string(in.ID), Detail: strings.Join(in.parts(), ", ")}
	out, err := a.showSite(ctx, tx, s)
	return out, did, err
}

// parts names the changed sections of the settings page.
func (in *updateSiteIn) parts() (list []string) {
	b := in.Body
	for _, p := range []struct {
		name string
		sent bool
	}{
		{"name", b.Name != nil},
		{"source", b.Repository != nil || b.Branch != nil},
		{"credential", b.Credential != nil},
		{"build", b.Framework != nil || b.Build != nil},
		{"run", b.Run != nil},
		{"tags", b.Tags != nil},
		{"backups", b.Backups != nil},
	} {
		if p.sent {
			list = append(list, p.name)
		}
	}
	return list
}

type deleteSiteIn struct {
	contract.ByID[site.ID]
	Backup string `query:"backup" enum:"true,false" doc:"Whether to back up the site first. The site is deleted when the backup is completed, and kept if it fails. The backup is kept for 30 days."`
}

type deletedSite struct {
	Message   string                  `json:"message"`
	Operation *contract.OperationBody `json:"operation,omitempty" doc:"With backup=true (status 202): the operation that backs up and then deletes the site."`
}

func (d deletedSite) StatusCode() int {
	if d.Operation != nil {
		return http.StatusAccepted
	}
	return http.StatusOK
}

func (a *API) deleteSite(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *deleteSiteIn,
) (_ deletedSite, did audit.Event, _ error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = c.RequireSite(in.ID)
	}
	if err == nil {
		err = contract.OneOf("backup", in.Backup, "true", "false")
	}
	if err != nil {
		return deletedSite{}, did, err
	}
	did = audit.Event{Action: "site.deleted", Subject: string(in.ID), Detail: s.Name}
	if in.Backup == "true" {
		o, err := a.Backups.DeleteSiteTx(ctx, tx, c.Owner, s.ID)
		shown := contract.ShowOperation(o)
		return deletedSite{"The site is deleted once its backup is completed", &shown}, did, err
	}
	return deletedSite{Message: "Site deleted"}, did, a.Sites.DeleteTx(ctx, tx, c.Owner, s.ID)
}

type deploySiteIn struct {
	contract.ByID[site.ID]
	Body *struct {
		Branch     string `json:"branch,omitempty" doc:"Default: the site's production branch. Any other branch is deployed as a preview."`
		Commit     string `json:"commit,omitempty" doc:"Full id of a commit of the branch. Default: the latest."`
		Target     string `json:"target,omitempty" doc:"production or preview. Default: production for the production branch, preview for any other."`
		ClearCache bool   `json:"clearCache,omitempty" doc:"Build without the cache."`
		Title      string `json:"title,omitempty" doc:"Title of the deployment, at most 200 characters."`
	}
}

func (a *API) deploySite(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *deploySiteIn,
) (_ contract.Triggered, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Triggered{}, did, err
	}
	t := deploy.Trigger{Cause: deployment.ByAPI}
	if b := in.Body; b != nil {
		t.Branch, t.Commit, t.Target, t.ClearCache, t.Title = b.Branch, b.Commit, deployment.Target(b.Target), b.ClearCache, b.Title
	}
	d, err := a.Deployments.TriggerTx(ctx, tx, c.Owner, in.ID, t)
	if err == nil {
		err = contract.MayDeploy(c, d)
	}
	if err == nil {
		err = a.Deployments.LimitTx(ctx, tx, c, d)
	}
	did = audit.Event{Action: "deployment.triggered", Subject: string(d.ID)}
	return contract.Triggered{Message: "Deployment triggered", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}

func (a *API) stopSite(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
) (_ siteBody, did audit.Event, _ error) {
	out, err := a.switchSite(ctx, tx, c, in, a.Sites.StopTx)
	return out, audit.Event{Action: "site.stopped", Subject: string(in.ID)}, err
}

func (a *API) startSite(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
) (_ siteBody, did audit.Event, _ error) {
	out, err := a.switchSite(ctx, tx, c, in, a.Sites.StartTx)
	return out, audit.Event{Action: "site.started", Subject: string(in.ID)}, err
}

func (a *API) switchSite(ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
	do func(context.Context, *db.Tx, account.OwnerID, site.ID) (site.Site, error),
) (siteBody, error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return siteBody{}, err
	}
	s, err := do(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return siteBody{}, err
	}
	return a.showSite(ctx, tx, s)
}

type rollbackSiteIn struct {
	contract.ByID[site.ID]
	Body *struct {
		DeploymentID string `json:"deploymentId,omitempty" doc:"The deployment to return to."`
	}
}

func (a *API) rollbackSite(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *rollbackSiteIn,
) (_ contract.Triggered, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Triggered{}, did, err
	}
	var to deployment.ID
	if in.Body != nil && in.Body.DeploymentID != "" {
		to = deployment.ParseID(in.Body.DeploymentID)
	}
	d, err := a.Deployments.RollbackTx(ctx, tx, c.Owner, in.ID, to)
	did = audit.Event{Action: "deployment.rolled_back", Subject: string(d.ID)}
	return contract.Triggered{Message: "Site rolled back", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}

func (a *API) showNewSite(s *site.Site) NewSiteBody {
	b := NewSiteBody{
		ID:            s.ID,
		Name:          s.Name,
		Slug:          s.Slug,
		Type:          string(s.Type),
		Runtime:       s.Runtime,
		Status:        string(s.Status),
		StatusReason:  contract.Some(s.StatusReason),
		URL:           a.Sites.URL(s.Slug),
		Subdomain:     s.Slug,
		Source:        contract.Some(s.Source()),
		Framework:     contract.Some(s.Framework),
		Build:         s.Build,
		Run:           s.Run,
		Tags:          s.Tags,
		HasCredential: s.Credential,
		NeedsRedeploy: s.NeedsRedeploy,
		Deployment:    contract.Some(string(s.LiveDeployment)),
		CreatedAt:     s.CreatedAt.String(),
	}
	if s.Repository != "" {
		b.Repository = &repository{s.Repository, contract.Some(s.Branch)}
	}
	return b
}

func (a *API) showSite(ctx context.Context, r db.Reader, s site.Site) (siteBody, error) {
	all, err := a.showSites(ctx, r, []site.Site{s})
	if err != nil {
		return siteBody{}, err
	}
	return all[0], nil
}

// showSites returns the bodies of an owner's sites.
func (a *API) showSites(ctx context.Context, r db.Reader, list []site.Site) ([]siteBody, error) {
	out := make([]siteBody, len(list))
	if len(list) == 0 {
		return out, nil
	}
	ids, names, slugs := make([]site.ID, len(list)), make([]site.ID, len(list)), make([]string, len(list))
	for i := range list {
		ids[i], names[i], slugs[i] = list[i].ID, list[i].ID, list[i].Slug
	}
	domains, err := a.Domains.Summaries(ctx, r, list[0].Owner, names)
	if err != nil {
		return nil, err
	}
	schedules, err := a.Backups.Schedules(ctx, r, list[0].Owner, ids)
	if err != nil {
		return nil, err
	}
	certificates, err := a.Certificates.Of(ctx, r, slugs)
	if err != nil {
		return nil, err
	}
	for i := range list { // in place: bodies are large, and there are many
		s, b, c := &list[i], &out[i], certificates.Of(slugs[i])
		b.NewSiteBody = a.showNewSite(s)
		b.Domains = contract.Each(domains[names[i]], func(d domain.Summary) domainSummary {
			return domainSummary{d.ID, d.Name, string(d.Status)}
		})
		b.Process = programs.ShowProcess(a.Apps, s)
		b.SSL = siteSSL{
			string(c.State), contract.Some(c.Reason), contract.Some(c.Issuer), contract.When(c.NotAfter),
			contract.When(c.NextAttempt),
		}
		b.Backups = showSchedule(schedules.Of(ids[i]))
		b.UpdatedAt = s.UpdatedAt.String()
	}
	return out, nil
}

// newWordPress holds the settings of a new WordPress.
type newWordPress struct {
	Title      string `json:"title,omitempty" doc:"Title. Default: the site's name."`
	AdminEmail string `json:"adminEmail,omitempty" doc:"The administrator's email address. Default: yours."`
	AdminUser  string `json:"adminUser,omitempty" doc:"The administrator's username. Default: derived from the email address."`
	Locale     string `json:"locale,omitempty" example:"de_DE" doc:"Language. Default: English."`
	Version    string `json:"version,omitempty" doc:"Only the version that the installation offers."`
}
