package programs

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// frameworks returns the projects in testdata that TestRealApplications deploys in addition: always a Procfile with an
// executable, and those named in SLIPWAY_E2E_FRAMEWORKS (separated by commas, or all), whose builds take minutes.
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

// hashed finds a script in a page whose file name contains a digest, in the frameworks' usual folders.
var hashed = regexp.MustCompile(`"(/(?:_nuxt|_astro|_next/static|assets)/[^"]+\.js)"`)

// frameworkStory checks that the application answers, that the edge serves its hashed files, and that an update
// replaces it.
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
