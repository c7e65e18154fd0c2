package docs

import (
	"cmp"
	"html"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"

	"slipway/internal/platform/lazyregexp"
)

// maxSearch caps a query in bytes and maxHits the number of results, to keep searches cheap, since they need no
// account.
const (
	maxSearch = 100
	maxWords  = 8
	maxHits   = 20
)

// Weights of words in a page's title and in headings (a word in the text counts at most 2.2), and of operations
// relative to guides, which most people look for.
const (
	inTitle     = 4
	inHeading   = 6
	atTop       = 1.2 // the first section describes the page's topic
	anOperation = 0.4
)

// hit is a search result: an operation or a section of a page.
type hit struct{ Name, Method, Path, Href, Text string }

// entry is a searchable operation or section.
type entry struct {
	hit
	names  map[string]float64 // stems of the title and heading with their weights, which decrease with the number of words
	text   map[string]float64 // stems of the text with their frequencies
	length float64            // number of words in the text
	factor float64
}

// index ranks operations and sections by BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, section
// 3) and by their headings. It is immutable, so searches may run concurrently.
type index struct {
	entries []entry
	found   map[string][]int  // entries by stem
	words   map[string]string // stems by word, for words long enough to correct typos
	length  float64           // average length of an entry
}

var (
	tags     = lazyregexp.New(`<[^>]*>`)
	headings = lazyregexp.New(`<h[1-4] id="([^"]+)">(.*?)</h[1-4]>`)
	anchors  = lazyregexp.New(`<a class="anchor".*?</a>`)
)

// newIndex indexes the operations, the sections of the guides and the page at /docs.
func newIndex(groups []group, guides []*guide, start string) *index {
	x := &index{found: map[string][]int{}, words: map[string]string{}}
	for _, g := range groups {
		for _, o := range g.Operations {
			var text strings.Builder
			text.WriteString(o.Doc)
			for _, list := range [][]field{o.Params, o.Body, o.Answer} {
				for _, f := range list {
					text.WriteString(" " + f.Name + " " + f.Doc)
				}
			}
			h := hit{Name: o.Summary, Method: o.Method, Path: o.Path, Href: "/docs/" + g.ID + "#" + o.ID, Text: o.Doc}
			x.add(h, anOperation, g.Name, o.Summary+" "+o.ID+" "+o.Path, text.String())
		}
	}
	x.addPage("API", "/docs", start, 1)
	for _, c := range chapterNames {
		for _, g := range guides {
			if slices.Contains(c.guides, g.Name) {
				x.addPage(g.Title, "/docs/guides/"+g.Name, string(g.HTML), c.rank)
			}
		}
	}
	for _, e := range x.entries {
		x.length += e.length / float64(len(x.entries))
	}
	return x
}

// addPage splits a page at its headings and adds the sections.
func (x *index) addPage(title, path, page string, rank float64) {
	at := headings.FindAllStringSubmatchIndex(page, -1)
	for i, m := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		heading := strings.TrimSpace(withoutTags(anchors.ReplaceAllString(page[m[4]:m[5]], "")))
		name, factor := heading, rank
		if i == 0 {
			factor *= atTop
		}
		if heading != title && path != "/docs" {
			name = title + ": " + heading
		}
		text := withoutTags(page[m[1]:end])
		x.add(hit{Name: name, Href: path + "#" + page[m[2]:m[3]], Text: text}, factor, title, heading, text)
	}
}

func (x *index) add(h hit, factor float64, title, heading, text string) {
	e := entry{hit: h, names: map[string]float64{}, text: map[string]float64{}, factor: factor}
	e.Text = excerpt(h.Text)
	stem := func(text string, f func(stem string, of int)) {
		all := words(text)
		for _, w := range all {
			s := english.Stem(w, true)
			f(s, len(all))
			if len(w) >= 4 {
				x.words[w] = s
			}
			if in := x.found[s]; len(in) == 0 || in[len(in)-1] != len(x.entries) {
				x.found[s] = append(in, len(x.entries))
			}
		}
	}
	stem(title, func(s string, of int) { e.names[s] += inTitle / math.Sqrt(float64(of)) })
	stem(heading, func(s string, of int) { e.names[s] += inHeading / math.Sqrt(float64(of)) })
	stem(text, func(s string, of int) { e.text[s]++; e.length = float64(of) })
	x.entries = append(x.entries, e)
}

