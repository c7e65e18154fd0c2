package dashboard

import (
	"strings"
	"testing"
)

// The page shows the active rules and the result of a test request. Text in rules is escaped.
func TestRulesPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	s := w.site(ada, "Blog")
	at := "/sites/" + string(s.ID) + "/rules"
	if p := b.get(at); p.status != 200 || !strings.Contains(p.body, "No rules") {
		t.Errorf("before the first deployment: %d", p.status)
	}
	wr, err := w.releases.Begin(t.Context(), "")
	must(t, err)
	for name, text := range map[string]string{
		"index.html": "home",
		"_redirects": "/old /new?<b> 302\n/shop id=:id /de/:id 302 Country=de,at Language=de Cookie=beta\n",
		"_headers":   "/*\n  X-Note: <script>alert(1)</script>\n",
	} {
		must(t, wr.Add(t.Context(), name, "", strings.NewReader(text)))
	}
	rel, err := wr.Seal(t.Context())
	must(t, err)
	must(t, w.db.Admin(t.Context(), `UPDATE sites SET live_release = '`+string(rel.ID)+`' WHERE id = '`+string(s.ID)+`'`))
	p := b.get(at)
	for _, want := range []string{"<code>/old</code>", "<code>_redirects:1</code>", "X-Note: &lt;script&gt;", "/rules/test"} {
		if !strings.Contains(p.body, want) {
			t.Errorf("%q is missing", want)
		}
	}
	p = b.get(at + "?path=old%3Fa%3D1&language=de&cookie=a%3Db")
	for _, want := range []string{"302 redirect", "/new?&lt;b&gt;&amp;a=1", `value="/old?a=1"`, `Accept-Language`} {
		if p.status != 200 || !strings.Contains(p.body, want) {
			t.Errorf("tested: %d, %q is missing", p.status, want)
		}
	}
	// A test request that can't be evaluated leaves the rest of the page intact.
	b.get(at+"?path=/old&country=DE").want(t, 200, `data-test="test-refused"`, "country", `data-test="test-rules"`, "<code>_redirects:1</code>", `value="DE"`)
	b.get(at).want(t, 200, "query id=:id", "country DE, AT", "language de", "cookie beta")
	if strings.Contains(p.body, "<script>alert(1)") {
		t.Error("a rule's text is markup")
	}
}
