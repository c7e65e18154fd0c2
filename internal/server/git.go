package server

import (
	"context"

	"slipway/internal/site"
	"slipway/internal/source"
)

// heads asks a site's repository for its branches and tags.
func (h *node) heads(ctx context.Context, s site.Site) (map[string]string, string, error) {
	repo, err := source.ParseRepository(s.Repository)
	if err != nil {
		return nil, "", err
	}
	cred, err := h.sites.CredentialOf(ctx, s.ID)
	if err != nil {
		return nil, "", err
	}
	return h.source.Heads(ctx, source.Request{Site: string(s.ID), Repository: repo, Credential: cred, Owner: string(s.Owner)})
}
