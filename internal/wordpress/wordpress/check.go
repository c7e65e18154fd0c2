package wordpress

import (
	"context"
	"net/http"
	"net/url"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/probe"
)

// look asks the pages of a site's program, past the cache.
func (w *WordPress) look(ctx context.Context, s site.Site, paths []string) ([]probe.Page, error) {
	return w.lookAt(ctx, s, s.LiveDeployment, paths)
}

func (w *WordPress) lookAt(ctx context.Context, s site.Site, deployment id.Deployment, paths []string) ([]probe.Page, error) {
	address, err := w.Address(ctx, s)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	var out []probe.Page
	for _, path := range paths {
		p, err := probe.Look(ctx, u.Host, path, func(r *http.Request) (*http.Response, error) {
			return w.visit(r.Context(), deployment, r)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// pagesOf returns the addresses by which a site is checked.
func (w *WordPress) pagesOf(ctx context.Context, s site.Site) ([]string, error) {
	var out struct{ Pages []string }
	if err := w.task(ctx, s, s.LiveDeployment, "pages", map[string]any{}, &out); err != nil {
		return nil, err
	}
	return probe.Paths(out.Pages), nil
}

// check says what is worse since a change: pages, or fatal errors in the site's log that
// were not there before it.
func (w *WordPress) check(ctx context.Context, s site.Site, before []probe.Page, since db.Time) (string, error) {
	var paths []string
	for _, p := range before {
		paths = append(paths, p.Path)
	}
	after, err := w.look(ctx, s, paths)
	if err != nil {
		return "", err
	}
	if why := probe.Worse(before, after); why != "" {
		return why, nil
	}
	for _, line := range w.c.Programs.FatalErrors(ctx, s.ID, since) {
		return "A fatal error is in the site's log: " + text.Clip(line, 300), nil
	}
	return "", nil
}
