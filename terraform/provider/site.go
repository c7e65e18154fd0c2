package provider

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func kinds() []kind {
	return []kind{site(), env(), domain(), webhook(), deployHook(), database(), deployment(), domainVerification(), notification()}
}

func bySite(of string) func(values) string {
	return func(v values) string { return "/sites/" + escape(text(v["site_id"])) + of }
}

func byID(of, id string) func(values) string {
	return func(v values) string { return of + "/" + escape(text(v[id])) }
}

var siteStatuses = []string{"pending", "provisioning", "active", "error", "stopped"}

func site() kind {
	return kind{
		name:  "site",
		about: "A site. Its first deployment begins when it is created, unless deploy_on_create is false; later ones by pushes, or by slipway_deployment.",
		attributes: map[string]schema.Attribute{
			"id":         str(shown, "The site's id."),
			"name":       str(required, "Display name, 1 to 100 characters. The address stays the same when it changes."),
			"type":       str(chosen, "static, which are also Node.js and PHP applications, or wordpress. Default: static."),
			"repository": str(kept, "The Git repository, host/owner/repo. An empty one makes a static site that is deployed from uploads."),
			"branch":     str(kept, "The production branch. Default: the repository's."),
			deployFirst: flag(optional, "Whether a site with a repository is deployed when it is created. Default: true. "+
				"False leaves the first deployment to a push or to slipway_deployment, which can come after the site's variables."),
			"source":    str(live, "git or upload: where a static site's files come from. A static site without a repository is created for uploads."),
			"framework": str(kept, "Framework preset. Default: detected."),
			"build": group(kept, "Build settings. Those that aren't set are detected; an empty text resets one.", map[string]schema.Attribute{
				"command": str(kept, "Build command."),
				"install": str(kept, "Install command."),
				"output":  str(kept, "Output directory."),
				"root":    str(kept, "Root directory."),
				"node":    str(kept, "Node.js version."),
				"depth":   str(kept, "How many commits of history builds see: 1 to 10000, or full."),
			}),
			"run": group(kept, "Settings of the site's application.", map[string]schema.Attribute{
				"command": str(kept, "Start command."),
				"release": str(kept, "Release command, which runs once per deployment before it goes live."),
				"health_check": group(kept, "The check that the application must pass before it goes live.", map[string]schema.Attribute{
					"path":            str(kept, "Path that must return a non-5xx status."),
					"timeout_seconds": whole(kept, "Timeout, 1 to 600."),
				}),
				"sleep_after_seconds": whole(kept, "Stop the application after this long without requests. 0: never."),
				"memory_mib":          whole(kept, "Memory limit."),
				"cpus":                decimal(kept, "CPU limit."),
				"pids":                whole(kept, "Maximum number of processes and threads."),
				"instances": group(kept, "How many instances run side by side.", map[string]schema.Attribute{
					"min": whole(kept, "Instances that run while the application is awake, 1 to 10."),
					"max": whole(kept, "Up to how many run under load, 1 to 10. Node.js without storage only."),
				}),
				"storage":          words(kept, "Folders that the application can write to, kept across deployments."),
				"storage_mib":      whole(kept, "Maximum total size of these folders."),
				"ports":            set(kept, types.Int64Type, "Further ports of public hosts that the application can connect to."),
				"request_mib":      whole(kept, "Maximum size of a request body."),
				"response_seconds": whole(kept, "Time until the first byte of a response."),
				"terminal":         flag(kept, "Whether terminals can be opened in its sandbox."),
				"drain_seconds":    whole(kept, "Time that requests get to finish when another deployment takes over."),
			}),
			"backups": group(kept, "Backup schedule.", map[string]schema.Attribute{
				"every": str(kept, "off, hourly, daily or weekly."),
				"at":    str(kept, "Time of day in UTC, such as 03:00."),
				"keep": group(kept, "How many scheduled backups are kept.", map[string]schema.Attribute{
					"daily":   whole(kept, "Daily ones."),
					"weekly":  whole(kept, "Weekly ones."),
					"monthly": whole(kept, "Monthly ones."),
				}),
			}),
			"tags":       words(kept, "Words that group sites, in lower case."),
			protection:   protected("Whether deleting the site is refused. Default: true."),
			"slug":       str(shown, "The site's name in addresses."),
			"url":        str(live, "The site's address."),
			"runtime":    str(live, "How it is served: static, node, php or wordpress."),
			"status":     str(live, "pending, provisioning, active, error or stopped."),
			"created_at": str(shown, "When it was created."),
		},
		known: map[string][]string{
			"type": {"static", "wordpress"}, "source": {"git", "upload"}, "status": siteStatuses,
			"runtime": {"static", "node", "php", "wordpress"},
		},
		local: []string{deployFirst},
		all:   func(values) string { return "/sites" },
		item:  byID("/sites", "id"),
		read: func(ctx context.Context, c *client, v values) (values, error) {
			got, err := c.site(ctx, text(v["id"]))
			return flat(got), err
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			got, err := findSite(ctx, c, id)
			return flat(got), err
		},
		create: createSite,
		change: func(ctx context.Context, c *client, state, body values) (values, error) {
			got, err := c.change(ctx, http.MethodPatch, byID("/sites", "id")(state), body)
			return flat(got), err
		},
	}
}

