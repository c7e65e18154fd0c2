package oauth

import (
	"context"

	"slipway/internal/tenant/webhook"
)

// Expire removes what is over, as Run does each hour.
func (s *Server) Expire(ctx context.Context) error { return s.expire(ctx) }

// Open lets apps register themselves.
func (s *Server) Open() { s.c.Registration = true }

// Tell lets the server tell webhooks, which it returns, of apps that come and go.
func (s *Server) Tell() *webhook.Webhooks {
	s.c.Hooks = webhook.New(webhook.Config{DB: s.c.DB, Seal: s.c.Seal})
	return s.c.Hooks
}
