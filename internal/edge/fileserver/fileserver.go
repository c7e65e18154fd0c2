// Package fileserver owns serving a file of a release over HTTP: its representations
// (RFC 9110, section 12), conditional requests (section 13), ranges (section 14), and
// caching.
//
// Small files are cached in memory by their digests, so cached files are never stale;
// larger ones are read from the store while they are sent.
package fileserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/cache"
	"slipway/internal/platform/fair"
)

// Header values are shared by all answers: nobody writes to them.
var (
	forever    = []string{"public, max-age=31536000, immutable"}
	varyBy     = []string{"Accept-Encoding"}
	acceptsRng = []string{"bytes"}
	encodings  = map[string][]string{"br": {"br"}, "gzip": {"gzip"}, "zstd": {"zstd"}}
)

// Config holds the dependencies and settings of a Server.
type Config struct {
	Blobs  *blob.Store
	Log    *slog.Logger
	Bytes  int64          // memory for files
	Looked func(hit bool) // hears whether a file was in memory
}

// Server answers with files. It is safe for concurrent use.
type Server struct {
	Config
	assets *cache.Cache[assetKey, *asset]
	held   *fair.Pool // a place for each file that stays open while it is sent
}

// maxHeld is how many files stay open while they are sent. A visitor who reads nothing has 128
// requests on one connection of HTTP/2: without a bound two hundred such connections use up
// the descriptors of the whole process, those of the control plane included.
const maxHeld = 256

// New returns a Server that has nothing in memory yet.
func New(c Config) *Server {
	return &Server{
		Config: c,
		// share: total 128 MiB of files; owner half of it, and who has the most loses first; edge the files used longest ago are read from the store again
		assets: cache.NewShared[assetKey, *asset](c.Bytes, c.Bytes/4, c.Bytes/2),
		// share: total 256 files open while they are sent; owner 64, of which one visitor has 32; edge the file is opened for each part that is sent
		held: fair.New(fair.Config{Places: maxHeld, Owner: maxHeld / 4, Visitor: maxHeld / 8}),
	}
}

// assetKey is everything an answer's bytes and headers depend on, so that no header of a
// request can put one visitor's answer before another.
type assetKey struct {
	digest   blob.Digest
	kind     string // media type
	encoding string
}

// asset is a file in memory, with its header values made once.
type asset struct {
	body   []byte
	length []string
	kind   []string
}

// Largest is the longest file that is kept in memory, in bytes; longer ones are read from the
// store.
const Largest = 2 << 20

// Serve answers with the file that a release has for a request, and with the header fields
// that its rules say. An error before anything was written leaves the answer to the caller.
func (s *Server) Serve(w *response.Recorder, r *http.Request, a *release.Answer) error {
	f, status := a.File, a.Status
	encoding, content := "", f.Body
	// A range is a range of the file, not of what a compressor made of it.
	spec, ranged := "", false
	if status == http.StatusOK {
		spec, ranged = askedRange(r)
	}
	if !ranged {
		encoding, content = choose(f, r.Header["Accept-Encoding"])
	}
	h := w.Header()
	if f.Compressed() {
		h["Vary"] = varyBy
	}
	h["Cache-Control"] = response.Revalidate
	if status == http.StatusOK && f.Immutable {
		h["Cache-Control"] = forever
	}
	if a.Auth != nil {
		h["Cache-Control"] = response.Private
	}
	ruleHeaders(h, a)
	tag := ""
	if status == http.StatusOK {
		tag = etag(content.Digest, encoding, f.Body.Digest)
		h["Etag"] = []string{tag}
		switch conditional(r.Header, tag, f) {
		case http.StatusNotModified:
			w.WriteHeader(http.StatusNotModified)
			return nil
		case http.StatusPreconditionFailed:
			delete(h, "Cache-Control")
			delete(h, "Etag")
			response.Fail(w, r, http.StatusPreconditionFailed)
			return nil
		}
	}
	err := s.content(w, r, f, content, encoding, status, spec, tag)
	if err != nil && w.Status == 0 && encoding != "" && r.Context().Err() == nil {
		// A damaged variant is no reason to fail: the file itself may be whole.
		s.Log.ErrorContext(r.Context(), "compressed variant not readable", "path", f.Path, "encoding", encoding, "err", err)
		if status == http.StatusOK {
			h["Etag"] = []string{etag(f.Body.Digest, "", f.Body.Digest)}
		}
		err = s.content(w, r, f, f.Body, "", status, "", "")
	}
	return err
}

