package wparchive

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
)

// form matches the options table with its prefix and the site's URL in a dump.
var form = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?i)CREATE\\s+TABLE\\s+(?:IF\\s+NOT\\s+EXISTS\\s+)?[`\"]?([A-Za-z0-9_]{1,30}?)options[`\"]?\\s*\\(" +
		`|'siteurl'\s*,\s*'(https?://[^'\\\s]{1,200})'`)
})

// maxForm is the longest match of form.
const maxForm = 400

// look scans a dump while it is copied.
type look struct {
	home, prefix string
	text         []byte // not yet scanned
}

// Write never fails.
func (l *look) Write(b []byte) (int, error) {
	if l.home != "" && l.prefix != "" {
		return len(b), nil
	}
	l.text = append(l.text, b...)
	if len(l.text) >= 1<<20 {
		l.search()
		l.text = append(l.text[:0], l.text[len(l.text)-maxForm:]...)
	}
	return len(b), nil
}

func (l *look) end() { l.search(); l.text = nil }

func (l *look) search() {
	for _, m := range form().FindAllSubmatch(l.text, -1) {
		// Plugins' tables may end in options too; WordPress's own has the shortest name.
		if p := string(m[1]); p != "" && (l.prefix == "" || len(p) < len(l.prefix)) {
			l.prefix = p
		}
		if u := string(m[2]); u != "" && l.home == "" {
			l.home = strings.TrimRight(u, "/")
		}
	}
}

// replaced is a reader that replaces one word by another.
type replaced struct {
	in       io.Reader
	old, new []byte
	raw      []byte // read but not yet scanned
	out      []byte // ready to return
	err      error
}

func (r *replaced) Read(b []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		chunk := make([]byte, 256<<10)
		var n int
		n, r.err = r.in.Read(chunk)
		r.raw = append(r.raw, chunk[:n]...)
		for {
			i := bytes.Index(r.raw, r.old)
			if i < 0 {
				break
			}
			r.out = append(append(r.out, r.raw[:i]...), r.new...)
			r.raw = r.raw[i+len(r.old):]
		}
		keep := min(len(r.raw), len(r.old)-1) // the word may continue in the next chunk
		if r.err != nil {
			keep = 0
		}
		r.out = append(r.out, r.raw[:len(r.raw)-keep]...)
		r.raw = append([]byte(nil), r.raw[len(r.raw)-keep:]...)
	}
	n := copy(b, r.out)
	r.out = r.out[n:]
	return n, nil
}
