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
		DB:          h.DB,
		Sites:       h.Sites,
		Domains:     h.Domains,
		Databases:   h.Databases,
		Bundles:     bundles,
		Seal:        h.seal,
		Out:         out.Client(5 * time.Minute),
		Operations:  h.Operations,
		Backups:     h.Backups,
		Deployments: h.Deployments,
		Screenshots: h.Screenshots,
		Programs:    h.Apps,
		Dir:         h.s.Path("wordpress"),
		Source:      h.s.WordPressSource,
		Places:      h.places,
		Log:         h.s.Log,
	}
	if h.engine != nil {
		c.Host = h.engine
	}
	h.WordPress = wordpress.New(c)
}
