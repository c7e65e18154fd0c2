package server

import (
	"time"

	"slipway/internal/edge/access"
	"slipway/internal/tenant/member"
)

// edgeMembers is how the edge lets members in.
type edgeMembers struct{ *member.Members }

func (m edgeMembers) Ask(q access.Question) string { return m.Members.Ask(member.Question(q)) }

func (m edgeMembers) Granted(grant string) (access.Question, time.Time, bool) {
	q, until, ok := m.Members.Granted(grant)
	return access.Question(q), until, ok
}
