// Package fileserver owns serving a file of a release over HTTP: content negotiation (RFC 9110 §12), conditional
// requests (§13), ranges (§14), and caching.
//
// Small files are cached in memory by their digests, so cached files are never stale; larger ones are read from the
// store while they are sent.
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

// Shared header values; nothing may change them.
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
	Looked func(hit bool) // called with whether a file was in memory
}

// Server serves files. It is safe for concurrent use.
type Server struct {
	Config
	assets *cache.Cache[assetKey, *asset]
	held   *fair.Pool // places of files that stay open while they are sent
}

// maxHeld caps the files that stay open while they are sent. A client that reads nothing can have 128 requests on one
// HTTP/2 connection: without a limit, two hundred such connections would use up the process's file descriptors,
// including the control plane's.
const maxHeld = 256

// New returns a Server with an empty cache.
func New(c Config) *Server {
	return &Server{
		Config: c,
		// share: total 128 MiB of files; owner half of it, and who has the most loses first; edge the files used longest ago are read from the store again
		assets: cache.NewShared[assetKey, *asset](c.Bytes, c.Bytes/4, c.Bytes/2),
		// share: total 256 files open while they are sent; owner 64, of which one visitor has 32; edge the file is opened for each part that is sent
		held: fair.New(fair.Config{Places: maxHeld, Owner: maxHeld / 4, Visitor: maxHeld / 8}),
	}
}

// assetKey holds everything that a response's bytes and headers depend on, so that no visitor's request header can
// affect another visitor's response.
type assetKey struct {
	digest   blob.Digest
	kind     string // media type
	encoding string
}

// asset is a file in memory with its prepared header values.
type asset struct {
	body   []byte
	length []string
	kind   []string
}

// Largest is the largest file kept in memory, in bytes; larger ones are read from the store.
const Largest = 2 << 20

// Serve answers with a file of a release and the headers of its rules. If it returns an error before writing anything,
// the caller answers.
func (s *Server) Serve(w *response.Recorder, r *http.Request, a *release.Answer) error {
	f, status := a.File, a.Status
	encoding, content := "", f.Body
	// A range refers to the uncompressed file.
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
	Fields(h, a)
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
		// The file itself may be intact if a compressed variant is damaged.
		s.Log.ErrorContext(r.Context(), "compressed variant not readable", "path", f.Path, "encoding", encoding, "err", err)
		if status == http.StatusOK {
			h["Etag"] = []string{etag(f.Body.Digest, "", f.Body.Digest)}
		}
		err = s.content(w, r, f, f.Body, "", status, "", "")
	}
	return err
}

// content writes one representation of a file, or the ranges in spec.
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
		w.Write(a.body) // an error means that the visitor has left
	}
	return nil
}

// asset returns a small file from memory, or reads, verifies and caches it.
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

// open opens a file for sending. If too many files are open, it returns a reader that opens the file again for each
// part, so that slow readers hold no descriptors.
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

// stream serves a file too large for memory.
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
	// If the file turns out to be damaged, its last bytes aren't sent.
	if _, err := io.CopyN(struct{ io.Writer }{w}, b, size); errors.Is(err, blob.ErrCorrupt) {
		return err
	}
	return nil
}