// deployFirst is the attribute that says whether a new site is deployed immediately.
const deployFirst = "deploy_on_create"

// createSite creates a site, and then sets what the server only accepts in a change: the backup schedule, and the
// repository of a site that isn't to be deployed yet, since creating a site with a repository deploys it.
func createSite(ctx context.Context, c *client, plan, body values) (values, error) {
	later := values{}
	move := func(names ...string) {
		for _, name := range names {
			if body[name] != nil {
				later[name] = body[name]
			}
			delete(body, name)
		}
	}
	move("backups")
	if plan[deployFirst] == false && text(plan["type"]) != "wordpress" {
		move("repository", "branch")
	}
	if body["type"] == nil {
		body["type"] = "static"
	}
	if body["type"] == "static" && text(body["repository"]) == "" {
		body["source"] = "upload"
	}
	got, err := c.change(ctx, http.MethodPost, "/sites", body)
	made, _ := got["data"].(map[string]any)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return nil, errors.New("the server's answer has no site")
	}
	item := "/sites/" + escape(text(made["id"]))
	var now values
	if len(later) > 0 {
		now, err = c.change(ctx, http.MethodPatch, item, later)
	} else {
		now, err = c.get(ctx, item)
	}
	if err != nil {
		return flat(made), err // return the created site, so that Terraform taints it instead of losing it
	}
	return flat(now), nil
}

// flat moves a site's repository and branch to the top level, as in its resource.
func flat(site values) values {
	if site == nil {
		return nil
	}
	r, _ := site["repository"].(map[string]any)
	site = cloned(site)
	site["repository"], site["branch"] = r["url"], r["branch"]
	return site
}

// findSite returns a site by ID or slug, or nil.
func findSite(ctx context.Context, c *client, id string) (values, error) {
	if strings.HasPrefix(id, "site_") {
		return c.site(ctx, id)
	}
	return c.find(ctx, "/sites?search="+url.QueryEscape(id), id, "slug")
}

