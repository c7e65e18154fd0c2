package oauth

import "context"

// Expire removes what is over, as Run does each hour.
func (s *Server) Expire(ctx context.Context) error { return s.expire(ctx) }

// Open lets apps register themselves.
func (s *Server) Open() { s.c.Registration = true }
