package terraform

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway/internal/client/rest"
)

// An account's resources are exported with references to each other and an import block each. Secrets become variables,
// and resources that the token can't read are listed.
func TestWrite(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/sites": `{"id": "site_a", "name": "The ${shop}", "slug": "the-shop", "type": "static", "repository": {"url": "git.test/a/b", "branch": "main"},
			"framework": null, "build": {"command": "make \"all\"\n", "mood": "calm"}, "run": {"memoryMiB": 256, "healthCheck": {"path": "/up"}},
			"backups": {"every": "daily", "at": "03:00", "keep": {"daily": 7, "weekly": 0, "monthly": 0}}, "tags": ["a", "b"]}`,
		"/sites/site_a/env": `{"id": "env_1", "key": "PLAIN", "value": "x", "secret": false, "target": ["build"], "branch": null},
			{"id": "env_2", "key": "KEY", "value": null, "secret": true, "target": ["runtime", "production"], "branch": null},
			{"id": "env_3", "key": "KEY", "value": null, "secret": true, "target": ["runtime", "preview"], "branch": "fix/*"}`,
		"/sites/site_a/databases": `{"id": "db_1", "engine": "mariadb", "name": "main"}`,
		"/sites/site_a/hooks":     "",
		"/domains":                `{"id": "dom_1", "name": "shop.example.com", "siteId": "site_a", "redirectTo": null, "primary": true}`,
		"/webhooks": `{"id": "hook_1", "url": "https://example.com/x", "events": ["deployment.completed"], "siteIds": ["site_a", "site_gone"],
			"active": true}`,
		"/notifications": `{"id": "nch_1", "kind": "slack", "name": "Chat", "email": null, "siteIds": ["site_a"], "events": ["deployment.failed"], "active": false}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := answers[strings.TrimPrefix(r.URL.Path, "/api/v1")]; text != "" {
			_, _ = w.Write([]byte(`{"data": [` + text + `]}`))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"error": "The key lacks a scope", "details": "deployments:write\nresource"}`))
	}))
	t.Cleanup(s.Close)
	c, err := rest.New(rest.Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := Write(t.Context(), c, &got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
resource "slipway_notification" "chat" {
  kind     = "slack"
  name     = "Chat"
  site_ids = [slipway_site.the_shop.id]
  events   = ["deployment.failed"]
  active   = false
}`, `
resource "slipway_site" "the_shop" {
  name       = "The $${shop}"
  type       = "static"
  repository = "git.test/a/b"
  branch     = "main"
  build = {
    command = "make \"all\"\n"
  }
  run = {
    health_check = {
      path = "/up"
    }
    memory_mib = 256
  }
  backups = {
    every = "daily"
    at    = "03:00"
    keep = {
      daily   = 7
      weekly  = 0
      monthly = 0
    }
  }
  tags = ["a", "b"]
}

import {
  to = slipway_site.the_shop
  id = "site_a"
}
`, `
resource "slipway_env" "the_shop_key_2" {
  site_id          = slipway_site.the_shop.id
  key              = "KEY"
  value_wo         = var.the_shop_key_2
  value_wo_version = 0
  secret           = true
  targets          = ["runtime", "preview"]
  branch           = "fix/*"
}

import {
  to = slipway_env.the_shop_key_2
  id = "site_a/env_3"
}
`, `
variable "the_shop_key_2" {
`, `
# Left out: deploy hooks of the-shop. The key lacks a scope: deployments:write resource
`, `
  site_ids = [slipway_site.the_shop.id, "site_gone"]
`, `
resource "slipway_domain" "shop_example_com" {
`, `
resource "slipway_database" "the_shop_main" {
`} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("without\n%s\nit is\n%s", want, got.String())
		}
	}
	if strings.Contains(got.String(), "mood") || strings.Contains(got.String(), "null") {
		t.Errorf("it has what the provider doesn't know:\n%s", got.String())
	}
}

// Any text is quoted as a single literal.
func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`a"b\`: `"a\"b\\"`, "${x} %{if} $ %": `"$${x} %%{if} $ %"`, "\x1b[1m\u202e": `"\U0000001b[1m\U0000202e"`, "é": `"é"`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// A site's name from the server can't end a comment in the configuration.
func TestNamesEndNoComment(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/api/v1") {
		case "/sites":
			_, _ = w.Write([]byte(`{"data": [{"id": "site_a", "name": "a", "slug": "a\nresource \"evil\" \"x\" {}", "type": "static"}]}`))
		case "/sites/site_a/hooks":
			_, _ = w.Write([]byte(`{"data": [{"name": "x"}, {"name": "x"}]}`))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(s.Close)
	c, err := rest.New(rest.Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := Write(t.Context(), c, &got); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.String(), "\nresource \"evil\"") || strings.Count(got.String(), "Left out") < 3 {
		t.Errorf("the configuration is %s", &got)
	}
}
