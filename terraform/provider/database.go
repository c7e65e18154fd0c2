package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

func database() kind {
	return kind{
		name:  "database",
		about: "A database of a site. Its programs connect to it by the variables that env names.",
		attributes: map[string]schema.Attribute{
			"id":         str(shown, "The database's id."),
			"site_id":    str(fixed, "The site."),
			"engine":     str(chosen, "mariadb, which is the default."),
			"name":       str(chosen, "Lowercase letters, digits and underscores, unique in the site. Default: main."),
			protection:   protected("Whether deleting the database is refused. Default: true."),
			"env":        words(live, "Names of the variables that the site's programs connect with."),
			"status":     str(live, "creating, active or error."),
			"created_at": str(shown, "When it was created."),
		},
		known: map[string][]string{"engine": {"mariadb"}, "status": {"creating", "active", "error"}},
		all:   bySite("/databases"),
		item:  byID("/databases", "id"),
		read: func(ctx context.Context, c *client, v values) (values, error) {
			return c.find(ctx, bySite("/databases")(v), text(v["id"]), "id")
		},
		find: func(ctx context.Context, c *client, id string) (values, error) {
			of, name, ok := strings.Cut(id, "/")
			if !ok {
				return nil, errors.New("name it as site/name")
			}
			s, err := findSite(ctx, c, of)
			if s == nil || err != nil {
				return nil, err
			}
			return c.find(ctx, "/sites/"+escape(text(s["id"]))+"/databases", name, "id", "name")
		},
		create: func(ctx context.Context, c *client, plan, body values) (values, error) {
			if body["engine"] == nil {
				body["engine"] = "mariadb"
			}
			return c.change(ctx, http.MethodPost, bySite("/databases")(plan), body)
		},
	}
}
