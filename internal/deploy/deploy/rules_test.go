package deploy

import (
	"strings"
	"testing"
)

// A commit's rules are compiled with its deployment, and what is not obeyed is a warning in
// the log with its line.
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
