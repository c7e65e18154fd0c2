package wordpress

import (
	"context"
	"io/fs"
	"os"

	"slipway/internal/tenant/site"
)

// filesOf counts the files of a site's wp-content; nil: they are elsewhere, or too many.
func (w *WordPress) filesOf(ctx context.Context, id site.ID) *Amount {
	dir, err := w.content(id)
	if err != nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	var a Amount
	if !walkContent(ctx, root, func(_ string, info fs.FileInfo) {
		a.Count++
		a.Bytes += info.Size()
		a.Changed = max(a.Changed, seconds(info.ModTime().Unix()))
	}) {
		return nil
	}
	return &a
}
