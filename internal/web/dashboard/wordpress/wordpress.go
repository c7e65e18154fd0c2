// Package wordpress owns the pages of a WordPress site: its state and updates, plugins, themes and users, the import of an
// archive, and the comparison before content is pushed from one site to another.
package wordpress

import "slipway/internal/web/dashboard/sites"

// Pages serves these pages, with the header of those of sites.
type Pages struct{ *sites.Pages }

// New returns the pages.
func New(p *sites.Pages) *Pages { return &Pages{p} }