func env() kind {
	return kind{
		name:  "env",
		about: "A variable of a site. It takes effect on the next deployment.",
		attributes: map[string]schema.Attribute{
			"id":      str(shown, "The variable's id."),
			"site_id": str(fixed, "The site."),
			"key":     str(fixed, "Letters, digits and underscores, not beginning with a digit."),
			"value": schema.StringAttribute{
				Optional: true, Sensitive: true,
				Description: "The value. It is stored in the state: use value_wo for secrets. Exactly one of both must be set.",
			},
			"value_wo":         secret("The value."),
			"value_wo_version": version("value_wo"),
			"secret":           flag(kept, "Whether the value is never shown again, and redacted from logs. Default: true with value_wo, false with value."),
			"targets":          words(kept, "Where it is available: build, runtime or both; production or preview restrict it to that target. Default: build and runtime."),
			"branch":           str(optional, "Only previews of this branch, or of branches that match: * matches any characters."),
		},
		all:  bySite("/env"),
		item: func(v values) string { return bySite("/env/")(v) + escape(text(v["id"])) },
		check: func(config values, say *diag.Diagnostics) {
			value, hidden := config["value"], config["value_wo"]
			switch {
			case value == nil && hidden == nil || value != nil && hidden != nil && value != (unknown{}) && hidden != (unknown{}):
				say.AddAttributeError(path.Root("value"), "Set either value or value_wo", "Exactly one of them must be set.")
			case hidden != nil && config["value_wo_version"] == nil:
				say.AddAttributeError(path.Root("value_wo_version"), "Set value_wo_version",
					"A plan can't see that a write-only value changed: begin with 1, and increase it when the value changes.")
			}
		},
		plan: func(config, plan values) values {
			if config["secret"] == nil && plan["id"] == (unknown{}) {
				plan["secret"] = config["value"] == nil
			}
			return plan
		},
		create: func(ctx context.Context, c *client, plan, body values) (values, error) {
			have, err := readEnv(ctx, c, plan)
			if err != nil {
				return nil, err
			}
			if have != nil { // otherwise the server would replace it
				return nil, errors.New("the site has a variable " + text(plan["key"]) + " for this target already: import it as " +
					text(plan["site_id"]) + "/" + text(have["id"]))
			}
			got, err := c.change(ctx, http.MethodPost, bySite("/env")(plan), retarget(body))
			return variable(got, text(plan["site_id"])), err
		},
		change: func(ctx context.Context, c *client, state, body values) (values, error) {
			got, err := c.change(ctx, http.MethodPatch, env().item(state), retarget(body))
			return variable(got, text(state["site_id"])), err
		},
		read: readEnv,
		find: findEnv,
	}
}

// retarget renames targets to the API's name.
func retarget(body values) values {
	if targets, has := body["targets"]; has {
		body["target"] = targets
		delete(body, "targets")
	}
	return body
}

// variable converts a variable to its resource's form.
func variable(got values, site string) values {
	if got == nil {
		return nil
	}
	got = cloned(got)
	got["targets"], got["siteId"] = got["target"], site
	if got["value"] == nil {
		delete(got, "value") // keep the state's value
	}
	return got
}

// readEnv returns a variable by ID, or the existing one in a new one's slot.
func readEnv(ctx context.Context, c *client, v values) (values, error) {
	all, err := c.list(ctx, bySite("/env")(v))
	for _, have := range all {
		id := text(v["id"])
		if id == text(have["id"]) || id == "" && have["key"] == v["key"] && same(have["branch"], v["branch"]) &&
			only(have["target"]) == only(v["targets"]) {
			return variable(have, text(v["site_id"])), nil
		}
	}
	return nil, err
}

// only returns the target that a variable is limited to, or "".
func only(targets any) string {
	for _, t := range list(targets) {
		if t == "production" || t == "preview" {
			return text(t)
		}
	}
	return ""
}

// findEnv finds a variable by site/key, or by site/id if the key has several values.
func findEnv(ctx context.Context, c *client, id string) (values, error) {
	of, key, ok := strings.Cut(id, "/")
	if !ok {
		return nil, errors.New("name it as site/key")
	}
	s, err := findSite(ctx, c, of)
	if s == nil || err != nil {
		return nil, err
	}
	all, err := c.list(ctx, "/sites/"+escape(text(s["id"]))+"/env")
	var found []values
	for _, v := range all {
		if v["id"] == key {
			return variable(v, text(s["id"])), nil
		}
		if v["key"] == key {
			found = append(found, v)
		}
	}
	if len(found) > 1 {
		var ids []string
		for _, v := range found {
			ids = append(ids, of+"/"+text(v["id"]))
		}
		return nil, errors.New("the key has several values: import one of " + strings.Join(ids, ", "))
	}
	if len(found) == 0 || err != nil {
		return nil, err
	}
	return variable(found[0], text(s["id"])), nil
}
