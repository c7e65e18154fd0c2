package edge

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"slipway/internal/blob"
	"slipway/internal/release"
)

// choose returns the representation of f that a visitor likes best (RFC 9110, section
// 12.5.3): the highest weight, brotli before zstd before gzip before the file itself.
// When none is acceptable it is the file itself, as servers do.
func choose(f release.File, accept []string) (encoding string, c release.Content) {
	if len(accept) == 0 || !f.Compressed() {
		return "", f.Body
	}
	br, zstd, gzip, identity, other := -1, -1, -1, -1, -1
	for _, header := range accept {
		for i := 0; header != "" && i < 32; i++ {
			var item string
			item, header, _ = strings.Cut(header, ",")
			name, q := weight(item)
			switch name {
			case "br":
				br = q
			case "zstd":
				zstd = q
			case "gzip", "x-gzip":
				gzip = q
			case "identity":
				identity = q
			case "*":
				other = q
			}
		}
	}
	best, most := "", 0
	c = f.Body
	for _, v := range [...]struct {
		name string
		q    int
		c    release.Content
	}{{"br", br, f.Brotli}, {"zstd", zstd, f.Zstd}, {"gzip", gzip, f.Gzip}} {
		if v.q < 0 {
			v.q = other
		}
		if v.c.Size > 0 && v.q > most && v.q >= identity {
			best, most, c = v.name, v.q, v.c
		}
	}
	return best, c
}

// weight takes "name;q=0.5" apart, in thousandths. What is malformed weighs nothing.
func weight(item string) (name string, q int) {
	name, params, _ := strings.Cut(item, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	params = strings.TrimSpace(params)
	if params == "" {
		return name, 1000
	}
	v, ok := strings.CutPrefix(strings.ToLower(params), "q=")
	if !ok {
		return name, 0
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return name, 0
	}
	return name, int(x * 1000)
}

// etag is a strong validator: half of the content's digest, and the encoding, because
// two representations of a file are two sequences of bytes (RFC 9110, section 8.8.3.3).
func etag(content blob.Digest, encoding string, file blob.Digest) string {
	b := make([]byte, 0, 40)
	b = append(b, '"')
	b = hex.AppendEncode(b, file[:16])
	if encoding != "" {
		// The variant's own digest too: another compressor makes other bytes.
		b = append(b, '-')
		b = append(b, encoding...)
		b = append(b, '-')
		b = hex.AppendEncode(b, content[:4])
	}
	return string(append(b, '"'))
}

// conditional evaluates a request's conditions (RFC 9110, section 13.2.2): 0, 304 or
// 412. There are no dates: all files of a release are equally old.
func conditional(h http.Header, tag string, f release.File) int {
	if match := h["If-Match"]; len(match) > 0 {
		// Any representation that a GET could have returned will do.
		ok := false
		for _, t := range []string{etag(f.Body.Digest, "", f.Body.Digest), etag(f.Brotli.Digest, "br", f.Body.Digest), etag(f.Gzip.Digest, "gzip", f.Body.Digest), etag(f.Zstd.Digest, "zstd", f.Body.Digest)} {
			ok = ok || listed(match, t, false)
		}
		if !ok {
			return http.StatusPreconditionFailed
		}
	}
	if none := h["If-None-Match"]; len(none) > 0 && listed(none, tag, true) {
		return http.StatusNotModified
	}
	return 0
}

// listed reports whether a list of entity tags has this one, or is *.
func listed(values []string, tag string, weak bool) bool {
	for _, list := range values {
		if strings.TrimSpace(list) == "*" {
			return true
		}
		for list != "" {
			list = strings.TrimLeft(list, " \t,")
			t, isWeak := strings.CutPrefix(list, "W/")
			if len(t) == 0 || t[0] != '"' {
				break
			}
			end := strings.IndexByte(t[1:], '"')
			if end < 0 {
				break
			}
			if t[:end+2] == tag && (weak || !isWeak) {
				return true
			}
			list = t[end+2:]
		}
	}
	return false
}
