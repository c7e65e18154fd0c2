// Package terraform owns the configuration for Terraform and OpenTofu that slipway export terraform writes: an
// account's objects as resources, each with its import block.
//
// Planning it changes nothing. Secret values, which can't be read, become variables. What the token can't read is left
// out with a comment.
package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"slipway/internal/client/rest"
	texts "slipway/internal/platform/text"
)

// object is an API object by field.
type object = map[string]any

// export writes a configuration.
type export struct {
	c     *rest.Client
	out   strings.Builder
	used  map[string]bool   // labels in use, with their type
	sites map[string]string // references by site id
	vars  []string          // variables for secret values
}

// Write writes the configuration of everything that c's user owns.
func Write(ctx context.Context, c *rest.Client, w io.Writer) error {
	e := &export{c: c, used: map[string]bool{}, sites: map[string]string{}}
	sites, err := e.list(ctx, "sites", "/sites")
	if err != nil {
		return err
	}
	for _, s := range sites {
		if err := e.site(ctx, s); err != nil {
			return err
		}
	}
	if err := e.domains(ctx); err != nil {
		return err
	}
	if err := e.webhooks(ctx); err != nil {
		return err
	}
	if err := e.notifications(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(w, e.head()+e.out.String())
	return err
}

// head returns the start of the file.
func (e *export) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, `terraform {
  required_version = ">= 1.11"
  required_providers {
    slipway = {
      source = "slipway.internal/slipway/slipway"
    }
  }
}

provider "slipway" {
  server = %s
}
`, quote(e.c.Server()))
	if len(e.vars) > 0 {
		b.WriteString("\n# Values of secrets can't be read. To set one from here, give its variable a value and raise value_wo_version.\n")
	}
	for _, name := range e.vars {
		fmt.Fprintf(&b, "\nvariable %s {\n  type      = string\n  default   = \"\"\n  sensitive = true\n  ephemeral = true\n}\n", quote(name))
	}
	return b.String()
}

// list reads all entries, or writes a comment if the token may not.
func (e *export) list(ctx context.Context, what, path string) ([]object, error) {
	all, err := e.c.List(ctx, path)
	var no *rest.Error
	if errors.As(err, &no) && no.Status == http.StatusForbidden {
		fmt.Fprintf(&e.out, "\n# Left out: %s. %s\n", oneLine(what), oneLine(no.Error()))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]object, len(all))
	for i, text := range all {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		if err := d.Decode(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// oneLine makes a server's text safe for a one-line comment.
func oneLine(s string) string { return texts.Printable(strings.Join(strings.Fields(s), " ")) }

func (e *export) site(ctx context.Context, s object) error {
	id, slug := text(s["id"]), text(s["slug"])
	repository, _ := s["repository"].(object)
	label := e.resource("slipway_site", slug, id, fields{
		{"name", s["name"]},
		{"type", s["type"]},
		{"repository", repository["url"]},
		{"branch", repository["branch"]},
		{"framework", s["framework"]},
		{"build", pick(s["build"], "command", "install", "output", "root", "node", "depth")},
		{"run", pick(s["run"], "command", "release", "health_check", "sleep_after_seconds", "memory_mib", "cpus",
			"pids", "instances", "storage", "storage_mib", "ports", "request_mib", "response_seconds", "terminal",
			"drain_seconds")},
		{"backups", pick(s["backups"], "every", "at", "keep")},
		{"tags", s["tags"]},
	})
	e.sites[id] = "slipway_site." + label + ".id"
	of := fields{{"site_id", verbatim(e.sites[id])}}
	below := "/sites/" + id

	vars, err := e.list(ctx, "variables of "+slug, below+"/env")
	if err != nil {
		return err
	}
	for _, v := range vars {
		key := text(v["key"])
		attributes := append(of[:1:1], field{"key", key})
		if v["secret"] == true {
			name := e.label("variable", slug+"_"+key)
			e.vars = append(e.vars, name)
			attributes = append(attributes, field{"value_wo", verbatim("var." + name)}, field{"value_wo_version", json.Number("0")})
		} else {
			attributes = append(attributes, field{"value", v["value"]})
		}
		attributes = append(attributes, field{"secret", v["secret"]}, field{"targets", v["target"]}, field{"branch", v["branch"]})
		e.resource("slipway_env", slug+"_"+key, id+"/"+text(v["id"]), attributes)
	}

	databases, err := e.list(ctx, "databases of "+slug, below+"/databases")
	if err != nil {
		return err
	}
	for _, d := range databases {
		name := text(d["name"])
		e.resource("slipway_database", slug+"_"+name, id+"/"+name, append(of[:1:1], field{"engine", d["engine"]}, field{"name", name}))
	}

	hooks, err := e.list(ctx, "deploy hooks of "+slug, below+"/hooks")
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, h := range hooks {
		name := text(h["name"])
		if names[name] { // its id is a secret, which must not be in the file
			fmt.Fprintf(&e.out, "\n# Left out: a second deploy hook of %s with the name %s.\n", oneLine(slug), quote(name))
			continue
		}
		names[name] = true
		e.resource("slipway_deploy_hook", slug+"_"+name, id+"/"+name, append(
			of[:1:1], field{"name", name}, field{"branch", h["branch"]}, field{"any_branch", h["anyBranch"]}, field{"title", h["title"]},
			field{"clear_cache", h["clearCache"]}, field{"addresses", h["addresses"]}, field{"per_minute", h["perMinute"]},
			field{"per_day", h["perDay"]}, field{"active", h["active"]},
		))
	}
	return nil
}

func (e *export) domains(ctx context.Context) error {
	all, err := e.list(ctx, "domains", "/domains")
	for _, d := range all {
		e.resource("slipway_domain", text(d["name"]), text(d["id"]), fields{
			{"site_id", e.siteOf(d["siteId"])}, {"name", d["name"]}, {"redirect_to", d["redirectTo"]}, {"primary", d["primary"]},
		})
	}
	return err
}

func (e *export) webhooks(ctx context.Context) error {
	all, err := e.list(ctx, "webhooks", "/webhooks")
	for _, w := range all {
		host, _, _ := strings.Cut(strings.TrimPrefix(text(w["url"]), "https://"), "/")
		e.resource("slipway_webhook", host, text(w["id"]), fields{
			{"url", w["url"]}, {"events", w["events"]}, {"site_ids", e.sitesOf(w["siteIds"])}, {"active", w["active"]},
		})
	}
	return err
}

// notifications omits the address of chat channels, which is a secret; importing keeps it.
func (e *export) notifications(ctx context.Context) error {
	all, err := e.list(ctx, "notification channels", "/notifications")
	for _, n := range all {
		e.resource("slipway_notification", text(n["name"]), text(n["id"]), fields{
			{"kind", n["kind"]},
			{"name", n["name"]},
			{"email", n["email"]},
			{"site_ids", e.sitesOf(n["siteIds"])},
			{"events", n["events"]},
			{"active", n["active"]},
		})
	}
	return err
}

// sitesOf replaces site ids by references.
func (e *export) sitesOf(ids any) (sites []any) {
	list, _ := ids.([]any)
	for _, id := range list {
		sites = append(sites, e.siteOf(id))
	}
	return sites
}

// siteOf replaces a site id by a reference if the site has a resource.
func (e *export) siteOf(id any) any {
	if reference, ok := e.sites[text(id)]; ok {
		return verbatim(reference)
	}
	return id
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
