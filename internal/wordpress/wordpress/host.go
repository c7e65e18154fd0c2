package wordpress

import (
	"context"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/difference"
)

// Address returns where visitors know a site: its primary domain, or its own address.
func (w *WordPress) Address(ctx context.Context, s site.Site) (string, error) {
	primary, err := w.c.Domains.Primary(ctx, w.c.DB, s.ID)
	if err != nil || primary == "" {
		return w.c.Sites.URL(s.Slug), err
	}
	return w.c.Sites.Address(primary), nil
}

// content returns the directory of a site's wp-content on this host.
func (w *WordPress) content(id site.ID) (string, error) {
	if w.c.Host != nil {
		folders, err := w.c.Host.StorageFolders(id)
		if dir := folders["wp-content"]; err != nil || dir != "" {
			return dir, err
		}
	}
	return "", &fault.Error{Kind: fault.Conflict, Message: "The site's files are not on this node", Code: "storage_elsewhere"}
}

// here returns the directory of this host that has a site's wp-content, where that is its own place: a copy of a volume, made for a
// backup, is not.
func (w *WordPress) here(id site.ID) (dir string, ok bool) {
	if w.c.Host != nil {
		if at, _ := w.c.Host.StorageDir(id); at != "" {
			dir, err := w.content(id)
			return dir, err == nil
		}
	}
	return "", false
}

// maxCounted bounds what is counted of a site's files, in bytes.
const maxCounted = 1 << 40

// disk returns how many bytes a site's wp-content has; of a volume that is elsewhere all that is in it. 0 where that isn't known.
func (w *WordPress) disk(ctx context.Context, id site.ID) (n int64) {
	if dir, ok := w.here(id); ok {
		return sandbox.Size(dir, maxCounted)
	} else if w.c.Host != nil {
		n, _ = w.c.Host.StorageSize(ctx, id)
	}
	return n
}

// clearObjects empties the object cache of a site's programs, and reports whether one runs here.
func (w *WordPress) clearObjects(id site.ID) bool { return w.c.Host != nil && w.c.Host.ClearRedis(id) }

// tree returns a site's wp-content, of which its PHP is asked where it is elsewhere.
func (w *WordPress) tree(s site.Site) difference.Tree {
	if dir, ok := w.here(s.ID); ok {
		return difference.Dir(dir)
	}
	return difference.Asked(func(ctx context.Context, in, out any) error {
		if w.c.Host == nil && !w.c.Apart { // its PHP runs nowhere
			return fault.Missing("site's files")
		}
		return w.task(ctx, s, s.LiveDeployment, "files", in, out)
	})
}
