package fastpath

import (
	"bytes"
	"strings"
)

// memo remembers, per connection, what fields that come with every request meant.
type memo struct {
	hostSeen    []byte // a Host that is the connection's
	acceptsSeen []byte
	accepts     Encodings
	cookies     []text // of the request that is read; kept to be used again
}

// plain is a request that is answered here if an answer is ready.
type plain struct {
	head    bool
	close   bool // HTTP/1.1: it asked for the connection to end
	path    []byte
	accepts Encodings
	tag     []byte // an If-None-Match that is one strong entity tag; nil: there is none
	cookies []text // its Cookie fields

	referrer, agent text // for whom is interested
}

// text is a field's value where it was read: in a buffer, or a string.
type text struct {
	b []byte
	s string
}

func (t text) String() string {
	if t.b != nil {
		return string(t.b)
	}
	return t.s
}

// pick returns what of an answer a request gets. ok is false where it asks for more than
// can be told here: whether a list of tags, or a weak one, has the answer's, or who a cookie
// says that it is from.
func (r *plain) pick(a *Answer) (h *head, body []byte, ok bool) {
	switch {
	case len(r.cookies) > 0 && len(a.Sessions) > 0 && r.session(a.Sessions):
	case r.tag == nil:
		h = &a.whole
		if !r.head {
			body = a.body
		}
		return h, body, true
	case a.tag != "" && string(r.tag) == a.tag:
		return &a.unchanged, nil, true
	}
	return nil, nil, false
}

// session reports whether one of the texts stands in a cookie, wherever: what reads cookies
// in another way than we do finds no session either where none is.
func (r *plain) session(of []string) bool {
	for _, c := range r.cookies {
		for _, s := range of {
			if c.b != nil && bytes.Contains(c.b, []byte(s)) || c.b == nil && strings.Contains(c.s, s) {
				return true
			}
		}
	}
	return false
}

// token holds the characters of field names (RFC 9110, section 5.6.2).
var token = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

// Token reports whether s is a token, as a method or the name of a field must be.
func Token(s string) bool {
	for i := range len(s) {
		if !token[s[i]] {
			return false
		}
	}
	return s != ""
}

