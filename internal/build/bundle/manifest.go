package bundle

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"

	"slipway/internal/platform/blob"
)

// Limits of a manifest in bytes, stored and decompressed.
const (
	maxManifest = 32 << 20
	maxUnpacked = 256 << 20
)

// manifest lists a bundle's entries by path. Empty folders don't exist.
type manifest struct {
	Entries []entry `json:"entries"`
}

// entry is a file or a link.
type entry struct {
	Path   string `json:"p"`
	Digest string `json:"d,omitempty"` // of a file's content
	Size   int64  `json:"s,omitempty"`
	Exec   bool   `json:"x,omitempty"`
	Link   string `json:"l,omitempty"` // target of a link, relative to its folder
	Common bool   `json:"c,omitempty"` // shared by all owners, see [Bundles.StoreCommon]
}

func (m manifest) encode() ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if err := json.NewEncoder(z).Encode(m); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if out.Len() > maxManifest {
		return nil, errors.New("the list of files is too long")
	}
	return out.Bytes(), nil
}

// load reads and checks a manifest. It is treated as untrusted, because its entries are written to disk.
func (b *Bundles) load(ctx context.Context, id ID) (m manifest, err error) {
	d, err := blob.ParseDigest(string(id))
	if err != nil {
		return m, err
	}
	packed, err := b.c.Blobs.ReadAll(ctx, d, maxManifest)
	if err != nil {
		return m, err
	}
	return decode(packed)
}

// decode parses and checks a manifest.
func decode(packed []byte) (m manifest, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(z, maxUnpacked)).Decode(&m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	for _, e := range m.Entries {
		if e.Path == "" || path.Clean("/" + e.Path)[1:] != e.Path || strings.ContainsRune(e.Path, 0) ||
			e.Link != "" && !linkInside(e.Path, e.Link) {
			return m, fmt.Errorf("read manifest: bad entry %q", e.Path)
		}
	}
	return m, nil
}

// Blobs yields the digests of the manifest and of each file, for garbage collection.
func (b *Bundles) Blobs(ctx context.Context, id ID) iter.Seq2[blob.Digest, error] {
	return func(yield func(blob.Digest, error) bool) {
		own, err := blob.ParseDigest(string(id))
		if err != nil || !yield(own, nil) {
			if err != nil {
				yield(blob.Digest{}, err)
			}
			return
		}
		m, err := b.load(ctx, id)
		if err != nil {
			yield(blob.Digest{}, fmt.Errorf("read bundle %.12s: %w", id, err))
			return
		}
		for _, e := range m.Entries {
			if e.Digest == "" {
				continue
			}
			d, err := blob.ParseDigest(e.Digest)
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// Added returns how many bytes of a bundle's files another one lacks. "" has no files, and neither has one that can't
// be read.
func (b *Bundles) Added(ctx context.Context, id, than ID) (int64, error) {
	had := map[string]bool{}
	if than != "" {
		old, err := b.load(ctx, than)
		if err != nil {
			b.c.Log.WarnContext(ctx, "earlier bundle not compared", "bundle", than, "err", err)
		}
		for _, e := range old.Entries {
			had[e.Digest] = true
		}
	}
	m, err := b.load(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("read bundle %.12s: %w", id, err)
	}
	var n int64
	for _, e := range m.Entries {
		if !had[e.Digest] {
			had[e.Digest] = true
			n += e.Size
		}
	}
	return n, nil
}

// linkInside reports whether a relative link in the folder of name stays in the bundle.
func linkInside(name, to string) bool {
	if to == "" || path.IsAbs(to) || strings.ContainsRune(to, 0) || len(to) > 1024 {
		return false
	}
	at := path.Join(path.Dir(name), to)
	return at != ".." && !strings.HasPrefix(at, "../")
}

// File is a file or a symbolic link of a bundle.
type File struct {
	Path   string
	Digest blob.Digest // of a file's content
	Size   int64
	Exec   bool
	Link   string // target of a link, relative to its folder; empty for a file
}

// Files yields a bundle's entries, sorted by path.
func (b *Bundles) Files(ctx context.Context, id ID) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		m, err := b.load(ctx, id)
		if err != nil {
			yield(File{}, fmt.Errorf("read bundle %.12s: %w", id, err))
			return
		}
		for _, e := range m.Entries {
			f := File{Path: e.Path, Size: e.Size, Exec: e.Exec, Link: e.Link}
			if e.Link == "" {
				if f.Digest, err = blob.ParseDigest(e.Digest); err != nil {
					yield(File{}, fmt.Errorf("read bundle %.12s: %w", id, err))
					return
				}
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}
