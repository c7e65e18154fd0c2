package fastpath

import (
	"bytes"
	"strings"
)

// memo caches, per connection, the parsed form of fields that repeat with every request.
type memo struct {
	hostSeen    []byte // last Host that was accepted
	acceptsSeen []byte
	accepts     Encodings
	cookies     []text // cookies of the current request; reused
}

// plain is a request that this package answers if a response is ready.
type plain struct {
	head    bool
	close   bool // HTTP/1.1: the client wants the connection closed
	path    []byte
	accepts Encodings
	tag     []byte // If-None-Match if it is one strong tag; else nil
	cookies []text // Cookie headers

	referrer, agent text // for statistics
}

// text is a field's value, either in the read buffer or as a string.
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

// pick returns the header and body that answer r: 200, or 304 if its tag matches. ok is false if only net/http can
// decide: for other conditional requests, and for cookies of a session.
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

// session reports whether a cookie contains one of the texts, at any position: a program that parses cookies
// differently then finds no session either.
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

// token is the set of characters in field names (RFC 9110 §5.6.2).
var token = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

// Token reports whether s is a token (RFC 9110 §5.6.2), as methods and field names must be.
func Token(s string) bool {
	for i := range len(s) {
		if !token[s[i]] {
			return false
		}
	}
	return s != ""
}

// pathChar is the set of characters allowed in a path here: those of RFC 3986, without any that only some parsers
// accept.
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

// parseH1 parses a request's header, including the empty line, and reports whether it is plain. Anything not known to
// be harmless makes the request not plain, and net/http reads the same bytes. It is stricter than net/http, never more
// lenient.
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

// field is the effect of a header field on whether a request is plain.
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

// classify returns the effect of a header field, in any case of letters: most fields have none; some change the
// response or the connection.
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
		return fieldOdd // conditional requests
	}
	return fieldHarmless
}

// equal reports whether name equals lower, ignoring case.
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

// isHost reports whether a Host header names the host of the TLS connection.
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

// acceptsOf parses an Accept-Encoding header. ok is false for weights.
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
