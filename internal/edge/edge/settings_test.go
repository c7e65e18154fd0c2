package edge

import "testing"

// A site's settings for trailing slashes and single-page apps apply at once, without a deployment. A missing asset is a
// 404 and never a page.
func TestServingSettings(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "home", "about.html": "about", "docs/index.html": "docs"}))
	const host = "https://blog.sites.test"
	w.get(host+"/about").want(t, 200, "about")
	w.get(host+"/docs").want(t, 308, "").head(t, "Location", "/docs/")
	w.get(host+"/app/settings").want(t, 404, "")

	w.settle("s1", `{"singlePage":"on","trailingSlash":"always"}`)
	w.get(host+"/about").want(t, 308, "").head(t, "Location", "/about/")
	w.get(host+"/about/").want(t, 200, "about")
	w.get(host+"/app/settings").want(t, 200, "home")
	w.get(host+"/assets/gone.js").want(t, 404, "")

	w.settle("s1", `{"singlePage":"auto","trailingSlash":"never"}`)
	w.get(host+"/about/").want(t, 308, "").head(t, "Location", "/about")
	w.get(host+"/docs").want(t, 200, "docs")
	w.get(host+"/app/settings").want(t, 404, "")

	// The settings override the repository's own files, in both directions.
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "home", "about.html": "about", "200.html": "shell"}))
	w.settle("s1", `{"singlePage":"auto"}`)
	w.get(host+"/app").want(t, 200, "shell")
	w.settle("s1", `{"singlePage":"off"}`)
	w.get(host+"/app").want(t, 404, "")
	w.get(host+"/about").want(t, 200, "about")
}
