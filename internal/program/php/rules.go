package php

import (
	"io"
	"net"
	"net/http"
	"path"
	"strings"

	"slipway/internal/build/htaccess"
)

// route returns what the rules make of a request. Without rules, its path answers.
func (s *Site) route(r *http.Request) htaccess.Answer {
	out := htaccess.Answer{Path: r.URL.Path, Query: r.URL.RawQuery}
	if s.Rules == nil {
		return out
	}
	name, slash, _ := split(r.URL.Path) // odd paths, too, can reach the front controller
	if name = "/" + name; slash && name != "/" {
		name += "/"
	}
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		remote = r.RemoteAddr
	}
	return s.Rules.Route(htaccess.Request{
		Method: r.Method, Path: name, Query: r.URL.RawQuery, Asked: r.URL.RequestURI(), Host: r.Host,
		HTTPS:  r.TLS != nil || r.Header.Get("X-Forwarded-Proto") != "http",
		Remote: remote, Header: r.Header, Root: path.Join(s.Top, s.Root), Files: s,
	})
}

// Stat says what a path is that PHP sees.
func (s *Site) Stat(name string) htaccess.Kind {
	below, ok := strings.CutPrefix(name+"/", s.Top+"/")
	if !ok {
		return htaccess.Nothing
	}
	f, _, err := s.Open(path.Clean("./" + below))
	if err != nil {
		return htaccess.Nothing
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return htaccess.Nothing
	case info.IsDir():
		return htaccess.Dir
	case !info.Mode().IsRegular():
		return htaccess.Nothing
	case info.Size() == 0:
		return htaccess.Empty
	}
	return htaccess.File
}

// failures are the texts of answers without a document.
var failures = map[int]string{
	http.StatusNotFound: "Not found", http.StatusInternalServerError: "The rules of .htaccess lead in circles, or take too long",
}

// maxDocument is how many bytes a file may have that is shown in place of an error.
const maxDocument = 1 << 20

// fails answers with a status, and with the document that the rules name for it.
func (s *Site) fails(r *http.Request, status int) (*http.Response, error) {
	text := failures[status]
	if text == "" {
		text = http.StatusText(status)
	}
	text += "\n"
	name, _, _ := split(r.URL.Path)
	document := s.Rules.Document("/"+name, status)
	if !strings.HasPrefix(document, "/") {
		switch {
		case strings.HasPrefix(document, "http://"), strings.HasPrefix(document, "https://"):
			return s.without(r, http.StatusFound, http.Header{"Location": {document}}, ""), nil
		case document != "":
			text = document + "\n"
		}
		return s.without(r, status, http.Header{}, text), nil
	}
	at, query, _ := strings.Cut(document, "?")
	clean, _, ok := split(at)
	if script, info, moved := s.script(at); ok && script != "" && !moved {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		get := r.Clone(r.Context())
		get.Body, get.ContentLength = nil, 0
		get.Header.Del("Content-Type")
		if r.Method != http.MethodHead {
			get.Method = http.MethodGet
		}
		return s.run(get, call{script: script, info: info, query: query, moved: true, status: status})
	}
	if ok && s.shows(clean) {
		if b, err := s.read(clean); err == nil {
			resp := s.without(r, status, http.Header{}, string(b))
			resp.Header.Set("Content-Type", mediaType(clean))
			return resp, nil
		}
	}
	return s.without(r, status, http.Header{}, text), nil
}

// read returns a file of the document root.
func (s *Site) read(name string) ([]byte, error) {
	f, _, err := s.Open(path.Join(s.Root, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDocument))
}
