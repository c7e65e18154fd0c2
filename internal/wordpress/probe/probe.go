// Package probe owns how pages of a WordPress answer before and after a change: what is remembered of one, and when it has become
// worse.
package probe

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/lazyregexp"
)

// Page is how one address answers.
type Page struct {
	Path   string `json:"path"`
	Status int    `json:"status"` // 0: it doesn't
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

// Look asks for a page of a host by get, which ends with the request's context. Its error is the context's: a page that doesn't
// answer has the status 0.
func Look(ctx context.Context, host, path string, get func(*http.Request) (*http.Response, error)) (Page, error) {
	p := Page{Path: path}
	within, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	r, err := http.NewRequestWithContext(within, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return p, nil // a plugin made the address
	}
	r.Header.Set("User-Agent", "Slipway-Check/1")
	r.Header.Set("X-Forwarded-Proto", "https")
	resp, err := get(r)
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

// Paths returns those of a list by which a site can be checked, 12 at most: plugins make the list.
func Paths(all []string) (list []string) {
	strange := func(r rune) bool { return r <= ' ' || r == 0x7f }
	for _, p := range all {
		if strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "//") && len(p) < 2000 && len(list) < 12 && !strings.ContainsFunc(p, strange) {
			list = append(list, p)
		}
	}
	return list
}

// Worse says in a sentence how pages answer worse than before; empty: they don't.
func Worse(before, after []Page) string {
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
