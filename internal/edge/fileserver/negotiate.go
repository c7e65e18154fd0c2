package fileserver

import (
	"encoding/hex"
	"net/http"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
)

// choose returns the representation of f that the visitor prefers, and its encoding.
func choose(f release.File, accept []string) (coding string, c release.Content) {
	switch coding = release.Negotiate(accept, f.Brotli.Size > 0, f.Zstd.Size > 0, f.Gzip.Size > 0); coding {
	case "br":
		return coding, f.Brotli
	case "zstd":
		return coding, f.Zstd
	case "gzip":
		return coding, f.Gzip
	}
	return "", f.Body
}

// etag returns a strong validator: half of the content's digest, and the encoding, because each representation of a
// file needs its own tag (RFC 9110 §8.8.3.3).
func etag(content blob.Digest, encoding string, file blob.Digest) string {
	b := make([]byte, 0, 40)
	b = append(b, '"')
	b = hex.AppendEncode(b, file[:16])
	if encoding != "" {
		// Add the variant's own digest: another version of the compressor makes other bytes.
		b = append(b, '-')
		b = append(b, encoding...)
		b = append(b, '-')
		b = hex.AppendEncode(b, content[:4])
	}
	return string(append(b, '"'))
}

// conditional evaluates a request's preconditions (RFC 9110 §13.2.2) and returns 0, 304 or 412. Dates are ignored,
// since all files of a release are equally old.
func conditional(h http.Header, tag string, f release.File) int {
	if match := h["If-Match"]; len(match) > 0 {
		// Any representation that a GET could have returned matches.
		ok := false
		for _, t := range []string{
			etag(f.Body.Digest, "", f.Body.Digest),
			etag(f.Brotli.Digest, "br", f.Body.Digest),
			etag(f.Gzip.Digest, "gzip", f.Body.Digest),
			etag(f.Zstd.Digest, "zstd", f.Body.Digest),
		} {
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

// listed reports whether a list of entity tags contains tag or is *.
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
