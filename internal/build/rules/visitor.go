package rules

import (
	"slices"
	"strconv"
	"strings"
)

// MaxTried bounds how many redirect rules one request is compared with, those that follow a
// redirect to see whether it leads in circles included. The rules of one path fit twice.
const MaxTried = 2 * (maxSame + maxDynamic)

// Request holds what an answer depends on.
type Request struct {
	Path     string // as it was sent: escaped, without the query
	Query    string // as it was sent
	Host     string // lower case, without port
	Language string // Accept-Language
	Cookie   string // Cookie
	Country  string // ISO 3166 code of where the visitor is; only for a tree that goes ByCountry
}

// Visitor holds what the rules ask of a request's headers, each taken apart once however many
// rules ask.
type Visitor struct {
	Left     int      // how many more rules the request may be compared with
	labels   []string // of the host
	language string   // the one that they like best
	cookies  []string // of those that any rule names
	read     Vary     // what has been taken apart
}

// on returns the labels of the request's host.
func (v *Visitor) on(q *Request) []string {
	if v.labels == nil {
		v.labels = strings.Split(q.Host, ".")
	}
	return v.labels
}

// speaks reports whether the language that a visitor likes best is one of these, or a
// variety of one: de matches de-AT.
func (v *Visitor) speaks(q *Request, wanted []string) bool {
	if !v.read.language {
		v.read.language, v.language = true, preferred(q.Language)
	}
	for _, w := range wanted {
		if v.language == w || strings.HasPrefix(v.language, w) && v.language[len(w)] == '-' {
			return true
		}
	}
	return false
}

// preferred returns the language of an Accept-Language field that has the greatest weight
// (RFC 9110 §12.5.4), in lower case. It reads the first 32.
func preferred(accept string) (best string) {
	weight := -1.0
	for i := 0; accept != "" && i < 32; i++ {
		var item string
		item, accept, _ = strings.Cut(accept, ",")
		tag, params, _ := strings.Cut(item, ";")
		q := 1.0
		if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			var err error
			if q, err = strconv.ParseFloat(v, 64); err != nil || q != q {
				continue
			}
		}
		tag = strings.ToLower(strings.TrimSpace(tag))
		if tag != "" && q > 0 && q > weight {
			best, weight = tag, q
		}
	}
	return best
}

// sends reports whether one of the cookies is there, whatever its value. asked are the names
// in all rules.
func (v *Visitor) sends(q *Request, names []string, asked map[string]bool) bool {
	if !v.read.cookie {
		v.read.cookie = true
		for pair := range strings.SplitSeq(q.Cookie, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if asked[name] && !slices.Contains(v.cookies, name) && len(v.cookies) < maxCookies {
				v.cookies = append(v.cookies, name)
			}
		}
	}
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(v.cookies, name) })
}

// maxCookies bounds the cookies of a request that rules are compared with.
const maxCookies = 64