// search returns the best results, those with all words of the query first.
func (x *index) search(query string) []hit {
	asked := words(query)
	if meant := slices.DeleteFunc(slices.Clone(asked), func(w string) bool { return english.IsStopWord(w) || fillers[w] }); len(meant) > 0 {
		asked = meant
	}
	asked = asked[:min(len(asked), maxWords)]
	scores, covered := map[int]float64{}, map[int]int{}
	for i, word := range asked {
		best := map[int]float64{} // best weight per entry among the word and its synonyms
		for stem, weight := range x.meant(word, i == len(asked)-1) {
			in := x.found[stem]
			rare := math.Log(1 + (float64(len(x.entries)-len(in))+0.5)/(float64(len(in))+0.5))
			for _, n := range in {
				e := &x.entries[n]
				f := e.text[stem]
				inText := f * 2.2 / (f + 1.2*(0.5+0.5*e.length/x.length))
				best[n] = max(best[n], weight*rare*(e.names[stem]+inText))
			}
		}
		for n, score := range best {
			scores[n] += score
			covered[n]++
		}
	}
	for n, c := range covered {
		part := float64(c) / float64(len(asked))
		scores[n] *= part * part * x.entries[n].factor
	}
	best := slices.SortedFunc(maps.Keys(scores), func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), a-b) })
	hits := []hit{}
	for _, n := range best[:min(len(best), maxHits)] {
		hits = append(hits, x.entries[n].hit)
	}
	return hits
}

// meant returns the stems to search for a word with their weights: its own and its synonyms'. If the pages contain none
// of them, it returns words with similar spelling and, for the last word, which may be incomplete, words that begin
// with it.
func (x *index) meant(word string, last bool) map[string]float64 {
	out := map[string]float64{}
	add := func(stem string, weight float64) {
		if len(x.found[stem]) > 0 {
			out[stem] = max(out[stem], weight)
		}
	}
	add(english.Stem(word, true), 1)
	for _, same := range sameAs[word] {
		add(english.Stem(same, true), 0.8)
	}
	if len(out) > 0 {
		return out
	}
	for w, stem := range x.words {
		switch {
		case last && len(word) >= 2 && strings.HasPrefix(w, word):
			add(stem, 0.7)
		case len(word) >= 4 && near(word, w, 1+len(word)/8):
			add(stem, 0.5)
		}
	}
	return out
}

// near reports whether a can be turned into b by at most n insertions, deletions, substitutions or swaps of neighbors.
func near(a, b string, n int) bool {
	const longest = 32
	if len(a)-len(b) > n || len(b)-len(a) > n || len(b) >= longest {
		return false
	}
	var before, row [longest]int // Damerau-Levenshtein distances
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := [longest]int{i}
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)] <= n
}

// oneWord joins names of several words so that a search treats them as one.
var oneWord = strings.NewReplacer(
	"next.js", "nextjs", "next js", "nextjs", "node.js", "nodejs", "node js", "nodejs", "nuxt.js", "nuxt", "vue.js", "vue",
	"word press", "wordpress", "wp-", "wordpress ", "let's encrypt", "letsencrypt", "log in", "login", "sign in", "login",
	"sign-in", "login", "roll back", "rollback", "set up", "setup", "two-factor", "2fa", "two factor", "2fa",
	"command line", "cli", "command-line", "cli", "single sign-on", "sso", "single-page", "spa", "single page", "spa",
)

