package server

import (
	"time"

	"slipway/internal/build/bundle"
	"slipway/internal/platform/egress"
	"slipway/internal/wordpress/wordpress"
)

// openWordPress makes the service of WordPress sites, which stands on those of deployments
// and backups.
func (h *node) openWordPress(out *egress.Egress, bundles *bundle.Bundles) {
	c := wordpress.Config{
		DB:          h.db,
		Sites:       h.sites,
		Domains:     h.domains,
		Databases:   h.databases,
		Bundles:     bundles,
		Seal:        h.seal,
		Out:         out.Client(5 * time.Minute),
		Operations:  h.operations,
		Backups:     h.backups,
		Deployments: h.deployments,
		Screenshots: h.screenshots,
		Programs:    h.apps,
		Dir:         h.s.Path("wordpress"),
		Source:      h.s.WordPressSource,
		Places:      h.places,
		Log:         h.s.Log,
	}
	if h.engine != nil {
		c.Host = h.engine
	}
	h.wordpress = wordpress.New(c)
}