// pathChar holds the characters that a path may have here: those of RFC 3986 and nothing
// that only some parsers let pass.
var pathChar = func() (t [256]bool) {
	for _, c := range []byte("%-._~!$&'()*+,;=:@/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

const maxPlainPath = 1024

func plainPath(p []byte) bool {
	if len(p) == 0 || p[0] != '/' || len(p) > maxPlainPath {
		return false
	}
	for _, c := range p {
		if !pathChar[c] {
			return false
		}
	}
	return true
}

// parseH1 reads a request's header, which ends in an empty line, and reports whether it
// is plain. Everything it doesn't know to be harmless makes it not plain: then net/http
// reads the same bytes. It is strict where that is lenient, never the other way round.
func (c *conn) parseH1(b []byte) (r plain, ok bool) {
	line, rest, _ := bytes.Cut(b, crlf)
	if target, found := bytes.CutPrefix(line, []byte("GET ")); found {
		line = target
	} else if target, found := bytes.CutPrefix(line, []byte("HEAD ")); found {
		line, r.head = target, true
	} else {
		return r, false
	}
	r.path, ok = bytes.CutSuffix(line, []byte(" HTTP/1.1"))
	if !ok || !plainPath(r.path) {
		return r, false
	}
	r.cookies = c.cookies[:0]
	defer func() { c.cookies = r.cookies[:0] }()
	hosts, accepts := 0, 0
	for {
		line, rest, ok = bytes.Cut(rest, crlf)
		if !ok {
			return r, false
		}
		if len(line) == 0 {
			break
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return r, false
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		for _, ch := range name {
			if !token[ch] {
				return r, false
			}
		}
		for _, ch := range value {
			if ch < ' ' && ch != '\t' || ch == 0x7f {
				return r, false
			}
		}
		switch classify(name) {
		case fieldOdd:
			return r, false
		case fieldHost:
			hosts++
			if hosts > 1 || !c.isHost(value) {
				return r, false
			}
		case fieldAccept:
			accepts++
			if accepts > 1 {
				return r, false
			}
			if r.accepts, ok = c.acceptsOf(value); !ok {
				return r, false
			}
		case fieldReferrer:
			r.referrer = text{b: value}
		case fieldAgent:
			r.agent = text{b: value}
		case fieldTag:
			if r.tag != nil || len(value) == 0 {
				return r, false
			}
			r.tag = value
		case fieldCookie:
			r.cookies = append(r.cookies, text{b: value})
		case fieldConnection:
			switch strings.ToLower(string(value)) { // neither case allocates
			case "keep-alive":
			case "close":
				r.close = true
			default:
				return r, false
			}
		}
	}
	return r, hosts == 1
}

var (
	crlf     = []byte("\r\n")
	crlfcrlf = []byte("\r\n\r\n")
)

// field says what a header field means for whether a request is plain.
type field int

const (
	fieldHarmless field = iota
	fieldOdd
	fieldHost
	fieldAccept
	fieldConnection
	fieldTag
	fieldCookie
	fieldReferrer
	fieldAgent
)

// classify tells the fields that change what the answer is, or how the connection goes
// on, from the many that don't. name may be in any case.
func classify[T string | []byte](name T) field {
	switch len(name) {
	case 2:
		if equal(name, "te") {
			return fieldOdd
		}
	case 4:
		if equal(name, "host") {
			return fieldHost
		}
	case 5:
		if equal(name, "range") {
			return fieldOdd
		}
	case 6:
		if equal(name, "expect") {
			return fieldOdd
		}
		if equal(name, "cookie") {
			return fieldCookie
		}
	case 7:
		if equal(name, "upgrade") || equal(name, "trailer") {
			return fieldOdd
		}
		if equal(name, "referer") {
			return fieldReferrer
		}
	case 10:
		if equal(name, "connection") {
			return fieldConnection
		}
		if equal(name, "keep-alive") {
			return fieldOdd
		}
		if equal(name, "user-agent") {
			return fieldAgent
		}
	case 13:
		if equal(name, "authorization") {
			return fieldOdd
		}
		if equal(name, "if-none-match") {
			return fieldTag
		}
	case 14:
		if equal(name, "content-length") || equal(name, "http2-settings") {
			return fieldOdd
		}
	case 15:
		if equal(name, "accept-encoding") {
			return fieldAccept
		}
	case 16:
		if equal(name, "proxy-connection") {
			return fieldOdd
		}
	case 17:
		if equal(name, "transfer-encoding") {
			return fieldOdd
		}
	}
	if len(name) > 3 && name[0]|0x20 == 'i' && name[1]|0x20 == 'f' && name[2] == '-' {
		return fieldOdd // conditions
	}
	return fieldHarmless
}

// equal reports whether name is lower, but for its case.
func equal[T string | []byte](name T, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(lower) {
		ch := name[i]
		if ch >= 'A' && ch <= 'Z' {
			ch |= 0x20
		}
		if ch != lower[i] {
			return false
		}
	}
	return true
}

// isHost reports whether a Host is the one that the connection was made for.
func (c *conn) isHost(value []byte) bool {
	if len(value) > 0 && bytes.Equal(value, c.hostSeen) {
		return true
	}
	for _, ch := range value {
		if !token[ch] && ch != ':' {
			return false
		}
	}
	if len(value) > 300 || Hostname(string(value)) != c.place.Host {
		return false
	}
	c.hostSeen = append(c.hostSeen[:0], value...)
	return true
}

// acceptsOf reads an Accept-Encoding field. Weights make it not plain.
func (c *conn) acceptsOf(value []byte) (Encodings, bool) {
	if bytes.Equal(value, c.acceptsSeen) && c.acceptsSeen != nil {
		return c.accepts, true
	}
	e, ok := parseAccepts(value)
	if ok && len(value) <= 256 {
		c.acceptsSeen, c.accepts = append(c.acceptsSeen[:0], value...), e
	}
	return e, ok
}

func parseAccepts(value []byte) (e Encodings, ok bool) {
	for i := 0; len(value) > 0; i++ {
		if i == 16 {
			return 0, false
		}
		var item []byte
		item, value, _ = bytes.Cut(value, []byte(","))
		item = bytes.Trim(item, " \t")
		switch {
		case equal(item, "gzip"):
			e |= Gzip
		case equal(item, "br"):
			e |= Brotli
		case equal(item, "zstd"):
			e |= Zstd
		case equal(item, "deflate"):
		default:
			return 0, false
		}
	}
	return e, true
}
