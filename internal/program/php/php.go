// Package php owns how PHP answers: which versions a host has, how PHP-FPM is configured for
// one site, and which script a request runs.
//
// Serve answers from files where a path names one that may be seen; RoundTrip asks PHP-FPM,
// by FastCGI, to run a script. A script is a regular file of the release whose name ends in
// .php, at exactly the path that was asked for (an index.php in a folder, what comes before
// PATH_INFO), or the front controller. Nothing in storage is ever run, nor are names that
// begin with a dot or anything below vendor: what a visitor could have put there, or what
// is there for other code. A file that looks like source is never shown either, nor is what is closed.
//
// The package starts no process and knows neither sites nor deployments.
package php

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/build/htaccess"
	"slipway/internal/edge/compress"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
	"slipway/internal/program/fastcgi"
)

// Site is a document root whose scripts PHP-FPM runs. It is an http.RoundTripper.
type Site struct {
	Top   string // where the files appear to PHP: /app
	Root  string // document root, relative to the top; "" is the top
	Front string // front controller, relative to the root; "" for none

	Closed []string // files and folders that visitors never reach, relative to the root
	// Rules are those of the release's .htaccess files. Optional.
	Rules  *htaccess.Map
	Ruled  bool    // Rules name the front controller, and when it answers
	Obeys  *Obeyed // Optional: nil obeys no files of Apache.
	obeyed obeyed

	// Open opens a file or folder by its path relative to the top, as PHP itself would see
	// it, never outside of the site. stored says that it lies in storage.
	Open func(name string) (f *os.File, stored bool, err error)
	// Dial connects to PHP-FPM.
	Dial func(ctx context.Context) (net.Conn, error)
	// Workers limits concurrent requests. nil means no limit.
	Workers *Workers
	// Spool is the directory for bodies and answers on their way. Optional: empty is the system's.
	Spool string
	// Copies compresses files for those who visit Name, the site. Optional.
	Copies *compress.Copies
	Gzip   bool // compress texts that scripts write
	Name   id.Site
	Owner  id.Owner // of the site. Optional.
}

// split returns a request's path clean and without its first slash, and whether it names a folder. ok is false for paths that
// can't be files: with a segment that begins with a dot, .well-known excepted, or bytes that file names of sites don't have.
func split(p string) (clean string, folder, ok bool) {
	clean = strings.TrimPrefix(path.Clean("/"+p), "/")
	if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == '\ufffd' }) || len(p) > 4096 {
		return clean, false, false
	}
	for part := range strings.SplitSeq(clean, "/") {
		if strings.HasPrefix(part, ".") && part != ".well-known" {
			return clean, false, false
		}
	}
	return clean, strings.HasSuffix(p, "/"), true
}

// script returns the script that a path runs, relative to the document root, and the
// PATH_INFO that follows it. moved is where a folder without its slash leads.
func (s *Site) script(p string) (script, info string, moved bool) {
	clean, slash, ok := split(p)
	if s.closes(clean) {
		return "", "", false
	}
	if ok {
		whole := clean
		if slash {
			whole += "/"
		}
		if i := strings.Index(whole, ".php/"); i >= 0 {
			switch at := whole[:i+4]; {
			case s.closes(at):
				return "", "", false
			case s.runs(at):
				return at, whole[i+4:], false
			}
		}
		if !slash && s.runs(clean) {
			return clean, "", false
		}
		for _, index := range s.index(clean) {
			if at := path.Join(clean, index); s.runs(at) {
				return at, "", !slash && clean != ""
			} else if !slash && clean != "" && s.shows(at) {
				return "", "", true
			}
		}
	}
	if s.Front != "" && !s.Ruled && s.runs(s.Front) {
		return s.Front, "", false
	}
	return "", "", false
}

// closes reports whether a path of the document root is closed to visitors.
func (s *Site) closes(name string) bool {
	return framework.Closes(s.Closed, name) || s.Rules.Hides(name)
}

