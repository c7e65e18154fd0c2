package docs

import (
	"go/format"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// small returns the docs of an API with three operations.
func small() *Docs {
	op := &huma.Operation{Responses: map[string]*huma.Response{}}
	return New(Config{
		OpenAPI: &huma.OpenAPI{
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
			Paths: map[string]*huma.PathItem{
				"/api/v1/sites":              {Post: op},
				"/api/v1/sites/{id}":         {Get: op},
				"/hooks/deploy/{hook}":       {Post: op},
				"/api/v1/deployments/{id}/x": {Get: op},
			},
			Tags: []*huma.Tag{{Name: "Sites"}, {Name: "Deploy hooks"}},
		},
		Operations: []Operation{
			{ID: "createSite", Method: "POST", Path: "/api/v1/sites", Tag: "Sites", Summary: "Create a site", Status: 201},
			{ID: "getSite", Method: "GET", Path: "/api/v1/sites/{id}", Tag: "Sites", Summary: "Read <a> site", Status: 200},
			{ID: "callHook", Method: "POST", Path: "/hooks/deploy/{hook}", Tag: "Deploy hooks", Summary: "Deploy", Status: 200, Hook: true},
		},
		BaseURL: "https://slipway.test", APIURL: "https://api.slipway.test", RateLimit: 100,
	})
}

func TestPages(t *testing.T) {
	t.Parallel()
	d := small()
	for path, want := range map[string]string{
		"/docs":                       "First steps",
		"/docs/sites":                 "Read &lt;a&gt; site",
		"/docs/sites?lang=php":        "curl_setopt_array",
		"/docs/deploy-hooks":          "https://api.slipway.test/hooks/deploy/$HOOK_ID",
		"/docs/guides/slipway-toml":   "[[cron]]",
		"/docs?q=scheduled%20command": "/docs/guides/",
	} {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, without %q", path, w.Code, want)
		}
	}
}

// Every guide is listed once in the navigation.
func TestChapters(t *testing.T) {
	t.Parallel()
	guides, listed := readGuides(true), map[string]int{}
	for _, c := range chapters(guides) {
		for _, g := range c.Guides {
			listed[g.Name]++
		}
	}
	for _, g := range guides {
		if listed[g.Name] != 1 {
			t.Errorf("%s is listed %d times", g.Name, listed[g.Name])
		}
	}
}

// Markdown renders without its raw HTML, and links between guides stay within the docs.
func TestGuide(t *testing.T) {
	t.Parallel()
	g := renderGuide("x", []byte("# Title\n\n## One `two`\n\nSee [builds](builds.md#limits), [why](adr/0001-x.md) and [x](https://example.com).\n<script>alert(1)</script>\n\n```\na < b\n```\n\n| a | |\n|---|---|\n| b | c |\n"))
	page := string(g.HTML)
	for _, want := range []string{
		`href="/docs/guides/builds#limits"`, `href="https://example.com"`, "why", `<pre tabindex="0"><code>a &lt; b`, `<h2 id="one-two">`, `role="region"`, "<th>a</th>\n<td></td>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing: %s", want, page)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "0001") {
		t.Errorf("raw HTML or a broken link: %s", page)
	}
	if g.Title != "Title" || len(g.Sections) != 1 || g.Sections[0] != (section{"one-two", "One two", 0}) {
		t.Errorf("%q %v", g.Title, g.Sections)
	}
}

// The code of every step of every scenario is valid in each language.
func TestSnippets(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("examples are checked with node: ", err)
	}
	interpreter, err := exec.LookPath("php")
	if err != nil {
		t.Fatal("examples are checked with php: ", err)
	}
	var scripts, modules strings.Builder
	for _, s := range scenarios {
		for _, step := range s.Steps {
			o := Operation{Method: "POST", Path: "/api/v1/sites/{id}/x"}
			c := newCall(o, step, "https://slipway.test")
			source := goSource(c) + "\n"
			formatted, err := format.Source([]byte(source))
			if err != nil || string(formatted) != source {
				t.Errorf("the Go example of %s is not formatted Go: %v\n%s\n%s", step.Operation, err, source, formatted)
			}
			scripts.WriteString("{\n" + strings.TrimPrefix(php(c), "<?php\n") + "\n}\n")
			text := javaScript(c)
			if _, rest, ok := strings.Cut(text, "node:fs/promises\";\n"); ok {
				text = rest
			}
			modules.WriteString("{\n" + text + "\n}\n")
		}
	}
	check := exec.Command(interpreter, "-l")
	check.Stdin = strings.NewReader("<?php\n" + scripts.String())
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("php: %v: %s", err, out)
	}
	check = exec.Command(node, "--input-type=module", "--check", "-")
	check.Stdin = strings.NewReader("import { readFile, writeFile } from \"node:fs/promises\";\n" + modules.String())
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("node: %v: %.2000s", err, out)
	}
}

func TestCurl(t *testing.T) {
	t.Parallel()
	o := Operation{Method: "POST", Path: "/api/v1/sites/{id}/rollback"}
	got := curl(newCall(o, Step{Operation: "rollbackSite", Body: `{"deploymentId": "$DEPLOYMENT_ID", "note": "it's"}`}, "https://h"))
	want := `curl "https://h/api/v1/sites/$SITE_ID/rollback" \
  -H "Authorization: Bearer $SLIPWAY_KEY" \
  --json '{"deploymentId": "'"$DEPLOYMENT_ID"'", "note": "it'\''s"}'`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// In terminal blocks, commands are highlighted and output isn't.
func TestTerminal(t *testing.T) {
	t.Parallel()
	page := string(renderGuide("x", []byte("# T\n\n```terminal\n$ a && b\n$1\n$ c\n```\n\n```\n$ d\n```\n")).HTML)
	if !strings.Contains(page, `"language-terminal"><b>$ a &amp;&amp; b</b>`+"\n$1\n<b>$ c</b>\n") || strings.Contains(page, "<b>$ d") {
		t.Error(page)
	}
}

// Lines about billing appear only on installations with billing.
func TestBillingLines(t *testing.T) {
	t.Parallel()
	source := []byte("one\n| two <!-- billing --> |\nthree <!-- billing -->\n<!-- billing -->\nfour\n")
	if got := string(forBilling(source, false)); got != "one\nfour\n" {
		t.Errorf("%q", got)
	}
	if got := string(forBilling(source, true)); got != "one\n| two |\nthree\n\nfour\n" {
		t.Errorf("%q", got)
	}
	if n, all := len(readGuides(false)), len(readGuides(true)); n != all-1 {
		t.Errorf("%d guides without billing, %d with it", n, all)
	}
	for _, g := range readGuides(false) {
		for _, word := range []string{"invoice", "Invoice", "--billing", "subscription.renewed"} {
			if strings.Contains(string(g.HTML), word) {
				t.Errorf("%s says %q without billing", g.Name, word)
			}
		}
	}
}
