package release

import (
	"context"
	"fmt"
	"io"

	"slipway/internal/platform/blob"
)

// Read returns a file's verified content, or an error if it has more than limit bytes.
func (r *Releases) Read(ctx context.Context, f File, limit int64) ([]byte, error) {
	b, err := r.Blobs.ReadAll(ctx, f.Body.Digest, limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", show(f.Path), err)
	}
	return b, nil
}

// Peek returns at most the first limit bytes of a file. They are verified only if the file isn't longer.
func (r *Releases) Peek(ctx context.Context, f File, limit int64) ([]byte, error) {
	if f.Body.Size <= limit {
		return r.Read(ctx, f, limit)
	}
	b, size, err := r.Blobs.Open(ctx, f.Body.Digest)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", show(f.Path), err)
	}
	defer b.Close()
	if size != f.Body.Size {
		return nil, fmt.Errorf("read %s: %w", show(f.Path), blob.ErrCorrupt)
	}
	out := make([]byte, limit)
	if _, err := io.ReadFull(b, out); err != nil {
		return nil, fmt.Errorf("read %s: %w", show(f.Path), err)
	}
	return out, nil
}