// usualIndex lists the index files of a folder.
var usualIndex = []string{"index.php", "index.html"}

// index returns the names of what answers for a folder.
func (s *Site) index(folder string) []string {
	if list := s.Rules.Index(folder); list != nil {
		return list
	}
	return usualIndex
}

// shows reports whether a path of the document root is a file that Serve answers with.
func (s *Site) shows(name string) bool {
	if !framework.ShowsPHP(name) || s.closes(name) {
		return false
	}
	f, _, err := s.Open(path.Join(s.Root, name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && !s.hides(name)
}

// runs reports whether a path of the document root is a script that visitors may run.
func (s *Site) runs(name string) bool {
	if !strings.HasSuffix(name, ".php") || s.closes(name) || name == "vendor" || strings.HasPrefix(name, "vendor/") ||
		strings.HasPrefix(name, "node_modules/") {
		return false
	}
	f, stored, err := s.Open(path.Join(s.Root, name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && !stored && info.Mode().IsRegular()
}

// Serve answers a GET or HEAD for a file that is no script, and whatever a rule redirects, and reports whether it did.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request) bool {
	to := s.route(r)
	switch {
	case to.Location != "":
		w.Header()["Location"] = []string{to.Location}
		w.Header()["Content-Length"] = []string{"0"}
		w.WriteHeader(to.Status)
		return true
	case to.Status != 0 || r.Method != http.MethodGet && r.Method != http.MethodHead:
		return false
	}
	name, slash, ok := split(to.Path)
	if !ok {
		return false
	}
	if slash || name == "" {
		folder := name
		for _, index := range s.index(folder) {
			if name = path.Join(folder, index); s.runs(name) {
				return false
			} else if s.shows(name) {
				break
			}
		}
	}
	if !framework.ShowsPHP(name) || s.closes(name) {
		return false
	}
	f, stored, err := s.Open(path.Join(s.Root, name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || s.hides(name) {
		return false
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" { // the caller's goes before ours
		h.Set("Cache-Control", "public, max-age=0, must-revalidate")
	}
	kind := mediaType(name)
	file := compress.File{File: f, Info: info, Kind: kind, Site: string(s.Name)}
	tag, at := etag(info), info.ModTime()
	if !stored { // a release's files have the time at which they came to this host
		tag, at = cmp.Or(s.Copies.Tag(r.Context(), file), tag), time.Time{}
	}
	h.Set("Etag", tag)
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	if s.Copies.Serve(w, r, file, name, at) {
		return true
	}
	http.ServeContent(w, r, name, at, f)
	return true
}

func etag(info fs.FileInfo) string {
	return `"` + strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(info.Size(), 36) + `"`
}

func mediaType(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".webp":
		return "image/webp"
	case ".avif":
		return "image/avif"
	case ".woff2":
		return "font/woff2"
	case ".woff":
		return "font/woff"
	case ".ico":
		return "image/x-icon"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".html", ".htm":
		return "text/html; charset=utf-8"
	case ".json", ".map":
		return "application/json"
	case ".xml":
		return "text/xml; charset=utf-8"
	case ".ttf":
		return "font/ttf"
	case ".otf":
		return "font/otf"
	case ".eot":
		return "application/vnd.ms-fontobject"
	case ".wasm":
		return "application/wasm"
	case ".csv":
		return "text/csv; charset=utf-8"
	case ".vtt":
		return "text/vtt; charset=utf-8"
	case ".geojson":
		return "application/geo+json"
	case ".webmanifest":
		return "application/manifest+json"
	}
	return ""
}

// RoundTrip runs the script that a request's path names and returns its answer. The
// address and the protocol of the visitor are those that the edge says in its headers.
func (s *Site) RoundTrip(r *http.Request) (*http.Response, error) {
	to := s.route(r)
	if to.Status != 0 {
		if to.Location != "" {
			return s.without(r, to.Status, http.Header{"Location": {to.Location}}, ""), nil
		}
		return s.fails(r, to.Status)
	}
	script, info, moved := s.script(to.Path)
	switch {
	case moved && to.Moved:
		at := folderAt(&url.URL{Path: to.Path, RawQuery: to.Query})
		return s.without(r, http.StatusMovedPermanently, http.Header{"Location": {at}}, ""), nil
	case moved:
		return s.without(r, http.StatusMovedPermanently, http.Header{"Location": {folderAt(r.URL)}}, ""), nil
	case script == "":
		return s.fails(r, http.StatusNotFound)
	}
	resp, err := s.run(r, call{script: script, info: info, query: to.Query, moved: to.Moved, env: to.Env})
	if err != nil {
		return nil, err
	}
	switch f, info, asked := s.sent(resp.Header); {
	case f != nil:
		resp = s.sends(r, resp, f, info)
	case asked:
		_ = resp.Body.Close()
		return s.fails(r, http.StatusNotFound)
	}
	if s.Gzip {
		compress.Answer(r, resp)
	}
	return resp, nil
}

// without answers a request without PHP.
func (s *Site) without(r *http.Request, status int, h http.Header, text string) *http.Response {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return plainAnswer(r, status, h, text)
}

// call is a script that answers a request.
type call struct {
	script, info, query string
	moved               bool              // rules led there
	env                 map[string]string // what rules set
	status              int               // that its answer is about, instead of 200; 0: none
}

// run runs a script.
func (s *Site) run(r *http.Request, c call) (*http.Response, error) {
	who := fair.Who{Owner: string(s.Owner), Site: string(s.Name), Visitor: fair.Visitor(firstOf(r.Header["X-Real-Ip"], ""))}
	body, length, done, err := s.body(r, who)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return refused(r, err)
	}
	release, err := s.Workers.take(r.Context(), who.Visitor)
	if err != nil {
		done()
		return refused(r, err)
	}
	answered, ended := s.Workers.asks()
	end := func() { ended(); release(); done() }
	conn, err := s.Dial(r.Context())
	if err != nil {
		end()
		return nil, err
	}
	resp, err := fastcgi.Do(r.Context(), conn, fastcgi.Request{
		Params: s.params(r, c, length), Body: body,
		Head: r.Method == http.MethodHead,
	})
	if err != nil {
		end()
		return nil, err
	}
	answered()
	resp.Request = r
	if c.status != 0 && resp.StatusCode == http.StatusOK {
		resp.StatusCode, resp.Status = c.status, strconv.Itoa(c.status)+" "+http.StatusText(c.status)
	}
	resp.Body = keep(resp.Body, spool{dir: s.Spool, who: who}, end)
	if resp.StatusCode >= http.StatusInternalServerError && r.Method != http.MethodHead {
		return spoken(r, resp), nil
	}
	return resp, nil
}

// refused answers a request without PHP where the error says how.
func refused(r *http.Request, err error) (*http.Response, error) {
	if refused := new(refusal); errors.As(err, &refused) {
		return plainAnswer(r, refused.status, http.Header{}, refused.text+"\n"), nil
	}
	return nil, err
}

// spoken gives an error that PHP leaves without a word the sentence that a visitor reads.
func spoken(r *http.Request, resp *http.Response) *http.Response {
	first := make([]byte, 512)
	n, err := resp.Body.Read(first)
	for n == 0 && err == nil {
		n, err = resp.Body.Read(first)
	}
	if n == 0 && err == io.EOF {
		_ = resp.Body.Close()
		delete(resp.Header, "Content-Encoding")
		return plainAnswer(r, resp.StatusCode, resp.Header, "The application failed to answer this request\n")
	}
	resp.Body = &resumed{resp.Body, first[:n], err}
	return resp
}

// resumed is a body of which something has been read.
type resumed struct {
	io.ReadCloser
	first []byte
	err   error // that came with first
}

func (b *resumed) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}
