// Package cutover owns comparing a site at its old and new address before visitors are sent to the new one. It only
// reads, from the two given addresses, and limits its requests.
package cutover

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Limits of a comparison.
const (
	maxPages    = 200
	maxSitemaps = 10
	maxSitemap  = 2 << 20 // bytes
	maxPage     = 512 << 10
	pageTime    = 20 * time.Second
	atOnce      = 4
)

// Page is the response for a page, as far as visitors and search engines notice it.
type Page struct {
	Status int    `json:"status"` // 0: no response
	Title  string `json:"title"`
	To     string `json:"redirectTo"` // path, or URL on another host
}

// Difference is a page with different responses.
type Difference struct {
	Path string `json:"path"`
	Old  Page   `json:"old"`
	New  Page   `json:"new"`
}

// Comparison is the result of [Compare].
type Comparison struct {
	Pages       int          `json:"pages"` // number of compared pages
	Different   []Difference `json:"different"`
	More        bool         `json:"more"` // the sitemap has more pages than were compared
	Sitemap     bool         `json:"sitemap"`
	Unreachable bool         `json:"unreachable"` // the old site doesn't respond, so nothing was compared
}

// Compare requests the pages of the old site's sitemap, at most 200, at both addresses. Without a sitemap it requests
// only the home page. h must not follow redirects.
func Compare(ctx context.Context, h *http.Client, before, after *url.URL) (c Comparison, err error) {
	c.Different = []Difference{}
	hosts := []string{before.Host, after.Host}
	if p := read(ctx, h, before, "/", hosts); p.Status == 0 {
		c.Unreachable = true
		return c, ctx.Err()
	}
	paths := sitemap(ctx, h, before)
	c.Sitemap = len(paths) > 0
	c.More = len(paths) > maxPages
	if c.More {
		paths = paths[:maxPages]
	}
	if !c.Sitemap {
		paths = []string{"/"}
	}
	c.Pages = len(paths)
	found := make([]Difference, len(paths))
	var group errgroup.Group
	// share: none, this process is one user's
	group.SetLimit(atOnce)
	for n, path := range paths {
		group.Go(func() error {
			found[n] = Difference{path, read(ctx, h, before, path, hosts), read(ctx, h, after, path, hosts)}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	for _, d := range found {
		if d.Old != d.New {
			c.Different = append(c.Different, d)
		}
	}
	return c, nil
}

// get requests a path of a site and reads at most most bytes.
func get(ctx context.Context, h *http.Client, site *url.URL, path string, most int64) (*http.Response, []byte, error) {
	at, err := site.Parse(path)
	if err != nil || at.Host != site.Host {
		return nil, nil, errors.New("another host")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("User-Agent", "slipway-cli")
	resp, err := h.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return resp, body, err
}

// title matches the title of a page.
var title = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?is)<title[^>]{0,200}>(.{0,500}?)</title>`)
})

// read requests one page. hosts are the site's own hosts: redirects to any of them count as the same target.
func read(ctx context.Context, h *http.Client, site *url.URL, path string, hosts []string) (p Page) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	resp, body, err := get(ctx, h, site, path, maxPage)
	if err != nil {
		return p
	}
	p.Status = resp.StatusCode
	if m := title().FindSubmatch(body); m != nil {
		p.Title = strings.Join(strings.Fields(html.UnescapeString(string(m[1]))), " ")
	}
	if to, err := resp.Location(); err == nil {
		p.To = to.String()
		for _, host := range hosts {
			if to.Host == host {
				p.To = to.RequestURI()
			}
		}
	}
	return p
}

// locations is a sitemap or a sitemap index.
type locations struct {
	Pages []struct {
		Loc string `xml:"loc"`
	} `xml:"url"`
	Maps []struct {
		Loc string `xml:"loc"`
	} `xml:"sitemap"`
}

// sitemap returns the paths in a site's sitemap, at most one more than are compared.
func sitemap(ctx context.Context, h *http.Client, site *url.URL) (paths []string) {
	seen := map[string]bool{}
	maps := []string{"/sitemap.xml"}
	for n := 0; n < len(maps) && n < maxSitemaps && len(paths) <= maxPages; n++ {
		ctx, cancel := context.WithTimeout(ctx, pageTime)
		resp, body, err := get(ctx, h, site, maps[n], maxSitemap)
		cancel()
		if err != nil {
			continue
		}
		if to, err := resp.Location(); err == nil && n == 0 { // WordPress redirects it
			maps = append(maps, to.String())
			continue
		}
		var found locations
		if resp.StatusCode != http.StatusOK || xml.Unmarshal(body, &found) != nil {
			continue
		}
		for _, m := range found.Maps[:min(len(found.Maps), maxSitemaps)] {
			maps = append(maps, strings.TrimSpace(m.Loc))
		}
		for _, p := range found.Pages {
			u, err := url.Parse(strings.TrimSpace(p.Loc))
			if err != nil || u.Host != site.Host {
				continue
			}
			path := cmp.Or(u.RequestURI(), "/")
			if !seen[path] && len(paths) <= maxPages {
				seen[path] = true
				paths = append(paths, path)
			}
		}
	}
	return paths
}
