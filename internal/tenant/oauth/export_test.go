package oauth

import (
	"context"

	"slipway/internal/tenant/webhook"
)

// Expire deletes expired rows, as Run does each hour.
func (s *Server) Expire(ctx context.Context) error { return s.expire(ctx) }

// Open allows apps to register themselves.
func (s *Server) Open() { s.c.Registration = true }

// Tell turns on webhook events about apps and returns the webhooks.
func (s *Server) Tell() *webhook.Webhooks {
	s.c.Hooks = webhook.New(webhook.Config{DB: s.c.DB, Seal: s.c.Seal})
	return s.c.Hooks
}
