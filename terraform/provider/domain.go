package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

func domain() kind {
	return kind{
		name: "domain",
		about: "A domain of a site. It is served once one of the records in verification proves that it is yours; the provider " +
			"doesn't wait for that, so that another provider can set them in the same run.",
		attributes: map[string]schema.Attribute{
			"id":            str(shown, "The domain's id."),
			"site_id":       str(required, "The site. Another one takes the domain over without interruption."),
			"name":          str(fixed, "A host name, or a wildcard such as *.example.com, in lower case."),
			"redirect_to":   str(optional, "Host that visitors are redirected to."),
			"primary":       flag(kept, "Whether it is the site's primary domain. Default: the first one is."),
			"status":        str(live, "pending, active or failed."),
			"status_reason": str(live, "Why it is not active, or will stop being active."),
			"ssl_status":    str(live, "pending, active, failed or expired."),
			"verification":  records("Records that prove ownership; one of them is enough."),
			"dns":           records("Records that send traffic to Slipway, and for a wildcard the one that its certificate needs."),
		},
		known: map[string][]string{"status": {"pending", "active", "failed"}, "ssl_status": {"pending", "active", "failed", "expired"}},
		all:   bySite("/domains"),
		item:  byID("/domains", "id"),
		read: func(ctx context.Context, c *client, v values) (values, error) {
			return c.find(ctx, "/domains", text(v["id"]), "id")
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			return c.find(ctx, "/domains", id, "id", "name")
		},
	}
}
