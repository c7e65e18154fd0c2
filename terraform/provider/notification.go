package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

func notification() kind {
	item := byID("/notifications", "id")
	// target renames the address of any kind to the API's name.
	target := func(body values) values {
		if address, has := body["email"]; has {
			body["target"] = address
			delete(body, "email")
		}
		return body
	}
	return kind{
		name:  "notification",
		about: "A notification channel: notifies people by email or in a chat of what needs their attention.",
		attributes: map[string]schema.Attribute{
			"id":                str(shown, "The channel's id."),
			"kind":              str(fixed, "slack, discord, teams or email."),
			"name":              str(kept, "1 to 100 characters."),
			"target_wo":         secret("URL of the incoming webhook of Slack, Discord or Teams. Required to create one."),
			"target_wo_version": version("target_wo"),
			"email":             str(optional, "Recipient of an email channel, who must confirm it. Default: the account's address."),
			"site_ids":          words(optional, "Only these sites. Default: all sites."),
			"events":            words(kept, "Events to notify of, such as deployment.failed. Default: all events."),
			"active":            flag(kept, "Whether notifications are sent. Default: true."),
			"confirmed":         flag(live, "Whether the recipient of an email channel has confirmed it."),
			"created_at":        str(shown, "When it was created."),
		},
		known: map[string][]string{"kind": {"slack", "discord", "teams", "email"}},
		all:   func(values) string { return "/notifications" },
		item:  item,
		check: func(config values, say *diag.Diagnostics) {
			kind, open := config["kind"].(string)
			switch {
			case !open:
			case kind == "email" && config["target_wo"] != nil:
				say.AddAttributeError(path.Root("target_wo"), "Set email instead", "An email channel has an address and no URL.")
			case kind != "email" && config["email"] != nil:
				say.AddAttributeError(path.Root("email"), "Remove email", "Only a channel of the kind email has an address.")
			case config["target_wo"] != nil && config["target_wo_version"] == nil:
				say.AddAttributeError(path.Root("target_wo_version"), "Set target_wo_version",
					"A plan can't see that a write-only value changed: begin with 1, and increase it when the value changes.")
			}
		},
		read: func(ctx context.Context, c *client, v values) (values, error) {
			return c.find(ctx, "/notifications", text(v["id"]), "id")
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			return c.find(ctx, "/notifications", id, "id", "name")
		},
		create: func(ctx context.Context, c *client, _, body values) (values, error) {
			active := body["active"]
			delete(body, "active")
			got, err := c.change(ctx, http.MethodPost, "/notifications", target(body))
			if err != nil || active != false {
				return got, err
			}
			return orMade(got)(c.change(ctx, http.MethodPatch, item(got), values{"active": false}))
		},
		change: func(ctx context.Context, c *client, state, body values) (values, error) {
			if ids, has := body["siteIds"]; has && empty(ids) {
				body["siteIds"] = nil // null means all sites
			}
			return c.change(ctx, http.MethodPatch, item(state), target(body))
		},
	}
}
