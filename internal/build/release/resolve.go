package release

import (
	"net/url"
	"strings"

	"slipway/internal/build/rules"

	"golang.org/x/text/unicode/norm"
)

// Kind is the kind of an Answer.
type Kind int

const (
	Nothing    Kind = iota // the release has no page: Status, usually 404
	Found                  // 200: File
	Redirected             // Status, to Location
	Missing                // Status, an error, with File as its page
	Proxied                // the response of Location, a URL elsewhere
)

// Answer says how a release answers a request.
type Answer struct {
	Kind     Kind
	Status   int
	File     File   // if Found or Missing: a file of the tree
	Location string // if Redirected: an escaped absolute path, never beginning with //, or a URL; if Proxied: a URL

	Rule      string   // the redirect rule that decided, such as "_redirects:3"; "" for none
	Vary      []string // request headers that rules depend on
	ByCountry bool     // depends on the visitor's country, so shared caches must not store it

	rules.Head // added by header rules
}

// ByCountry reports whether rules of the release depend on the visitor's country.
func (t *Tree) ByCountry() bool { return t.rules != nil && t.rules.Country }

// Resolve returns the answer to a request. It depends only on the release and the request. The package comment lists
// the rules.
func (t *Tree) Resolve(q rules.Request) Answer {
	var a Answer
	var name string
	var slash, doubled bool
	path, err := url.PathUnescape(q.Path)
	good := err == nil && strings.HasPrefix(path, "/") && len(path) <= 4*maxPath
	if good {
		name, slash, doubled = rules.Tidy(path)
		good = Addressable(path)
	}
	switch {
	case !good:
		name = ""
		a = t.missing("", true)
	case t.rules == nil:
		return t.files(q, name, slash, doubled)
	default:
		a = t.ruled(q, &rules.Visitor{Left: rules.MaxTried}, name, slash, doubled, true)
	}
	if t.rules != nil {
		file := ""
		if a.Kind == Found || a.Kind == Missing {
			file = a.File.Path
		}
		a.Head = t.rules.HeadOf(q.Host, name, file)
	}
	return a
}

// files returns the answer without any rules.
func (t *Tree) files(q rules.Request, name string, slash, doubled bool) Answer {
	if Hidden(name) {
		return t.missing(name, slash)
	}
	file, address, ok := t.find(name, slash)
	if !ok {
		if t.fallback != "" && !assetName(name) {
			if f, ok := t.Lookup(t.fallback); ok {
				return Answer{Kind: Found, Status: 200, File: f}
			}
		}
		return t.missing(name, slash)
	}
	asked := name
	if slash && name != "" {
		asked += "/"
	}
	if doubled || asked != address {
		to := (&url.URL{Path: "/" + address}).EscapedPath()
		if passed := rules.CleanQuery(q.Query); passed != "" {
			to += "?" + passed
		}
		return Answer{Kind: Redirected, Status: 308, Location: to}
	}
	f, _ := t.Lookup(file)
	return Answer{Kind: Found, Status: 200, File: f}
}

// ruled returns the answer of the first matching rule, or a file. If cut is set, it skips rules that would cause a
// redirect loop.
func (t *Tree) ruled(q rules.Request, v *rules.Visitor, name string, slash, doubled, cut bool) Answer {
	there := !Hidden(name)
	if there {
		_, _, there = t.find(name, slash)
	}
	var on rules.Vary
	params := rules.Query{Raw: q.Query}
	var buf [4]rules.Field
	skipped := 0
	asked := norm.NFC.String(name) // patterns are in the same form
	for i := range t.rules.Candidates(asked) {
		if there && !t.rules.Forced || v.Left == 0 {
			break
		}
		v.Left--
		r := &t.rules.Redirects[i]
		if there && !r.Force {
			continue
		}
		values, ok := t.rules.Matches(i, asked, &q, v, &params, &on, buf[:])
		if !ok {
			continue
		}
		a, ok := t.apply(r, values, q, name, slash)
		if !ok || a.Kind == Redirected && (leadsTo(a.Location, q, name) || cut && t.circles(q, v, name, a.Location)) {
			skipped++
			if skipped > maxSkipped {
				break // too many rewrites: probably an attempt to waste processor time
			}
			continue
		}
		a.Rule, a.Vary, a.ByCountry = r.Source, on.Names(), on.Country
		return a
	}
	a := t.files(q, name, slash, doubled)
	a.Vary, a.ByCountry = on.Names(), on.Country
	return a
}

// apply returns the answer of a matching rule; false if it doesn't apply.
func (t *Tree) apply(r *rules.Redirect, values []rules.Field, q rules.Request, name string, slash bool) (Answer, bool) {
	switch {
	case r.Status == 200 && rules.IsAddress(r.To):
		to, ok := r.Target(values, q)
		return Answer{Kind: Proxied, Status: 200, Location: to}, ok
	case r.Status == 200 || r.Status >= 400:
		return t.rewrite(r, values, name, slash)
	}
	to, ok := r.Target(values, q)
	return Answer{Kind: Redirected, Status: r.Status, Location: to}, ok
}

