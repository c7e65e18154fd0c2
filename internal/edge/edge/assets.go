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

// Limits of remembered earlier releases of a program. A page loaded from one of them may request its scripts much
// later.
const (
	earlierMost = 4
	earlierTime = 24 * time.Hour
)

// earlier lists a program's previous releases, the newest first. It is immutable.
type earlier struct{ list []earlierRelease }

type earlierRelease struct {
	release release.ID
	until   time.Time
}

// before returns the earlier releases of n when it replaces t, which may be nil.
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

// programAsset answers a request for a file of a program's release without the program, and reports whether it did. The
// path must be exactly that of a file, or of an immutable file in an earlier release.
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
		a.Auth = []string{} // cacheable by the visitor's own browser only
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
			continue // deleted meanwhile
		}
		if f, ok := tree.Lookup(name); ok && f.Immutable {
			return f, true
		}
	}
	return release.File{}, false
}
