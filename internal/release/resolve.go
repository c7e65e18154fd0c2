package release

import (
	"net/url"
	"strings"
)

// Kind says what a path is.
type Kind int

const (
	Nothing  Kind = iota // 404, and the release has no page for it
	Found                // 200: File
	Redirect             // 308 to Location
	Missing              // 404: File is the release's own page
)

// Answer is what a path of a release answers.
type Answer struct {
	Kind     Kind
	File     File   // where Found or Missing: a file of the tree
	Location string // where Redirect: an escaped absolute path, never beginning with //
}

// Resolve says what the path answers. It takes the path of a request as it was sent,
// escaped, without the query. The package comment has the rules.
func (t *Tree) Resolve(escaped string) Answer {
	path, err := url.PathUnescape(escaped)
	if err != nil || !strings.HasPrefix(path, "/") || len(path) > 4*maxPath {
		return t.missing("", true)
	}
	name, slash, doubled := tidy(path)
	if name != "" && checkPath(name) != "" {
		return t.missing("", true)
	}
	if hidden(name) {
		return t.missing(name, slash)
	}
	file, address, ok := t.find(name, slash)
	if !ok {
		last := name[strings.LastIndexByte(name, '/')+1:]
		if t.fallback != "" && !strings.Contains(last, ".") {
			if f, ok := t.Lookup(t.fallback); ok {
				return Answer{Kind: Found, File: f}
			}
		}
		return t.missing(name, slash)
	}
	asked := name
	if slash && name != "" {
		asked += "/"
	}
	if doubled || asked != address {
		return Answer{Kind: Redirect, Location: (&url.URL{Path: "/" + address}).EscapedPath()}
	}
	f, _ := t.Lookup(file)
	return Answer{Kind: Found, File: f}
}

// tidy splits a path into its name without slashes around it, whether it ended in one,
// and whether some were doubled.
func tidy(path string) (name string, slash, doubled bool) {
	if doubled = strings.Contains(path, "//"); doubled {
		var names []string
		for s := range strings.SplitSeq(path, "/") {
			if s != "" {
				names = append(names, s)
			}
		}
		return strings.Join(names, "/"), strings.HasSuffix(path, "/"), true
	}
	return strings.TrimSuffix(path[1:], "/"), strings.HasSuffix(path, "/"), false
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
		return name + "/index.html", name + "/", true
	case t.has(name + ".html"):
		return name + ".html", t.page(name), true
	case t.has(name + "/index.html"):
		return name + "/index.html", name + "/", true
	}
	return "", "", false
}

// page is the address of stem + ".html".
func (t *Tree) page(stem string) string {
	if stem == "index" {
		return ""
	}
	if dir, ok := strings.CutSuffix(stem, "/index"); ok {
		return dir + "/"
	}
	if strings.HasSuffix(stem, "/") || t.has(stem) {
		return stem + ".html"
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
			return Answer{Kind: Missing, File: f}
		}
		if name == "" {
			return Answer{}
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