// sameAs lists synonyms of query words.
var sameAs = map[string][]string{
	"ssl": {"certificate", "tls"}, "https": {"certificate", "tls"}, "letsencrypt": {"certificate"}, "cert": {"certificate"},
	"env": {"environment", "variable"}, "dotenv": {"environment"}, "vars": {"variable"}, "var": {"variable"},
	"secret": {"secrets"}, "config": {"settings"},
	"db": {"database"}, "mysql": {"database", "mariadb"}, "mariadb": {"database"}, "postgres": {"postgresql"},
	"cron": {"scheduled"}, "cronjob": {"cron", "scheduled"}, "schedule": {"cron"},
	"spa": {"rewrite", "200"}, "404": {"notfound", "missing"}, "undo": {"rollback"}, "revert": {"rollback"},
	"dns": {"domain", "records"}, "cname": {"domain", "records"}, "subdomain": {"domain", "wildcard"},
	"ci": {"github"}, "pipeline": {"github"}, "pr": {"pull"}, "preview": {"previews"}, "branch": {"preview"},
	"fail": {"error", "failed"}, "failed": {"error"}, "failure": {"error"}, "crash": {"crashes"}, "broken": {"error"},
	"upload": {"deploy", "folder"}, "publish": {"deploy"}, "ship": {"deploy"}, "host": {"deploy"}, "drag": {"upload"},
	"migrate": {"moving", "coming"}, "move": {"moving", "coming"}, "switch": {"moving", "coming"}, "import": {"importing"},
	"price": {"plan"}, "cost": {"plan"}, "pay": {"payment"}, "password": {"login"}, "login": {"signin"},
	"mfa": {"2fa"}, "totp": {"2fa"}, "passkey": {"2fa"}, "saml": {"sso", "openid"}, "oidc": {"openid", "sso"},
	"invite": {"invitation", "member"}, "colleague": {"member", "team"}, "user": {"member"}, "permission": {"role"}, "rights": {"role"},
	"agent": {"mcp"}, "ai": {"mcp"}, "claude": {"mcp"}, "cursor": {"mcp"}, "k8s": {"kubernetes"}, "helm": {"kubernetes"},
	"docker": {"container", "image"}, "bucket": {"s3"}, "email": {"mail"}, "smtp": {"mail"},
	"laravel": {"php", "composer"}, "symfony": {"php", "composer"}, "express": {"nodejs"}, "plugin": {"plugins"}, "theme": {"themes"},
	"worker": {"workers"}, "queue": {"workers"}, "ssh": {"terminal"}, "shell": {"terminal"}, "console": {"terminal"},
	"log": {"logs"}, "debug": {"logs", "error"}, "hmac": {"signature"}, "verify": {"signature"},
	"auth": {"protection", "authentication"}, "protect": {"protection"},
	"cache": {"caching"}, "header": {"headers"}, "cors": {"headers"}, "proxy": {"forwarding"}, "monorepo": {"root", "folder"},
	"token": {"key"}, "apikey": {"key"}, "upgrade": {"upgrading"}, "update": {"updates"}, "restore": {"backup"}, "size": {"limits"},
}

// fillers lists question words without meaning for a search, besides the language's stop words.
var fillers = map[string]bool{
	"how": true, "use": true, "using": true, "get": true, "want": true, "need": true, "can": true, "site": true, "slipway": true, "add": true,
	"does": true, "make": true, "job": true, "jobs": true,
}

// words returns the lower-case words of a text. A name such as rollbackSite yields rollbacksite, rollback and site.
func words(text string) []string {
	var out []string
	for _, field := range strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-'", r)
	}) {
		if cut := humps.ReplaceAllString(field, "$1 $2"); cut != field {
			out = append(out, strings.Fields(strings.ToLower(cut))...)
		}
	}
	return append(out, strings.FieldsFunc(oneWord.Replace(strings.ToLower(text)), between)...)
}

func between(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

var humps = lazyregexp.New(`([a-z])([A-Z])`)

// excerpt returns the beginning of a text.
func excerpt(text string) string {
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "# ")
	if len(text) <= 160 {
		return text
	}
	return text[:strings.LastIndexByte(text[:160], ' ')+1] + "…"
}

// searchQuery returns a request's query, cut to maxSearch bytes.
func searchQuery(r *http.Request) string {
	q := r.URL.Query().Get("q")
	return strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxSearch)], ""))
}

func withoutTags(s string) string { return html.UnescapeString(tags.ReplaceAllString(s, " ")) }
