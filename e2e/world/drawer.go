package world

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Drawer is the list of API requests on a page of the dashboard.
type Drawer struct {
	Page     string // path in the dashboard
	Commands []string
}

var (
	shownRequest = regexp.MustCompile(`(?s)<div class="call" data-test="rest">.*?<code>(curl .*?)</code></pre>`)
	pageLink     = regexp.MustCompile(`<a [^>]*href="(/[^"#]*)`)
	// leave matches links that don't show a page of the dashboard.
	leave = regexp.MustCompile(`^/(docs|assets|oauth|live)(/|$)|/download|/follow$|/export|/raw|\.(txt|log|csv|json)$|[?&]format=`)
)

// Drawers follows links, starting at the given pages, and returns the drawers of all pages that have one. URLs that
// differ only in the query count as the same page.
func (p *Person) Drawers(from ...string) (all []Drawer, err error) {
	const most = 500 // pages
	seen := map[string]bool{}
	for queue := from; len(queue) > 0; queue = queue[1:] {
		at, _, _ := strings.Cut(queue[0], "?")
		if seen[at] || leave.MatchString(queue[0]) {
			continue
		}
		seen[at] = true
		if len(seen) > most {
			return nil, fmt.Errorf("more than %d pages", most)
		}
		page, err := p.Open(p.base+queue[0], nil)
		if err != nil {
			return nil, err
		}
		if page.Status != http.StatusOK || page.URL.Host != strings.TrimPrefix(p.base, "http://") {
			if page.Status >= http.StatusInternalServerError {
				return nil, fmt.Errorf("%s: %d", queue[0], page.Status)
			}
			continue
		}
		d := Drawer{Page: at}
		for _, m := range shownRequest.FindAllStringSubmatch(page.Body, -1) {
			d.Commands = append(d.Commands, html.UnescapeString(m[1]))
		}
		if len(d.Commands) > 0 {
			all = append(all, d)
		}
		for _, m := range pageLink.FindAllStringSubmatch(page.Body, -1) {
			link := html.UnescapeString(m[1])
			if u, err := url.Parse(link); err == nil && u.Host == "" {
				queue = append(queue, link)
			}
		}
	}
	return all, nil
}

// whole matches the resources that contain other resources.
var whole = regexp.MustCompile(`/(sites|teams)/[\w-]+(\s|$)`)

var shownMethod = regexp.MustCompile(`^curl -X (\w+) `)

// order returns the order of a request: reads first, deletions and stops last.
func order(command string) int {
	m := shownMethod.FindStringSubmatch(command)
	last := strings.Contains(command, "/stop") || strings.Contains(command, "/transfer")
	switch {
	case m == nil:
		return 0
	case m[1] == http.MethodDelete && whole.MatchString(command):
		return 4 // after its parts
	case m[1] == http.MethodDelete:
		return 3
	case last:
		return 2
	}
	return 1
}

// RunDrawers runs each request of the drawers once in a shell, and returns their number and those that failed. before,
// if not nil, is called before each.
func (w *World) RunDrawers(ctx context.Context, dir string, all []Drawer, env map[string]string, before func(command string) error) (n int, failed []string, err error) {
	if err := os.WriteFile(filepath.Join(dir, ".curlrc"), []byte(curlrc), 0o600); err != nil {
		return 0, nil, err
	}
	type shown struct{ page, command string }
	var commands []shown
	for _, d := range all {
		for _, c := range d.Commands {
			if !slices.ContainsFunc(commands, func(s shown) bool { return s.command == c }) {
				commands = append(commands, shown{d.Page, c})
			}
		}
	}
	slices.SortStableFunc(commands, func(a, b shown) int { return order(a.command) - order(b.command) })
	for _, s := range commands {
		if before != nil {
			if err := before(s.command); err != nil {
				return n, failed, fmt.Errorf("before %s: %w", s.command, err)
			}
		}
		n++
		out, status, err := shell(ctx, dir, s.command, env)
		if err != nil || status/100 != 2 {
			failed = append(failed, fmt.Sprintf("%s shows\n%s\nwhich answers %d: %v\n%.600s", s.page, s.command, status, err, out))
		}
	}
	return n, failed, nil
}
