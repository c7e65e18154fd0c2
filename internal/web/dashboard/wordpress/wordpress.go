// Package wordpress owns the pages of a WordPress site: its state and updates, plugins, themes, users, imports, and the
// comparison before pushing content to another site.
package wordpress

import "slipway/internal/web/dashboard/sites"

// Pages serves the pages of WordPress sites.
type Pages struct{ *sites.Pages }

func New(p *sites.Pages) *Pages { return &Pages{p} }
