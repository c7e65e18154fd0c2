package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
)

var primaryButton = regexp.MustCompile(`class="button primary"[^>]*>([^<]+)`)

// A site's main button and favicon follow its state.
func TestMainButtonFollowsState(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	check := func(button, icon string) {
		t.Helper()
		p := b.get(base+"/domains").want(t, 200, `href="/assets/`+icon+`.`)
		head, _, _ := strings.Cut(p.body, "<main")
		if m := primaryButton.FindAllStringSubmatch(head, -1); len(m) != 1 || m[0][1] != button {
			t.Errorf("the main button is %q, want %q", m, button)
		}
	}
	check("Deploy", "mark")
	first := w.deployment(s)
	check("View deployment", "mark-busy")
	w.live(s, first)
	check("Visit", "mark")
	failed := w.deployment(s)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.endTx(tx, failed, deployment.Failed, "npm ran out of luck", "") }))
	check("View error", "mark-bad")
	w.live(s, w.deployment(s))
	must(t, w.db.Admin(t.Context(), "UPDATE sites SET needs_redeploy = TRUE"))
	check("Deploy", "mark") // the live deployment has no commit to rebuild
	b.post(base+"/stop").to(t, base)
	check("Start site", "mark")
}

// A page below one in the navigation has its own heading and a breadcrumb to its parent.
func TestPagesBelow(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	dep, dom, _ := w.parts(w.users["ada@example.test"], s.ID)
	for path, want := range map[string][2]string{
		"/deployments/" + string(dep): {"", base + "/deployments"},
		"/domains/" + string(dom):     {"", base + "/domains"},
		"/env/import":                 {"Import variables", base + "/env"},
		"/transfer":                   {"Transfer site", base + "/settings"},
	} {
		p := b.get(base+path).want(t, 200, `<li class="crumb-page"><a href="`+want[1]+`">`)
		_, here, _ := strings.Cut(p.body, `<li class="crumb-sub" data-fresh="crumb"><span aria-current="page">`)
		here, _, _ = strings.Cut(here, "<")
		if here == "" || want[0] != "" && here != want[0] || strings.Count(p.body, "<h1>"+here+"</h1>") != 1 {
			t.Errorf("%s is called %q, and not once so by its heading", path, here)
		}
	}
	if p := b.get(base+"/env").want(t, 200, "<h1>Environment</h1>"); strings.Contains(p.body, "crumb-sub") {
		t.Error("a page of the navigation lies below itself")
	}
}

// The command palette finds only the user's own sites, by parts of their names.
func TestFindSites(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	w.site(w.users["ada@example.test"], "Shop")
	w.site(w.user("eve@example.test", false), "Blog of Eve")
	find := func(q string) (names []string) {
		t.Helper()
		var list []struct{ Name, Path string }
		must(t, json.Unmarshal([]byte(b.get("/find?q="+q, "Accept: application/json").want(t, 200).body), &list))
		for _, x := range list {
			names = append(names, x.Name)
			if x.Name == s.Name && x.Path != "/sites/"+string(s.ID) {
				t.Errorf("%s leads to %s", x.Name, x.Path)
			}
		}
		return names
	}
	if got := find("blo"); len(got) != 1 || got[0] != "Blog" {
		t.Errorf("blo finds %q", got)
	}
	if got := find(""); len(got) != 2 {
		t.Errorf("nothing typed offers %q", got)
	}
	b.post("/sign-out")
	b.get("/find?q=blo", "Accept: application/json").want(t, 401)
}

var iconUse = regexp.MustCompile(`#([a-z-]+)"/></svg>`)

// Every icon on a site's and the account's pages exists in the icon file.
func TestIconsExist(t *testing.T) {
	t.Parallel()
	_, b, s := ada(t)
	symbols, err := os.ReadFile("assets/icons.svg")
	must(t, err)
	seen := 0
	for _, path := range []string{"/", "/account/keys", "/sites/" + string(s.ID), "/sites/" + string(s.ID) + "/settings"} {
		for _, m := range iconUse.FindAllStringSubmatch(b.get(path).want(t, 200).body, -1) {
			seen++
			if !strings.Contains(string(symbols), `<symbol id="`+m[1]+`"`) {
				t.Errorf("%s: no symbol %q", path, m[1])
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d pictures", seen)
	}
}
