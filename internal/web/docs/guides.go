package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	guidefiles "slipway/docs"
	"slipway/internal/platform/lazyregexp"
)

// guide is a file in the folder docs.
type guide struct {
	Name, Title string
	HTML        template.HTML
	Sections    []section
}

// chapter is a group in the list of guides.
type chapter struct {
	Name   string
	Guides []*guide
}

// chapterNames lists the chapters in order. A test requires each guide to be in exactly one.
var chapterNames = []struct {
	name   string
	rank   float64 // weight in a search; most people look for a guide
	guides []string
}{
	{"Guides", 1, []string{
		"git", "github-actions", "command-line", "moving", "builds", "what-works", "slipway-toml", "applications", "php", "runtimes",
		"wordpress", "redirects", "domains", "webhooks", "backups", "teams", "sso", "oauth", "clients", "terraform", "mcp", "dashboard",
		"billing",
	}},
	{"Command line", 0.9, []string{
		"cli-sign-in", "cli-deploy", "cli-logs", "cli-env", "cli-domains", "cli-databases", "cli-backups", "cli-wordpress",
		"cli-webhooks",
	}},
	{"Coming from", 0.8, []string{"from-vercel", "from-netlify", "from-heroku", "from-kinsta"}},
	{"Operate", 0.8, []string{
		"install", "configuration", "tls", "packages", "upgrades", "several-nodes", "kubernetes",
		"monitoring", "security", "stability", "rights",
	}},
	{"About", 0.4, []string{"glossary"}},
}

// maintaining lists the pages for Slipway's developers, which the program doesn't serve.
var maintaining = []string{"backup-format", "benchmarks", "shares", "where"}

func chapters(guides []*guide) []chapter {
	var out []chapter
	for _, c := range chapterNames {
		next := chapter{Name: c.name}
		for _, name := range c.guides {
			for _, g := range guides {
				if g.Name == name {
					next.Guides = append(next.Guides, g)
				}
			}
		}
		out = append(out, next)
	}
	return out
}

// readGuides renders the embedded folder. It panics on errors, which would already occur at the first start.
func readGuides(billing bool) []*guide {
	names, err := fs.Glob(guidefiles.Files, "*.md")
	if err != nil {
		panic(err)
	}
	var out []*guide
	for _, name := range names {
		if name == "billing.md" && !billing || slices.Contains(maintaining, strings.TrimSuffix(name, ".md")) {
			continue
		}
		source, err := guidefiles.Files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		out = append(out, renderGuide(strings.TrimSuffix(name, ".md"), forBilling(source, billing)))
	}
	return out
}

// billingMark marks lines about plans and invoices, which most installations don't have.
const billingMark = "<!-- billing -->"

// forBilling removes the lines about plans and invoices unless billing is true, and the marks.
func forBilling(source []byte, billing bool) []byte {
	var out []byte
	for line := range bytes.Lines(source) {
		if before, after, marked := bytes.Cut(line, []byte(billingMark)); !marked {
			out = append(out, line...)
		} else if billing {
			out = append(append(out, bytes.TrimRight(before, " ")...), after...)
		}
	}
	return out
}

// renderGuide renders Markdown without the HTML in it.
func renderGuide(name string, source []byte) *guide {
	g := &guide{Name: name, Title: name}
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(rewrite{g}, 100))))
	var b bytes.Buffer
	if err := md.Convert(source, &b); err != nil {
		panic(err)
	}
	html := strings.NewReplacer(
		"<pre><code", `<pre tabindex="0"><code`, "</table>", "</table></div>",
		"<th></th>", "<td></td>", // screen readers would announce an empty header
	).Replace(b.String())
	html = terminals.ReplaceAllStringFunc(html, func(block string) string { return prompts.ReplaceAllString(block, "$1<b>$2</b>") })
	tables := 0
	html = tableStart.ReplaceAllStringFunc(html, func(start string) string {
		tables++ // regions need unique names
		return fmt.Sprintf(`<div class="scroll" tabindex="0" role="region" aria-label="Table %d">%s`, tables, start)
	})
	g.HTML = template.HTML(permalinks.ReplaceAllString(html,
		`<$1 id="$2">$3<a class="anchor" href="#$2" aria-label="Link to this section">#</a></$1>`))
	return g
}

var (
	permalinks = lazyregexp.New(`<(h[2-4]) id="([^"]+)">(.*)</h[2-4]>`)
	tableStart = lazyregexp.New("<table>")
	terminals  = lazyregexp.New(`(?s)<code class="language-terminal">.*?</code>`)
	prompts    = lazyregexp.New(`(?m)(^|">)(\$ .*)$`) // commands, in contrast to output
)

// rewrite collects a guide's sections and replaces links to other guides by their URLs.
type rewrite struct{ g *guide }

func (t rewrite) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	var links []*ast.Link
	ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			name := plain(n, source)
			if n.Level == 1 {
				t.g.Title = name
				break
			}
			if id, ok := n.AttributeString("id"); ok && n.Level <= 3 {
				t.g.Sections = append(t.g.Sections, section{string(id.([]byte)), name, n.Level - 2})
			}
		case *ast.Link:
			links = append(links, n)
		}
		return ast.WalkContinue, nil
	})
	for _, l := range links {
		to, outside := guideLink(string(l.Destination))
		if !outside {
			l.Destination = []byte(to)
			continue
		}
		for c := l.FirstChild(); c != nil; { // replace links to files that aren't served by their text
			next := c.NextSibling()
			l.Parent().InsertBefore(l.Parent(), l, c)
			c = next
		}
		l.Parent().RemoveChild(l.Parent(), l)
	}
}

// guideLink returns the URL for a guide's link, and whether it leads outside the pages.
func guideLink(to string) (string, bool) {
	file, fragment, _ := strings.Cut(to, "#")
	if fragment != "" {
		fragment = "#" + fragment
	}
	switch name, ok := strings.CutSuffix(file, ".md"); {
	case file == "" || strings.Contains(file, "://") || strings.HasPrefix(file, "/"):
		return to, false
	case ok && !strings.Contains(name, "/") && !slices.Contains(maintaining, name):
		return "/docs/guides/" + name + fragment, false
	}
	return "", true
}

func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
