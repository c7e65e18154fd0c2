package rules

import (
	"slices"
	"strconv"
	"strings"
)

// MaxTried caps the redirect rules that one request is compared with, including those that are followed to detect a
// loop. It is twice the maximum of rules for one path.
const MaxTried = 2 * (maxSame + maxDynamic)

// Request holds what an answer depends on.
type Request struct {
	Path     string // as sent: escaped, without the query
	Query    string // as sent
	Host     string // lower case, without port
	Language string // Accept-Language
	Cookie   string // Cookie
	Country  string // ISO 3166 code of the visitor's country; only needed if the rules depend on it
}

// Visitor holds the request's headers as rules need them, each parsed once.
type Visitor struct {
	Left     int      // rules that the request may still be compared with
	labels   []string // of the host
	language string   // the preferred one
	cookies  []string // of those in any rule
	read     Vary     // headers parsed so far
}

// on returns the labels of the request's host.
func (v *Visitor) on(q *Request) []string {
	if v.labels == nil {
		v.labels = strings.Split(q.Host, ".")
	}
	return v.labels
}

// speaks reports whether the visitor's preferred language is one of these, or a variety of one: de matches de-AT.
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

// preferred returns the language with the greatest weight in an Accept-Language field (RFC 9110 §12.5.4), in lower
// case. It reads the first 32 entries.
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

// sends reports whether the request has one of the cookies, with any value. asked holds the names in all rules.
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

// maxCookies caps the cookies of a request that rules are compared with.
const maxCookies = 64
