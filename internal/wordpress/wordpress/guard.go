package wordpress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"

	"slipway/internal/build/rules"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/guard"
)

// guarded are the sites that guards ask for and tell.
type guarded struct{ w *WordPress }

// Served is for [guard.Sites].
func (g guarded) Served(ctx context.Context, deployment id.Deployment) (s guard.Served, err error) {
	var sealed, host, old, label, root, pages, network string
	err = g.w.c.DB.QueryRow(
		ctx,
		`SELECT w.site_id, w.owner_id, w.xmlrpc, w.secret, w.host, w.old_hosts, s.subdomain, w.root_files, w.page_cache, w.network
		FROM wordpress_sites w JOIN deployment_sites d ON d.site_id = w.site_id JOIN open_sites s ON s.id = w.site_id
		WHERE d.id = $1`, deployment,
	).Scan(&s.Site, &s.Owner, &s.XMLRPC, &sealed, &host, &old, &label, &root, &pages, &network)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("find WordPress of a deployment: %w", err)
	}
	if s.Site != "" {
		key, err := g.w.c.Seal.Open(sealed, purpose(s.Site))
		if err != nil {
			return s, fmt.Errorf("open key of WordPress: %w", err)
		}
		s.Pages = readPageCache(pages)
		s.Network, s.Folders = network != "", network == Subfolder
		files := readRootFiles(root)
		s.Rules, _ = files.rules()
		maps.DeleteFunc(files, func(path, _ string) bool { return rules.IsFile(path) })
		s.Root = files
		s.Own, s.Device = guard.Mark(key), guard.Device(key)
		if host != "" && host != newAddress {
			own, _, _ := strings.Cut(strings.TrimPrefix(g.w.c.Sites.URL(label), "https://"), ":")
			s.Address, s.Former = g.w.c.Sites.Address(host), append(strings.Fields(old), own)
		}
	}
	return s, nil
}

// PagesChanged is for [guard.Sites].
func (g guarded) PagesChanged(ctx context.Context, id site.ID) { g.w.tell(ctx, id, false) }

// Scheduled is for [guard.Sites].
func (g guarded) Scheduled(ctx context.Context, id site.ID, at string) { g.w.scheduled(ctx, id, at) }
