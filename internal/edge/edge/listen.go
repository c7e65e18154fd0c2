package edge

import (
	"context"

	"slipway/internal/edge/graceful"
	"slipway/internal/edge/http3"
	"slipway/internal/edge/ports"
)

// Serve adds the servers for visitors to a group. Until the Edge is Ready or ctx ends, connections wait in the
// listeners' queues.
func (e *Edge) Serve(ctx context.Context, g *graceful.Group, l *ports.Ports) {
	if l.HTTP != nil {
		plain := graceful.New(e.Server(e.HTTP()))
		g.Serve(plain, func() error { e.Await(ctx); return plain.Serve(l.HTTP) })
	}
	if l.HTTPS != nil {
		secure := e.Secure()
		g.Serve(secure, func() error { e.Await(ctx); return secure.Serve(l.HTTPS) })
	}
	if l.QUIC != nil {
		quick := http3.New(e.HTTPS(), e.TLSConfig(), l.Limits)
		g.Serve(quick, func() error { e.Await(ctx); return quick.Serve(l.QUIC) })
	}
}
