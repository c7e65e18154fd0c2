// Package release owns immutable trees of files, and what a path in one answers.
//
// A release is a manifest: a list of paths, each with its content, media type and
// ready-made brotli, gzip and zstd variants, and rules. The manifest is a blob like the contents, and its
// digest is the release's id, so equal trees are the same release and a release never
// changes. A Writer makes one: what the previous release already has under the same
// source key is taken over without being read, the rest is compressed and stored
// concurrently, and Seal returns when all of it is durable. A Tree, decoded from a
// manifest, resolves paths: it is pure and knows no bytes.
//
// # What a path answers
//
// The rules are Cloudflare Pages', which are those of Vercel with cleanUrls:
//
//	/              index.html
//	/about         the file about, else about.html, else 308 to /about/ when about/index.html is there
//	/about/        about/index.html, else 308 to /about when about.html is there
//	/about.html    308 to /about (unless a file about is in the way: then itself)
//	/a/index.html  308 to /a/, and so does /a/index
//	//a///b        308 to /a/b when that is something
//	anything else  the fallback, if the release has one and the name isn't that of a
//	               script, style sheet, image or other file that is no page; else the
//	               nearest 404.html upwards; else nothing
//
// The release's own rules (docs/redirects.md) come before that: redirects, rewrites and
// error pages where no file answers, or everywhere if they insist, and headers.
//
// Paths are percent-decoded once. Segments . and .., a backslash, NUL and other control
// characters and invalid UTF-8 are nothing. Names that begin with a dot are neither
// stored nor served, .well-known at the top excepted.
//
// The package knows no SQL, no hosts and no HTTP; it never follows a link out of the
// directory it is given.
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

// ID is the digest of a release's manifest: 64 hex digits.
type ID = id.Release

// Config holds the dependencies and settings of Releases.
type Config struct {
	Blobs    *blob.Store
	Log      *slog.Logger // Optional.
	MaxFiles int          // of one release. Optional: 0 means 200,000.
	MaxBytes int64        // of one release, uncompressed. Optional: 0 means 4 GiB.
	MaxFile  int64        // bytes of one file. Optional: 0 means 2 GiB.
}

// Releases makes and reads releases. It is safe for concurrent use.
type Releases struct{ Config }

// New returns Releases. It touches nothing.
func New(c Config) *Releases {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.MaxFiles = cmp.Or(c.MaxFiles, 200_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.MaxFile = cmp.Or(c.MaxFile, 2<<30)
	return &Releases{c}
}

// Load reads a release's manifest. The error is fs.ErrNotExist when there is none, and
// blob.ErrCorrupt when it is damaged.
func (r *Releases) Load(ctx context.Context, id ID) (*Tree, error) {
	t, _, err := r.load(ctx, id)
	return t, err
}

// load also returns the part of the manifest that a Tree does not keep: the keys.
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

// Digests yields every blob that a release keeps alive, its manifest included, some of
// them more than once.
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
