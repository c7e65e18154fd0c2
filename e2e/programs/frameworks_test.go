package programs

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// frameworks are the projects below testdata that TestRealApplications deploys beside those with
// a story of their own: a Procfile with an executable always, and by SLIPWAY_E2E_FRAMEWORKS=all, or by
// their names with commas between them, the ones whose builds take minutes.
func frameworks() []string {
	all := []string{"nestjs", "nuxt", "astro", "react-router", "remix", "next-start", "hono", "http"}
	asked := os.Getenv("SLIPWAY_E2E_FRAMEWORKS")
	list := []string{"procfile"}
	for _, name := range all {
		if asked == "all" || slices.Contains(strings.Split(asked, ","), name) {
			list = append(list, name)
		}
	}
	return list
}

// hashed finds what a page loads from where its framework puts files with a digest in the name.
var hashed = regexp.MustCompile(`"(/(?:_nuxt|_astro|_next/static|assets)/[^"]+\.js)"`)

// frameworkStory: it answers by the request, the edge answers for its hashed files, and an
// update takes over.
func frameworkStory(a *realApp) {
	page := a.says("GET", "/?name=ada", "", nil, 200, a.name+" one for ada")
	switch a.name {
	case "nuxt", "astro", "react-router", "remix", "next-start":
		found := hashed.FindSubmatch(page.Body)
		if found == nil {
			a.t.Fatalf("no script in %.2000s", page.Body)
		}
		asset := a.says("GET", string(found[1]), "", nil, 200, "")
		if got := asset.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			a.t.Errorf("%s is kept by %q", found[1], got)
		}
	}
	a.update("two")
	a.becomes(a.name + " two for")
}
