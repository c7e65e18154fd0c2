package release

import (
	"net/url"
	"strings"

	"slipway/internal/build/rules"

	"golang.org/x/text/unicode/norm"
)

// Kind says what a path is.
type Kind int

const (
	Nothing    Kind = iota // Status, usually 404, and the release has no page for it
	Found                  // 200: File
	Redirected             // Status, to Location
	Missing                // Status, an error: File is the release's own page for it
	Proxied                // what Location, an address elsewhere, answers
)

// Answer holds what a path of a release answers.
type Answer struct {
	Kind     Kind
	Status   int
	File     File   // where Found or Missing: a file of the tree
	Location string // where Redirected: an escaped absolute path, never beginning with //, or an address; where Proxied: an address

	Rule      string   // the redirect rule that decided, "_redirects:3"; "" for none
	Vary      []string // the headers of the request that rules depend on
	ByCountry bool     // whether it depends on the visitor's country, so no cache may share it

	rules.Head // what the header rules add
}

// ByCountry reports whether rules of the release ask where a visitor is.
func (t *Tree) ByCountry() bool { return t.rules != nil && t.rules.Country }

// Resolve says what a request is answered with. It is a pure function of the release and
// the request. The package comment has the rules.
func (t *Tree) Resolve(q rules.Request) Answer {
	var a Answer
	var name string
	var slash, doubled bool
	path, err := url.PathUnescape(q.Path)
	good := err == nil && strings.HasPrefix(path, "/") && len(path) <= 4*maxPath
	if good {
		name, slash, doubled = rules.Tidy(path)
		good = name == "" || checkPath(name) == ""
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

// files answers without any rule.
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

// ruled answers with the first rule that is for the request, or with a file. cut leaves
// out rules that would send a visitor in circles.
func (t *Tree) ruled(q rules.Request, v *rules.Visitor, name string, slash, doubled, cut bool) Answer {
	there := !Hidden(name)
	if there {
		_, _, there = t.find(name, slash)
	}
	var on rules.Vary
	params := rules.Query{Raw: q.Query}
	var buf [4]rules.Field
	skipped := 0
	asked := norm.NFC.String(name) // as patterns are
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
				break // nobody writes so many rules in vain, but somebody may to keep us busy
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

// apply returns what a rule that matches answers; false when it has nothing to say.
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

// rewrite shows another file under the path that was asked for.
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
		return t.missing(name, slash), true // a script that is gone is no page
	}
	return Answer{Kind: Found, Status: 200, File: f}, true
}

// assetName reports whether a path names a file that is no page, by its extension.
func assetName(name string) bool {
	kind := mediaType(name)
	return PHPSource(name) || kind != "" && !strings.HasPrefix(kind, "text/html") && !strings.HasPrefix(kind, "application/xhtml")
}

// maxSkipped bounds the rules that match and lead in circles, before a file or 404 answers.
const maxSkipped = 4

// local takes a redirect's location apart if it is on the site itself: the name, the
// path as it is sent, and the query.
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

// leadsTo reports whether a redirect leads to where the visitor is. A slash at the end
// makes no difference to the rules.
func leadsTo(location string, q rules.Request, name string) bool {
	there, next, ok := local(location, q)
	return ok && there == name && next.Query == q.Query
}

// circles reports whether a redirect leads back to where it began, or on and on, as far as
// the visitor's rules last.
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

// find returns the file that a name means and the one address at which it is served,
// without its leading slash. That address finds the same file.
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

// page is the address of stem + ".html".
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

// missing answers with the nearest 404.html from the name's directory upwards.
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
