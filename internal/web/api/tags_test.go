package api_test

import (
	"net/url"
	"strings"
	"testing"
)

// Tags are set when a site is created, replaced by a patch that has them and kept by one that hasn't, and filter the
// list.
func TestSiteTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	create := func(name string, tags ...string) string {
		t.Helper()
		made := w.must(201, "POST", "/sites", key, map[string]any{"name": name, "type": "static", "repository": "git.test/acme/site", "tags": tags})
		return made["data"].(map[string]any)["id"].(string)
	}
	blog := create("Blog", "Print", "client a", "print")
	create("Shop", "print")
	tags := func(site map[string]any) string {
		var out []string
		for _, t := range site["tags"].([]any) {
			out = append(out, t.(string))
		}
		return strings.Join(out, ",")
	}
	count := func(tag string) int {
		t.Helper()
		return len(w.must(200, "GET", "/sites?tag="+url.QueryEscape(tag), key, nil)["data"].([]any))
	}
	if got := tags(w.must(200, "GET", "/sites/"+blog, key, nil)); got != "client a,print" {
		t.Errorf("tags %q", got)
	}
	if print, a, none := count("PRINT"), count("client a"), count("client"); print != 2 || a != 1 || none != 0 {
		t.Errorf("%d, %d and %d sites, want 2, 1 and 0", print, a, none)
	}
	if got := tags(w.must(200, "PATCH", "/sites/"+blog, key, map[string]any{"name": "Journal"})); got != "client a,print" {
		t.Errorf("after a patch without tags: %q", got)
	}
	if got := tags(w.must(200, "PATCH", "/sites/"+blog, key, map[string]any{"tags": []string{}})); got != "" || count("print") != 1 {
		t.Errorf("after they were removed: %q", got)
	}
	if a := w.api("PATCH", "/sites/"+blog, key, map[string]any{"tags": []string{"a,b"}}); a.status != 400 || a.json(t)["code"] != "invalid_tags" {
		t.Errorf("a tag with a comma: %s", a)
	}
}
