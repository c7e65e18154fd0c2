package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// deployHook has no attribute id, since a hook's ID is secret and Terraform prints IDs.
func deployHook() kind {
	id, url := str(shown, "The hook's id, which is a part of its URL."), str(live, "A POST to it deploys the site, without an API key.")
	id.Sensitive, url.Sensitive = true, true
	item := byID("/hooks", "hook_id")
	read := func(ctx context.Context, c *client, v values) (values, error) {
		return hook(c.find(ctx, bySite("/hooks")(v), text(v["hook_id"]), "id"))
	}
	return kind{
		name:  "deploy_hook",
		about: "A deploy hook of a site: a URL that deploys it. The URL is in the state, since it is what other resources use.",
		attributes: map[string]schema.Attribute{
			"hook_id":           id,
			"site_id":           str(fixed, "The site."),
			"name":              str(required, "1 to 100 characters."),
			"branch":            str(optional, "The branch to deploy. Default: the site's."),
			"any_branch":        flag(kept, "Whether callers may name another branch."),
			"title":             str(optional, "Default title of its deployments."),
			"clear_cache":       flag(kept, "Whether it always builds without the cache."),
			"addresses":         words(optional, "Addresses or CIDR ranges that may call it. Default: any."),
			"per_minute":        whole(kept, "Calls per minute. 0: the installation's rate limit."),
			"per_day":           whole(kept, "Calls per day (UTC)."),
			"active":            flag(kept, "Whether it can be called. Default: true."),
			"secret_wo":         secret("Signing secret: callers must sign the body with it."),
			"secret_wo_version": version("secret_wo"),
			"url":               url,
			"created_at":        str(shown, "When it was created."),
		},
		all:  bySite("/hooks"),
		item: item,
		read: read,
		find: func(ctx context.Context, c *client, id string) (values, error) {
			of, name, ok := strings.Cut(id, "/")
			if !ok {
				return nil, errors.New("name it as site/name")
			}
			s, err := findSite(ctx, c, of)
			if s == nil || err != nil {
				return nil, err
			}
			return hook(c.find(ctx, "/sites/"+escape(text(s["id"]))+"/hooks", name, "id", "name"))
		},
		create: func(ctx context.Context, c *client, plan, body values) (values, error) {
			active := body["active"]
			delete(body, "active")
			got, err := hook(c.change(ctx, http.MethodPost, bySite("/hooks")(plan), body))
			if err != nil || active != false {
				return got, err
			}
			return orMade(got)(hook(c.change(ctx, http.MethodPatch, "/hooks/"+escape(text(got["id"])), values{"active": false})))
		},
		change: func(ctx context.Context, c *client, state, body values) (values, error) {
			return hook(c.change(ctx, http.MethodPatch, item(state), body))
		},
	}
}

// hook converts a deploy hook to its resource's form.
func hook(got values, err error) (values, error) {
	if err != nil || got == nil {
		return nil, err
	}
	got = cloned(got)
	got["hookId"] = got["id"]
	if got["perMinute"] == nil {
		got["perMinute"] = zero
	}
	return got, nil
}
