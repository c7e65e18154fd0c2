package deploy

import (
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
)

// A _headers file in the repository's root that protects paths applies even if only a folder is published. If it is
// invalid, the deployment fails.
func TestProtectionAtTheTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := map[string]string{"public/index.html": "home", "_headers": "/secret/*\n  Basic-Auth: anna:pass\n"}
	w.commit("site", files)
	s := w.live(w.site("git.test/acme/site").ID)
	tree, err := w.rel.Load(t.Context(), s.LiveRelease)
	ok(t, err)
	if h := tree.Rules().Headers; len(h) != 1 || h[0].For != "/secret/*" || len(h[0].Auth) != 1 {
		t.Errorf("rules: %+v", h)
	}
	files["_headers"] = "/secret/*/*\n  Basic-Auth: anna:pass\n"
	w.commit("site", files)
	x := w.trigger(s.ID, Trigger{})
	w.until("it fails", func() bool { return w.status(x.ID).Status.Ended() })
	if got := w.status(x.ID); got.Status != deployment.Failed || !strings.Contains(got.Error, "_headers line 1: a path may contain only one *") {
		t.Errorf("the deployment is %s: %q", got.Status, got.Error)
	}
}

// A commit's rules are compiled with its deployment. The log has a warning with the line number for each ignored rule.
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
	s = w.live(s.ID)
	log := strings.Join(w.log(s.LiveDeployment), "\n")
	if !strings.Contains(
		log,
		"_redirects line 2:",
	) || !strings.Contains(
		log,
		"netlify.toml line 3: requests are forwarded to api.example.com only",
	) || strings.Contains(log, "unknown key") {
		t.Errorf("the log:\n%s", log)
	}
}
