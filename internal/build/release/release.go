// Package release owns immutable trees of files, and what a release answers for a path.
//
// A release is a manifest: a list of paths, each with its content, media type and compressed variants (brotli, gzip and
// zstd), and the rules. The manifest is a blob like the contents, and its digest is the release's id, so equal trees
// are the same release and a release never changes. A Writer makes one: files that the previous release has under the
// same source key are taken over without being read, the others are compressed and stored concurrently, and Seal
// returns when everything is durable. A Tree, decoded from a manifest, resolves paths. It does no I/O.
//
// # What a path answers
//
// The rules are those of Cloudflare Pages, and of Vercel with cleanUrls:
//
//	/              index.html
//	/about         the file about, else about.html, else 308 to /about/ if about/index.html exists
//	/about/        about/index.html, else 308 to /about if about.html exists
//	/about.html    308 to /about (unless a file about exists: then about.html itself)
//	/a/index.html  308 to /a/, and so does /a/index
//	//a///b        308 to /a/b if that exists
//	anything else  the fallback, if the release has one and the name isn't that of a
//	               script, style sheet, image or other file that isn't a page; else the
//	               nearest 404.html upwards; else nothing
//
// The release's own rules (docs/redirects.md) are applied first: redirects, rewrites and error pages for paths without
// a file, or for all paths if they are forced, and headers.
//
// Paths are percent-decoded once. Paths with the segments . and .., backslashes, control characters or invalid UTF-8
// don't exist. Names that begin with a dot are neither stored nor served, except .well-known at the root.
//
// The package knows no SQL, no hosts and no HTTP. It never follows a link out of the directory it is given.
package release

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"

	"slipway/internal/platform/id"

	"slipway/internal/platform/blob"
)

// ID identifies a release: the digest of its manifest, 64 hexadecimal digits.
type ID = id.Release

// Config holds what New needs.
type Config struct {
	Blobs    *blob.Store
	Log      *slog.Logger // Optional.
	MaxFiles int          // files of one release. Optional: 0 means 200,000.
	MaxBytes int64        // uncompressed bytes of one release. Optional: 0 means 4 GiB.
	MaxFile  int64        // bytes of one file. Optional: 0 means 2 GiB.
}

// Releases makes and reads releases. It is safe for concurrent use.
type Releases struct{ Config }

// New returns Releases. It does no I/O.
func New(c Config) *Releases {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.MaxFiles = cmp.Or(c.MaxFiles, 200_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.MaxFile = cmp.Or(c.MaxFile, 2<<30)
	return &Releases{c}
}

// Load reads a release's manifest. The error is fs.ErrNotExist if it doesn't exist, and [blob.ErrCorrupt] if it is
// damaged.
func (r *Releases) Load(ctx context.Context, id ID) (*Tree, error) {
	t, _, err := r.load(ctx, id)
	return t, err
}

// load also returns the manifest's keys, which a Tree doesn't keep.
func (r *Releases) load(ctx context.Context, id ID) (*Tree, string, error) {
	d, err := blob.ParseDigest(string(id))
	if err != nil {
		return nil, "", fmt.Errorf("load release %q: %w", id, err)
	}
	b, err := r.Blobs.ReadAll(ctx, d, maxManifest)
	if err != nil {
		return nil, "", fmt.Errorf("load release: %w", err)
	}
	t, keys, err := decode(b)
	if err != nil {
		return nil, "", fmt.Errorf("load release %s: %w", id, err)
	}
	return t, keys, nil
}

// Digests yields the digest of every blob that a release uses, including its manifest. Some occur more than once.
func (r *Releases) Digests(ctx context.Context, id ID) iter.Seq2[blob.Digest, error] {
	return func(yield func(blob.Digest, error) bool) {
		t, err := r.Load(ctx, id)
		if err != nil {
			yield(blob.Digest{}, err)
			return
		}
		if d, _ := blob.ParseDigest(string(id)); !yield(d, nil) {
			return
		}
		for f := range t.Files() {
			for _, c := range []Content{f.Body, f.Brotli, f.Gzip, f.Zstd} {
				if c != (Content{}) && !yield(c.Digest, nil) {
					return
				}
			}
		}
	}
}
