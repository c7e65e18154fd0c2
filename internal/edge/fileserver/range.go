package fileserver

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"slipway/internal/edge/response"
)

// maxRanges caps the ranges of one request. Requests with more are answered with the whole file (RFC 9110 §14.2).
const maxRanges = 16

// span is a part of a file, in bytes.
type span struct{ start, length int64 }

// askedRange returns the specifier of a Range header in bytes, for GET. Units ignore case; other units are ignored (RFC
// 9110 §14.2).
func askedRange(r *http.Request) (spec string, ok bool) {
	if len(r.Header["Range"]) != 1 || r.Method != http.MethodGet {
		return "", false
	}
	unit, spec, found := strings.Cut(r.Header["Range"][0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return "", false
	}
	return spec, true
}

// spans parses a range specifier. Malformed ones are ignored: it returns nil, true. It returns false if no range is
// satisfiable, which means 416.
func spans(spec string, size int64) ([]span, bool) {
	var list []span
	some := false // at least one range, even if beyond the end
	var sum int64
	n := 0
	for item := range strings.SplitSeq(spec, ",") {
		item = strings.Trim(item, " \t")
		if item == "" {
			continue // a list may have empty elements
		}
		n++
		if n > maxRanges {
			return nil, true
		}
		first, last, ok := strings.Cut(item, "-")
		if !ok {
			return nil, true
		}
		if first == "" { // suffix range
			count, ok := number(last)
			if !ok {
				return nil, true
			}
			some = true
			count = min(count, size)
			if count > 0 {
				list = append(list, span{size - count, count})
				sum += count
			}
			continue
		}
		from, ok := number(first)
		if !ok {
			return nil, true
		}
		to := size - 1
		if last != "" {
			if to, ok = number(last); !ok || to < from {
				return nil, true
			}
			to = min(to, size-1)
		}
		some = true
		if from < size {
			list = append(list, span{from, to - from + 1})
			sum += to - from + 1
		}
	}
	if !some || len(list) > 1 && sum > size {
		return nil, true // overlapping ranges could exceed the file's size
	}
	return list, len(list) > 0
}

// number parses decimal digits. Overflow returns the largest value, which exceeds any file.
func number(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1 << 62, true
	}
	return n, true
}

// ifRange reports whether If-Range matches this file. Dates never match, since files have none here.
func ifRange(r *http.Request, tag string) bool {
	given := r.Header["If-Range"]
	return len(given) == 0 || strings.TrimSpace(given[0]) == tag
}

// serveRange answers with ranges of a file whose headers are set. It returns false if the caller must send the whole
// file.
func serveRange(w http.ResponseWriter, r *http.Request, spec, tag string, file io.ReadSeeker, size int64) (answered bool) {
	if !ifRange(r, tag) {
		return false
	}
	list, ok := spans(spec, size)
	h := w.Header()
	switch {
	case !ok:
		for _, name := range []string{"Cache-Control", "Content-Type", "Etag"} {
			h.Del(name)
		}
		h["Content-Range"] = []string{fmt.Sprintf("bytes */%d", size)}
		response.Fail(w, r, http.StatusRequestedRangeNotSatisfiable)
		return true
	case len(list) == 0:
		return false
	case len(list) == 1:
		s := list[0]
		h["Content-Range"] = []string{contentRange(s, size)}
		h["Content-Length"] = []string{strconv.FormatInt(s.length, 10)}
		w.WriteHeader(http.StatusPartialContent)
		copySpan(w, file, s)
		return true
	}
	kind := h.Get("Content-Type")
	boundary := rand.Text()
	var length int64
	heads := make([]string, len(list))
	for i, s := range list {
		lead := "\r\n"
		if i == 0 {
			lead = ""
		}
		heads[i] = fmt.Sprintf("%s--%s\r\nContent-Type: %s\r\nContent-Range: %s\r\n\r\n", lead, boundary, kind, contentRange(s, size))
		length += int64(len(heads[i])) + s.length
	}
	end := "\r\n--" + boundary + "--\r\n"
	h["Content-Type"] = []string{"multipart/byteranges; boundary=" + boundary}
	h["Content-Length"] = []string{strconv.FormatInt(length+int64(len(end)), 10)}
	w.WriteHeader(http.StatusPartialContent)
	for i, s := range list {
		if _, err := io.WriteString(w, heads[i]); err != nil {
			return true // the visitor has left
		}
		if !copySpan(w, file, s) {
			return true
		}
	}
	io.WriteString(w, end)
	return true
}

func contentRange(s span, size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", s.start, s.start+s.length-1, size)
}

// copySpan reports whether the whole span was sent. A client detects a shorter one by the length.
func copySpan(w io.Writer, file io.ReadSeeker, s span) bool {
	if b, ok := file.(*bytes.Reader); ok && b.Size() < s.start+s.length {
		return false
	}
	if _, err := file.Seek(s.start, io.SeekStart); err != nil {
		return false
	}
	_, err := io.CopyN(struct{ io.Writer }{w}, file, s.length)
	return err == nil
}