// content writes one representation of a file, or the parts of it that spec asks for.
func (s *Server) content(
	w *response.Recorder,
	r *http.Request,
	f release.File,
	c release.Content,
	encoding string,
	status int,
	spec, tag string,
) error {
	h := w.Header()
	if c.Size > Largest {
		if w.Trial {
			return nil
		}
		return s.stream(w, r, f, c, encoding, status, spec, tag)
	}
	a, err := s.asset(r.Context(), w.Owner, assetKey{c.Digest, f.Type, encoding}, c.Size)
	if err != nil {
		return err
	}
	if _, byRule := h["Content-Type"]; !byRule {
		h["Content-Type"] = a.kind
	}
	if encoding != "" {
		h["Content-Encoding"] = encodings[encoding]
	} else if status == http.StatusOK {
		h["Accept-Ranges"] = acceptsRng
	}
	if spec != "" && serveRange(w, r, spec, tag, bytes.NewReader(a.body), c.Size) {
		return nil
	}
	h["Content-Length"] = a.length
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		if w.Plain && status == http.StatusOK {
			w.Ready, w.Body = true, a.body
		}
		w.Write(a.body) // an error is the visitor's leaving
	}
	return nil
}

// asset returns a small file from memory, or reads, verifies and keeps it.
func (s *Server) asset(ctx context.Context, owner string, key assetKey, size int64) (*asset, error) {
	a, hit, err := s.assets.FetchFor(ctx, owner, key, func(ctx context.Context) (*asset, int64, error) {
		b, err := s.Blobs.ReadAll(ctx, key.digest, Largest)
		if err != nil {
			return nil, 0, err
		}
		if int64(len(b)) != size {
			return nil, 0, fmt.Errorf("read %s: %w", key.digest, blob.ErrCorrupt)
		}
		return &asset{body: b, length: []string{strconv.Itoa(len(b))}, kind: []string{key.kind}}, size + 512, nil
	})
	s.Looked(hit)
	return a, err
}

// open opens a file to be sent, whoever reads it how slowly: for as long as it is read, or,
// where so many already are, anew for each part of it.
func (s *Server) open(ctx context.Context, who fair.Who, d blob.Digest) (f io.ReadSeeker, size int64, end func(), err error) {
	var b io.ReadSeekCloser
	release, ok := s.held.Try(who)
	if !ok {
		if b, size, err = s.Blobs.OpenBriefly(ctx, d); err != nil {
			return nil, 0, nil, err
		}
		return b, size, func() { b.Close() }, nil
	}
	if b, size, err = s.Blobs.Open(ctx, d); err != nil {
		release()
		return nil, 0, nil, err
	}
	return b, size, func() { b.Close(); release() }, nil
}

// stream answers with a file too long for memory.
func (s *Server) stream(
	w *response.Recorder,
	r *http.Request,
	f release.File,
	c release.Content,
	encoding string,
	status int,
	spec, tag string,
) error {
	b, size, end, err := s.open(r.Context(), w.Who(r), c.Digest)
	if err != nil {
		return err
	}
	defer end()
	if size != c.Size {
		return fmt.Errorf("open %s: %w", c.Digest, blob.ErrCorrupt)
	}
	h := w.Header()
	if _, byRule := h["Content-Type"]; !byRule {
		h["Content-Type"] = []string{f.Type}
	}
	if encoding != "" {
		h["Content-Encoding"] = encodings[encoding]
	} else if status == http.StatusOK {
		h["Accept-Ranges"] = acceptsRng
	}
	response.Deadline(w, size)
	if spec != "" && serveRange(w, r, spec, tag, b, size) {
		return nil
	}
	h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	// The last bytes do not come when the file turns out to be damaged.
	if _, err := io.CopyN(struct{ io.Writer }{w}, b, size); errors.Is(err, blob.ErrCorrupt) {
		return err
	}
	return nil
}
