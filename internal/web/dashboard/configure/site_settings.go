package configure

import (
	"context"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/project"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// Routes lists the routes of a site's setup.
func (d *Pages) Routes() []shell.Route {
	rs := []shell.Route{
		shell.Get("/sites/{id}/rules", shell.User, d.rulesPage).Takes(account.SitesRead),
		shell.Post("/sites/{id}/rules", shell.User, d.saveServing, d.rulesPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/restart", shell.User, d.restartSite, nil).Takes(account.SitesWrite),
		shell.Get("/sites/{id}/settings", shell.User, d.settingsPage).Takes(account.SitesRead),
		shell.Post("/sites/{id}/settings", shell.User, d.saveSettings, d.settingsPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/delete", shell.User, d.deleteSite, d.settingsPage).Takes(account.SitesWrite).Least(account.RoleManager),
	}
	for _, more := range [][]shell.Route{
		d.domainRoutes(),
		d.transferRoutes(),
		d.envRoutes(),
		d.databaseRoutes(),
		d.consoleRoutes(),
		d.backupRoutes(),
		d.deletedRoutes(),
		d.hookRoutes(),
		d.gitRoutes(),
	} {
		rs = append(rs, more...)
	}
	return rs
}

type settingsData struct {
	sites.SiteHead
	Presets []framework.Preset
	Storage sites.Storage
	Plan    framework.Plan // of the live deployment, or else the newest
	TOML    site.Run       // settings in its slipway.toml

	Restricted bool // the person may only change some sites, so another repository needs its own credential
}

// Build returns one of the owner's build settings; "" means as detected.
func (s settingsData) Build(name string) string {
	v := map[string]*string{
		"root": s.Site.Build.Root, "install": s.Site.Build.Install, "command": s.Site.Build.Command,
		"output": s.Site.Build.Output, "node": s.Site.Build.Node, "depth": s.Site.Build.Depth,
	}[name]
	if v == nil {
		return ""
	}
	return *v
}

// Known reports whether the framework is in the list.
func (s settingsData) Known() bool {
	for _, p := range s.Presets {
		if p.ID == s.Site.Framework {
			return true
		}
	}
	return s.Site.Framework == ""
}

func (d *Pages) settingsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "settings")
	data := settingsData{SiteHead: head, Presets: framework.Presets()}
	if as, err := q.Caller.For(account.SitesWrite, ""); err == nil {
		data.Restricted = as.RequireAllSites() != nil
	}
	if err == nil && head.HasProgram() && d.Programs != nil {
		data.Storage, err = d.Programs.Storage(ctx, head.Site.ID)
	}
	if err == nil {
		data.Plan, err = d.planOf(ctx, q, head)
		data.TOML = project.RunSettings(data.Plan.Run)
	}
	return shell.Page("site_settings", "Settings of "+head.Site.Name, data), err
}

// saveSettings saves one section of the settings.
func (d *Pages) saveSettings(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "settings")
	if err != nil {
		return shell.Answer{}, err
	}
	text := func(name string) *string {
		v := strings.TrimSpace(q.Value(name))
		return &v
	}
	var p site.Patch
	part := q.Value("part")
	switch part {
	case "name":
		p.Name = text("name")
		if err := d.nameIsFree(ctx, q, head.Site.Name, *p.Name); err != nil {
			return shell.Answer{}, err
		}
		if q.PostForm.Has("tags") {
			tags := strings.Split(q.Value("tags"), ",")
			p.Tags = &tags
		}
	case "source":
		p.Repository = text("repository")
		if *p.Repository != "" {
			p.Branch = text("branch")
		}
		p.Credential = credentialForm(q)
	case "credential":
		p.Credential = credentialForm(q)
		if p.Credential == nil {
			return shell.Answer{}, shell.At("token", fault.New(fault.Invalid, "",
				"Enter an access token or a deploy key", "to delete the stored credential, use Remove credential"))
		}
	case "forget":
		p.Credential = &fetch.Credential{}
	case "build":
		p.Framework = text("framework")
		p.Build = &site.Build{
			Root:    text("build_root"),
			Install: text("build_install"),
			Command: text("build_command"),
			Output:  text("build_output"),
			Node:    text("build_node"),
			Depth:   text("build_depth"),
		}
	case "run", "storage", "closed", "php", "ports":
		if p.EditRun, err = runForm(q, part); err != nil {
			return shell.Answer{}, err
		}
	case "keep": // of a folder that the program wrote to
		plan, err := d.planOf(ctx, q, head)
		if err != nil {
			return shell.Answer{}, err
		}
		folder := q.Value("folder")
		p.EditRun = func(r *site.Run) {
			list := slices.Clone(project.Storage(head.Site, plan))
			if !slices.Contains(list, folder) {
				list = append(list, folder)
			}
			r.Storage = &list
		}
	default:
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Unknown settings form"}
	}
	said := "Saved"
	if p.EditRun != nil {
		said = "Saved. Takes effect the next time the application starts"
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		now, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, head.Site.ID)
		if err != nil {
			return audit.Event{}, err
		}
		own, err := now.Repoints(q.Caller, p)
		if err != nil {
			return audit.Event{}, err
		}
		s, err := d.Sites.UpdateTx(ctx, tx, q.Caller.Owner, head.Site.ID, p)
		if err == nil && own { // otherwise the connected account would open the repository once the credential is removed
			err = d.Connections.UseTx(ctx, tx, q.Caller.Owner, s.ID, s.Repository, connection.Use{})
		}
		if err == nil && p.EditRun != nil {
			err = d.Deployments.CheckInstances(ctx, tx, s)
		}
		if head.Site.Credential && !s.Credential && part == "source" {
			said = "Saved. The stored credential was for the old host and has been removed"
		}
		return audit.Event{Action: "site.updated", Subject: string(s.ID), Detail: part}, err
	})
	to := "/settings"
	if part == "source" && q.Value("then") == "git" {
		to = "/git" // the form's page
	}
	if part == "keep" {
		to = "/logs"
	}
	return shell.GoTo(head.Base()+to, said), atTags(atRun(sites.AtBuild(err)))
}

