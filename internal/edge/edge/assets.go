package edge

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
)

// How many releases of a program that were live before are remembered, and for how long:
// a page that was loaded from one of them may ask for its scripts much later.
const (
	earlierMost = 4
	earlierTime = 24 * time.Hour
)

// earlier lists the releases that a site's programs had before, the newest first. It is
// immutable.
type earlier struct{ list []earlierRelease }

type earlierRelease struct {
	release release.ID
	until   time.Time
}

// before returns what n remembers when it takes the place of t, which may be nil.
func (t *target) before(n *target, now time.Time) *earlier {
	if t == nil || t.site != n.site || t.backend != backendProgram || n.backend != backendProgram {
		return nil
	}
	var list []earlierRelease
	if t.release != "" && t.release != n.release {
		list = append(list, earlierRelease{t.release, now.Add(earlierTime)})
	}
	if t.earlier != nil {
		for _, r := range t.earlier.list {
			if r.release != n.release && r.release != t.release && now.Before(r.until) {
				list = append(list, r)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &earlier{slices.Clip(list[:min(len(list), earlierMost)])}
}

// programAsset answers for a file of a program's release, without the program, and reports
// whether it did: a path that is exactly a file's, or an immutable file's of an earlier
// release.
func (e *Edge) programAsset(w *recorder, r *http.Request, t *target) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method != http.MethodGet && r.Method != http.MethodHead || t.release == "" || name == "" {
		return false
	}
	f, ok := e.findAsset(r.Context(), t, name)
	if !ok {
		return false
	}
	e.bound(w, r)
	h := w.Header()
	h["X-Content-Type-Options"] = response.Nosniff
	if t.preview {
		h["X-Robots-Tag"] = response.Noindex
	}
	a := release.Answer{Kind: release.Found, Status: http.StatusOK, File: f}
	if t.protected() {
		a.Auth = []string{} // only the visitor's own browser may keep it
	}
	w.Page = r.Method == http.MethodGet && isPage(f)
	if err := e.fileserver.Serve(&w.Recorder, r, &a); err != nil {
		e.broken(w, r, t, err)
	}
	return true
}

func (e *Edge) findAsset(ctx context.Context, t *target, name string) (release.File, bool) {
	tree, err := e.tree(ctx, t.owner, t.release)
	if err != nil {
		if ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "release not readable; requests for its files go to the application", "site",
				t.site, "release", t.release, "err", err)
		}
		return release.File{}, false
	}
	if f, ok := tree.Lookup(name); ok {
		return f, true
	}
	if t.earlier == nil {
		return release.File{}, false
	}
	for _, old := range t.earlier.list {
		if time.Now().After(old.until) {
			break
		}
		tree, err := e.tree(ctx, t.owner, old.release)
		if err != nil {
			continue // collected meanwhile
		}
		if f, ok := tree.Lookup(name); ok && f.Immutable {
			return f, true
		}
	}
	return release.File{}, false
}
