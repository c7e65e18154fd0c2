package server

import (
	"time"

	"slipway/internal/access"
	"slipway/internal/member"
)

// atEdge is how the edge lets members in.
func (h *node) atEdge() *access.Members {
	m := h.members
	return &access.Members{
		Ask: func(q access.Question) string { return m.Ask(member.Question(q)) },
		Granted: func(grant string) (access.Question, time.Time, bool) {
			q, until, ok := m.Granted(grant)
			return access.Question(q), until, ok
		},
		Pass: m.Pass, Passes: m.Passes,
	}
}
