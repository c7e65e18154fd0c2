package wordpress

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/site"
)

// page is how one address answers.
type page struct {
	Path   string `json:"path"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Size   int    `json:"size"`
	Whole  bool   `json:"whole"` // it ends as a page does
}

// Bounds of a check: what is read of a page, how long it may take, and how small it may
// have become.
const (
	maxChecked = 4 << 20
	pageTime   = 30 * time.Second
	leastPart  = 3 // a page that has become less than a third has lost its content
)

var titleForm = lazyregexp.New(`(?is)<title[^>]*>(.*?)</title>`)

// look asks the pages of a site's program, past the cache.
func (w *WordPress) look(ctx context.Context, s site.Site, paths []string) ([]page, error) {
	address, err := w.Address(ctx, s)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	var out []page
	for _, path := range paths {
		p, err := w.lookAt(ctx, s, u.Host, path)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (w *WordPress) lookAt(ctx context.Context, s site.Site, host, path string) (page, error) {
	p := page{Path: path}
	within, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	r, err := http.NewRequestWithContext(within, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return p, nil // a plugin made the address
	}
	r.Header.Set("User-Agent", "Slipway-Check/1")
	r.Header.Set("X-Forwarded-Proto", "https")
	resp, err := w.visit(within, s.LiveDeployment, r)
	if err != nil {
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		return p, nil // status 0: no answer
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxChecked))
	p.Status, p.Size = resp.StatusCode, len(b)
	if m := titleForm.FindSubmatch(b); m != nil {
		p.Title = strings.TrimSpace(html.UnescapeString(strings.ToValidUTF8(string(m[1][:min(len(m[1]), 300)]), "")))
	}
	tail := strings.ToLower(string(b[max(0, len(b)-2000):]))
	p.Whole = strings.Contains(tail, "</html>") || strings.Contains(tail, "</rss>")
	return p, nil
}

// pagesOf returns the addresses by which a site is checked.
func (w *WordPress) pagesOf(ctx context.Context, s site.Site) ([]string, error) {
	var out struct{ Pages []string }
	if err := w.task(ctx, s, s.LiveDeployment, "pages", map[string]any{}, &out); err != nil {
		return nil, err
	}
	var list []string
	for _, p := range out.Pages {
		if strings.HasPrefix(
			p,
			"/",
		) && !strings.HasPrefix(
			p,
			"//",
		) && len(p) < 2000 && len(list) < 12 && !strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			list = append(list, p)
		}
	}
	return list, nil
}

// worse says in a sentence how pages answer worse than before; empty: they don't.
func worse(before, after []page) string {
	for i, a := range after {
		b := before[i]
		switch {
		case b.Status >= 500 || b.Status == 0: // it was broken before
		case a.Status == 0:
			return fmt.Sprintf("The page %s does not answer", a.Path)
		case a.Status != b.Status:
			return fmt.Sprintf("The page %s answers with status %d instead of %d", a.Path, a.Status, b.Status)
		case a.Title != b.Title:
			return fmt.Sprintf("The page %s has the title %q instead of %q", a.Path, a.Title, b.Title)
		case b.Whole && !a.Whole:
			return fmt.Sprintf("The page %s breaks off", a.Path)
		case a.Size*leastPart < b.Size:
			return fmt.Sprintf("The page %s has lost most of its content: %d bytes instead of %d", a.Path, a.Size, b.Size)
		}
	}
	return ""
}

// check says what is worse since a change: pages, or fatal errors in the site's log that
// were not there before it.
func (w *WordPress) check(ctx context.Context, s site.Site, before []page, since db.Time) (string, error) {
	var paths []string
	for _, p := range before {
		paths = append(paths, p.Path)
	}
	after, err := w.look(ctx, s, paths)
	if err != nil {
		return "", err
	}
	if why := worse(before, after); why != "" {
		return why, nil
	}
	for _, line := range w.c.Programs.FatalErrors(ctx, s.ID, since) {
		return "A fatal error is in the site's log: " + text.Clip(line, 300), nil
	}
	return "", nil
}
