package deploy

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/account"
	"slipway/internal/fault"
)

// A commit's rules are compiled with its deployment, what is not obeyed is a warning in
// the log with its line, and the tester says which rule would answer.
func TestRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("blog", map[string]string{
		"public/index.html": "home", "public/de/index.html": "zuhause", "public/app.js": "x", "public/404.html": "nothing",
		"public/_redirects": "/old /new 302\nnonsense\n/ /de/ 302! Language=de\n",
		"public/_headers":   "/*\n  X-Frame-Options: DENY\n",
		"netlify.toml":      "[build]\npublish = \"public\"\n[[redirects]]\nfrom = \"/api/*\"\nto = \"https://api.example.com/:splat\"\nstatus = 200\n",
		"slipway.toml":      "[[redirects]]\nfrom = \"/first\"\nto = \"/\"\n",
	})
	s := w.site("git.test/acme/blog")
	if _, err := w.TestRules(t.Context(), anna, s.ID, RuleTest{Path: "/"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("before anything is published: %v", err)
	}
	s = w.live(s.ID)
	log := strings.Join(w.log(ID(s.LiveDeployment)), "\n")
	if !strings.Contains(log, "_redirects line 2:") || !strings.Contains(log, "netlify.toml line 3: requests are forwarded to api.example.com only") || strings.Contains(log, "unknown key") {
		t.Errorf("the log:\n%s", log)
	}
	for in, want := range map[string]RuleAnswer{
		"/old?a=1":                {Action: "redirect", Status: 302, Rule: "_redirects:1", Location: "/new?a=1"},
		"https://x.example/first": {Action: "redirect", Status: 301, Rule: "slipway.toml:1", Location: "/"},
		"/api/users":              {Action: "proxy", Status: 200, Rule: "netlify.toml:3", Location: "https://api.example.com/users"},
		"/":                       {Action: "file", Status: 200, File: "index.html"},
		"/nothing":                {Action: "error", Status: 404, File: "404.html"},
		"/_redirects":             {Action: "error", Status: 404, File: "404.html"},
		"/_headers":               {Action: "error", Status: 404, File: "404.html"},
	} {
		got, err := w.TestRules(t.Context(), anna, s.ID, RuleTest{Path: in})
		ok(t, err)
		if got.Action != want.Action || got.Status != want.Status || got.Rule != want.Rule || got.Location != want.Location || got.File != want.File ||
			!slices.Equal(got.HeaderRules, []string{"_headers:1"}) || string(got.Deployment) != s.LiveDeployment {
			t.Errorf("%s: %+v", in, got)
		}
	}
	got, err := w.TestRules(t.Context(), anna, s.ID, RuleTest{Path: "/", Language: "de-AT,de;q=0.9"})
	ok(t, err)
	if got.Location != "/de/" || !slices.Equal(got.Vary, []string{"Accept-Language"}) {
		t.Errorf("by language: %+v", got)
	}
	// Before they are published.
	got, err = w.TestRules(t.Context(), anna, s.ID, RuleTest{Path: "/old", Files: map[string]string{"_redirects": "bad\n/old /newer\n"}})
	ok(t, err)
	if got.Location != "/newer" || got.Rule != "_redirects:2" || len(got.Problems) != 1 || got.Problems[0].Line != 1 {
		t.Errorf("unpublished: %+v", got)
	}
	got, err = w.TestRules(t.Context(), anna, s.ID, RuleTest{Path: "/first", Files: map[string]string{"_redirects": ""}})
	ok(t, err)
	if got.Rule != "slipway.toml:1" {
		t.Errorf("another file's rule: %+v", got)
	}
	for name, tt := range map[string]struct {
		t    RuleTest
		who  account.OwnerID
		kind fault.Kind
	}{
		"no path":            {RuleTest{Path: "x"}, anna, fault.Invalid},
		"a long path":        {RuleTest{Path: "/" + strings.Repeat("x", 5000)}, anna, fault.Invalid},
		"another file":       {RuleTest{Path: "/", Files: map[string]string{"index.html": ""}}, anna, fault.Invalid},
		"a large file":       {RuleTest{Path: "/", Files: map[string]string{"_redirects": strings.Repeat("#", 70_000)}}, anna, fault.Invalid},
		"a stranger":         {RuleTest{Path: "/"}, "usr_eve", fault.NotFound},
		"another deployment": {RuleTest{Path: "/", Deployment: "dep_none"}, anna, fault.NotFound},
	} {
		if _, err := w.TestRules(t.Context(), tt.who, s.ID, tt.t); !fault.Is(err, tt.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
