package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

func webhook() kind {
	item := byID("/webhooks", "id")
	return kind{
		name:  "webhook",
		about: "A webhook: a URL that receives events.",
		attributes: map[string]schema.Attribute{
			"id":                str(shown, "The webhook's id."),
			"url":               str(required, "The address, which must use HTTPS."),
			"events":            words(required, "Event types, such as deployment.completed."),
			"site_ids":          words(optional, "Only events of these sites. Default: all sites."),
			"active":            flag(kept, "Whether events are sent. Default: true."),
			"secret_wo":         secret("Signing secret, 1 to 256 characters. Default: generated, and shown in the dashboard."),
			"secret_wo_version": version("secret_wo"),
			"disabled_reason":   str(live, "Why the server disabled it: gone or failing."),
			"created_at":        str(shown, "When it was created."),
		},
		all:  func(values) string { return "/webhooks" },
		item: item,
		read: func(ctx context.Context, c *client, v values) (values, error) {
			return c.find(ctx, "/webhooks", text(v["id"]), "id")
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			return c.find(ctx, "/webhooks", id, "id")
		},
		create: func(ctx context.Context, c *client, _, body values) (values, error) {
			active := body["active"]
			delete(body, "active")
			got, err := c.change(ctx, http.MethodPost, "/webhooks", body)
			if err != nil || active != false {
				return got, err
			}
			return orMade(got)(c.change(ctx, http.MethodPatch, item(got), values{"active": false}))
		},
		// Changing the secret is a rotation: both secrets sign deliveries for a day.
		change: func(ctx context.Context, c *client, state, body values) (values, error) {
			if secret, has := body["secret"]; has {
				if _, err := c.change(ctx, http.MethodPost, item(state)+"/rotate-secret", values{"secret": secret}); err != nil {
					return nil, err
				}
				delete(body, "secret")
			}
			return c.change(ctx, http.MethodPatch, item(state), body)
		},
	}
}

// orMade returns a function that replaces a failed step's result by made, so that the created object isn't lost.
func orMade(made values) func(values, error) (values, error) {
	return func(now values, err error) (values, error) {
		if err != nil {
			return made, err
		}
		return now, nil
	}
}