// credentialForm reads a credential from a form, or returns nil.
func credentialForm(q *shell.Request) *fetch.Credential {
	text := func(name string) string { return strings.TrimSpace(q.Value(name)) }
	c := fetch.Credential{Token: text("token"), User: text("token_user"), DeployKey: text("deploy_key")}
	if c.DeployKey != "" {
		c.DeployKey += "\n"
	}
	if c.Token == "" && c.DeployKey == "" {
		return nil
	}
	return &c
}

// nameIsFree refuses the name of another of the owner's sites.
func (d *Pages) nameIsFree(ctx context.Context, q *shell.Request, was, name string) error {
	if strings.EqualFold(was, name) {
		return nil
	}
	free, err := d.Sites.FreeName(ctx, d.DB, q.Caller.Owner, name)
	if err == nil && free != name {
		err = sites.NameTaken(name, free)
	}
	return err
}

// atTags assigns a fault to the tags field.
func atTags(err error) error {
	if f := fault.As(err); f != nil && f.Code == "invalid_tags" {
		return shell.At("tags", err)
	}
	return err
}

// deleteSite deletes a site after its name was typed.
func (d *Pages) deleteSite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "settings")
	if err != nil {
		return shell.Answer{}, err
	}
	if err := sites.Confirmed(q, head.Site, "nothing was deleted"); err != nil {
		return shell.Answer{}, err
	}
	if q.Checked("backup") {
		err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
			_, err := d.Backups.DeleteSiteTx(ctx, tx, q.Caller.Owner, head.Site.ID)
			return audit.Event{Action: "site.deleted", Subject: string(head.Site.ID), Detail: head.Site.Name}, err
		})
		return shell.GoTo("/deleted", "Backing up "+head.Site.Name+", then deleting it"), err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{
			Action:  "site.deleted",
			Subject: string(head.Site.ID),
			Detail:  head.Site.Name,
		}, d.Sites.DeleteTx(ctx, tx, q.Caller.Owner, head.Site.ID)
	})
	return shell.GoTo("/", "Deleted "+head.Site.Name), err
}
