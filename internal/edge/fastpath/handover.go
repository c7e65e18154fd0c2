package fastpath

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// handover is a listener whose Accept returns the connections it is given.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		c.Close()
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }

// handed is a connection that net/http takes over. It replays the bytes already read and knows its TLS state, although
// it isn't a [tls.Conn].
type handed struct {
	net.Conn
	read  []byte
	state *tls.ConnectionState
	below net.Conn // underlying connection; nil in lanes
}

func (h *handed) Read(p []byte) (int, error) {
	if len(h.read) > 0 {
		n := copy(p, h.read)
		h.read = h.read[n:]
		if len(h.read) == 0 {
			h.read = nil
		}
		return n, nil
	}
	return h.Conn.Read(p)
}

// NetConn returns the connection below TLS, as [tls.Conn.NetConn] does, or nil.
func (h *handed) NetConn() net.Conn { return h.below }

// CloseWrite closes the sending side. net/http calls it for a graceful close.
func (h *handed) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// memory is one end of a lane, with the addresses of its client's connection.
type memory struct {
	net.Conn
	local, remote net.Addr
}

func (m memory) LocalAddr() net.Addr  { return m.local }
func (m memory) RemoteAddr() net.Addr { return m.remote }

type stateKey struct{}

// connContext stores the TLS state of a handed-over connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*handed); ok {
		return context.WithValue(ctx, stateKey{}, h.state)
	}
	return ctx
}

// withTLS sets Request.TLS for such connections.
func withTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			if state, ok := r.Context().Value(stateKey{}).(*tls.ConnectionState); ok {
				r.TLS = state
			}
		}
		next.ServeHTTP(w, r)
	})
}
