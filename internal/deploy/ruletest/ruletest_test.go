package ruletest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const anna = account.OwnerID("usr_anna")

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Try returns the rule that answers a request, of the live release or of unpublished rule files.
func TestRules(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	ok(t, err)
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	ok(t, err)
	releases := release.New(release.Config{Blobs: blobs})
	hooks := webhook.New(webhook.Config{DB: d, Seal: key})
	sites := site.New(site.Config{DB: d, Hooks: hooks, Seal: key, Domain: "sites.test"})
	w := New(Config{
		DB:          d,
		Sites:       sites,
		Releases:    releases,
		Deployments: deploy.New(deploy.Config{DB: d, Sites: sites, Hooks: hooks, Releases: releases}),
	})
	s, err := sites.Create(t.Context(), anna, site.NewSite{Name: "My site", Type: "static", Repository: "git.test/acme/blog"})
	ok(t, err)
	if _, err := w.Try(t.Context(), anna, s.ID, Trial{Path: "/"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("before anything is published: %v", err)
	}
	to, err := releases.Begin(t.Context(), "")
	ok(t, err)
	defer to.Abort()
	to.RuleFile("slipway.toml", []byte("[[redirects]]\nfrom = \"/first\"\nto = \"/\"\n"))
	to.RuleFile(
		"netlify.toml",
		[]byte("[build]\npublish = \"public\"\n[[redirects]]\nfrom = \"/api/*\"\nto = \"https://api.example.com/:splat\"\nstatus = 200\n"),
	)
	for name, text := range map[string]string{
		"index.html": "home", "de/index.html": "zuhause", "app.js": "x", "404.html": "nothing",
		"_redirects": "/old /new 302\nnonsense\n/ /de/ 302! Language=de\n",
		"_headers":   "/*\n  X-Frame-Options: DENY\n",
	} {
		ok(t, to.Add(t.Context(), name, "", strings.NewReader(text)))
	}
	sealed, err := to.Seal(t.Context())
	ok(t, err)
	ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := sites.ActivateTx(t.Context(), tx, s.ID, id.Deployment(db.NewID("dep")), sealed.ID, "static")
		return err
	}))
	s, err = sites.Get(t.Context(), anna, s.ID)
	ok(t, err)
	for in, want := range map[string]Answer{
		"/old?a=1":                {Action: "redirect", Status: 302, Rule: "_redirects:1", Location: "/new?a=1"},
		"https://x.example/first": {Action: "redirect", Status: 301, Rule: "slipway.toml:1", Location: "/"},
		"/api/users":              {Action: "proxy", Status: 200, Rule: "netlify.toml:3", Location: "https://api.example.com/users"},
		"/":                       {Action: "file", Status: 200, File: "index.html"},
		"/nothing":                {Action: "error", Status: 404, File: "404.html"},
		"/_redirects":             {Action: "error", Status: 404, File: "404.html"},
		"/_headers":               {Action: "error", Status: 404, File: "404.html"},
	} {
		got, err := w.Try(t.Context(), anna, s.ID, Trial{Path: in})
		ok(t, err)
		if got.Action != want.Action || got.Status != want.Status || got.Rule != want.Rule || got.Location != want.Location || got.File != want.File ||
			!slices.Equal(got.HeaderRules, []string{"_headers:1"}) ||
			got.Deployment != s.LiveDeployment {
			t.Errorf("%s: %+v", in, got)
		}
	}
	got, err := w.Try(t.Context(), anna, s.ID, Trial{Path: "/", Language: "de-AT,de;q=0.9"})
	ok(t, err)
	if got.Location != "/de/" || !slices.Equal(got.Vary, []string{"Accept-Language"}) {
		t.Errorf("by language: %+v", got)
	}
	// Unpublished rule files.
	got, err = w.Try(t.Context(), anna, s.ID, Trial{Path: "/old", Files: map[string]string{"_redirects": "bad\n/old /newer\n"}})
	ok(t, err)
	if got.Location != "/newer" || got.Rule != "_redirects:2" || len(got.Problems) != 1 || got.Problems[0].Line != 1 {
		t.Errorf("unpublished: %+v", got)
	}
	got, err = w.Try(t.Context(), anna, s.ID, Trial{Path: "/first", Files: map[string]string{"_redirects": ""}})
	ok(t, err)
	if got.Rule != "slipway.toml:1" {
		t.Errorf("another file's rule: %+v", got)
	}
	for name, tt := range map[string]struct {
		t    Trial
		who  account.OwnerID
		kind fault.Kind
	}{
		"no path":            {Trial{Path: "x"}, anna, fault.Invalid},
		"a long path":        {Trial{Path: "/" + strings.Repeat("x", 5000)}, anna, fault.Invalid},
		"another file":       {Trial{Path: "/", Files: map[string]string{"index.html": ""}}, anna, fault.Invalid},
		"a large file":       {Trial{Path: "/", Files: map[string]string{"_redirects": strings.Repeat("#", 70_000)}}, anna, fault.Invalid},
		"a stranger":         {Trial{Path: "/"}, "usr_eve", fault.NotFound},
		"another deployment": {Trial{Path: "/", Deployment: "dep_none"}, anna, fault.NotFound},
	} {
		if _, err := w.Try(t.Context(), tt.who, s.ID, tt.t); !fault.Is(err, tt.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
