package compress

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"slipway/internal/build/release"
)

// Answer compresses a text that a program writes, as nginx does: with gzip, as it comes, if the visitor takes that. An
// answer that is compressed already, or that says no-transform, stays as it is, and so does a short one.
func Answer(r *http.Request, resp *http.Response) {
	h := resp.Header
	kind := h.Get("Content-Type")
	switch {
	case resp.StatusCode < 200 || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusPartialContent ||
		resp.StatusCode == http.StatusNotModified:
		return
	case resp.ContentLength >= 0 && resp.ContentLength < least, h.Get("Content-Encoding") != "", h.Get("Content-Range") != "":
		return
	case !release.Compressible(kind), strings.HasPrefix(kind, "text/event-stream"),
		strings.Contains(strings.ToLower(strings.Join(h["Cache-Control"], ",")), "no-transform"):
		return
	}
	vary(h)
	if r.Method == http.MethodHead || release.Negotiate(r.Header["Accept-Encoding"], false, false, true) != "gzip" {
		return
	}
	if tag := h.Get("Etag"); strings.HasPrefix(tag, `"`) { // another representation (RFC 9110 §8.8.3.3)
		h.Set("Etag", "W/"+tag)
	}
	h.Set("Content-Encoding", "gzip")
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	resp.ContentLength = -1
	p := &packed{from: resp.Body, w: gzips.Get().(*gzip.Writer)}
	p.w.Reset(&p.out)
	resp.Body = p
}

// share: total one for each answer that is compressed; owner see the workers of its sites; edge more are made
var gzips = sync.Pool{New: func() any { w, _ := gzip.NewWriterLevel(nil, 1); return w }}

// packed is a body that is compressed while it is read. What the program has written so far reaches the visitor.
type packed struct {
	from io.ReadCloser
	w    *gzip.Writer // nil at the end
	out  bytes.Buffer
	err  error
	read int64
}

// Bytes of an answer that are compressed at full speed, and how many more per second.
const (
	atFullSpeed   = 4 << 20
	thenPerSecond = 4 << 20
)

func (p *packed) Read(b []byte) (int, error) {
	var part [16 << 10]byte
	for p.out.Len() == 0 && p.err == nil {
		n, err := p.from.Read(part[:])
		if n > 0 {
			_, _ = p.w.Write(part[:n]) // to memory
			if err == nil {
				_ = p.w.Flush()
			}
			if p.read += int64(n); p.read > atFullSpeed { // compressing costs the service more than the owner's traffic
				time.Sleep(time.Duration(n) * time.Second / thenPerSecond)
			}
		}
		if err == io.EOF {
			_ = p.w.Close()
			gzips.Put(p.w)
			p.w = nil
		}
		p.err = err
	}
	if p.out.Len() == 0 {
		return 0, p.err
	}
	return p.out.Read(b)
}

// Close ends the answer, whether all of it was read or not.
func (p *packed) Close() error { return p.from.Close() }
