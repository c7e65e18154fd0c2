package php

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
)

// sent returns the file that a script names in place of an answer of its own: an absolute path in X-Sendfile, as Apache
// has it, or one below the document root or the application's folder in X-Accel-Redirect, as nginx has it. asked
// reports whether the script named one; f is nil if it doesn't lie in storage.
func (s *Site) sent(h http.Header) (f *os.File, info os.FileInfo, asked bool) {
	var names []string
	if at := h.Get("X-Sendfile"); at != "" {
		below, ok := strings.CutPrefix(path.Clean("/"+at), path.Clean(s.Top)+"/")
		if asked = true; ok {
			names = []string{below}
		}
	} else if at := h.Get("X-Accel-Redirect"); at != "" {
		asked = true
		at, _, _ = strings.Cut(at, "?")
		if at, err := url.PathUnescape(at); err == nil {
			below := strings.TrimPrefix(path.Clean("/"+at), "/")
			names = []string{path.Join(s.Root, below), below}
		}
	}
	for _, name := range names {
		f, stored, err := s.Open(name)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && stored && info.Mode().IsRegular() {
			return f, info, true
		}
		_ = f.Close()
	}
	return nil, nil, asked
}

// sends answers with a file of storage in place of a script's answer, whose fields it keeps. Conditions and ranges
// apply.
func (s *Site) sends(r *http.Request, resp *http.Response, f *os.File, info os.FileInfo) *http.Response {
	_ = resp.Body.Close()
	for _, name := range []string{"X-Sendfile", "X-Accel-Redirect", "Content-Length", "Content-Encoding", "Transfer-Encoding"} {
		delete(resp.Header, name)
	}
	if resp.Header.Get("Etag") == "" {
		resp.Header.Set("Etag", etag(info))
	}
	from, to := io.Pipe()
	w := &answering{h: resp.Header, to: to, begun: make(chan int, 1)}
	// uncaught: copies bytes
	go func() {
		defer f.Close()
		http.ServeContent(w, r, f.Name(), info.ModTime(), f)
		w.WriteHeader(http.StatusOK)
		_ = to.Close()
	}()
	status := <-w.begun
	resp.StatusCode, resp.Status = status, strconv.Itoa(status)+" "+http.StatusText(status)
	resp.Body, resp.ContentLength = from, -1
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil {
		resp.ContentLength = n
	}
	return resp
}

// answering is the writer of an answer that is read as it is written.
type answering struct {
	h     http.Header
	to    *io.PipeWriter
	begun chan int // its status
	began bool
}

func (a *answering) Header() http.Header { return a.h }

func (a *answering) WriteHeader(status int) {
	if !a.began {
		a.began = true
		a.begun <- status
	}
}

func (a *answering) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(p)
}