// rewrite answers with another file under the requested path.
func (t *Tree) rewrite(r *rules.Redirect, values []rules.Field, name string, slash bool) (Answer, bool) {
	if r.To == "" {
		a := t.missing(name, slash)
		a.Status = r.Status
		return a, true
	}
	to, ok := r.Path(values)
	if !ok {
		return Answer{}, false
	}
	other, otherSlash, _ := rules.Tidy("/" + strings.TrimLeft(to, "/"))
	if other != "" && checkPath(other) != "" || Hidden(other) {
		return t.missing(name, slash), true
	}
	file, _, ok := t.find(other, otherSlash)
	if !ok {
		a := t.missing(name, slash)
		if r.Status != 200 {
			a.Status = r.Status
		}
		return a, true
	}
	f, _ := t.Lookup(file)
	if r.Status != 200 {
		return Answer{Kind: Missing, Status: r.Status, File: f}, true
	}
	if r.From == "/*" && strings.HasPrefix(f.Type, "text/html") && assetName(name) {
		return t.missing(name, slash), true // a missing script is not a page
	}
	return Answer{Kind: Found, Status: 200, File: f}, true
}

// assetName reports whether a path's extension says that it isn't a page.
func assetName(name string) bool {
	kind := MediaType(name)
	return PHPSource(name) || kind != "" && !strings.HasPrefix(kind, "text/html") && !strings.HasPrefix(kind, "application/xhtml")
}

// maxSkipped caps the matching rules that are skipped because they would loop; then a file or 404 answers.
const maxSkipped = 4

// local splits the location of a redirect to the same site into the name, the path as it is sent, and the query.
func local(location string, q rules.Request) (name string, next rules.Request, ok bool) {
	if rules.IsAddress(location) {
		u, err := url.Parse(location)
		if err != nil || q.Host == "" || u.Hostname() != q.Host {
			return "", q, false
		}
		location = u.RequestURI()
	}
	location, _, _ = strings.Cut(location, "#")
	next = q
	next.Path, next.Query, _ = strings.Cut(location, "?")
	plain, err := url.PathUnescape(next.Path)
	if err != nil || !strings.HasPrefix(plain, "/") {
		return "", q, false
	}
	name, _, _ = rules.Tidy(plain)
	return name, next, name == "" || checkPath(name) == ""
}

// leadsTo reports whether a redirect leads to the requested path. Rules ignore a slash at the end.
func leadsTo(location string, q rules.Request, name string) bool {
	there, next, ok := local(location, q)
	return ok && there == name && next.Query == q.Query
}

// circles reports whether a redirect starts a loop, or a chain that exceeds the visitor's limit of rules.
func (t *Tree) circles(q rules.Request, v *rules.Visitor, name, location string) bool {
	first := q
	for range rules.MaxHops {
		if leadsTo(location, first, name) {
			return true
		}
		there, next, ok := local(location, q)
		if !ok {
			return false
		}
		a := t.ruled(next, v, there, strings.HasSuffix(next.Path, "/"), false, false)
		if a.Kind != Redirected {
			return false
		}
		q, location = next, a.Location
	}
	return true
}

// find returns the file that a name refers to and the one path at which it is served, without its leading slash. That
// path finds the same file.
func (t *Tree) find(name string, slash bool) (file, address string, ok bool) {
	switch {
	case name == "":
		return "index.html", "", t.has("index.html")
	case !slash && t.has(name):
		if stem, ok := strings.CutSuffix(name, ".html"); ok {
			return name, t.page(stem), true
		}
		return name, name, true
	case slash && t.has(name+"/index.html"):
		return name + "/index.html", t.page(name + "/index"), true
	case t.has(name + ".html"):
		return name + ".html", t.page(name), true
	case t.has(name + "/index.html"):
		return name + "/index.html", t.page(name + "/index"), true
	}
	return "", "", false
}

// page returns the path at which stem + ".html" is served.
func (t *Tree) page(stem string) string {
	if stem == "index" {
		return ""
	}
	form := t.slash
	if t.rules != nil && form == "" {
		form = t.rules.Slash
	}
	if dir, ok := strings.CutSuffix(stem, "/index"); ok {
		if form == rules.Never && !t.has(dir) && !t.has(dir+".html") {
			return dir
		}
		return dir + "/"
	}
	if strings.HasSuffix(stem, "/") || t.has(stem) {
		return stem + ".html"
	}
	if form == rules.Always && !t.has(stem+"/index.html") {
		return stem + "/"
	}
	return stem
}

// missing answers with the nearest 404.html, from the name's folder upwards.
func (t *Tree) missing(name string, slash bool) Answer {
	if !slash {
		name = parent(name)
	}
	for {
		page := "404.html"
		if name != "" {
			page = name + "/404.html"
		}
		if f, ok := t.Lookup(page); ok {
			return Answer{Kind: Missing, Status: 404, File: f}
		}
		if name == "" {
			return Answer{Status: 404}
		}
		name = parent(name)
	}
}

func parent(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return ""
}
