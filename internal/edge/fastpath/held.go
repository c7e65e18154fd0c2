package fastpath

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"slipway/internal/platform/fair"
)

// A few bytes of HTTP/2 can stand for thousands: HPACK (RFC 7541) repeats fields from its table. So the decompressed
// headers of running requests are limited per connection and, beyond a small free amount, per visitor and in total.
const (
	maxHeld     = 256 << 10 // per connection
	freeHeld    = 32 << 10  // of these, bytes that don't count for the visitor
	smallHeld   = 4 << 10   // request size up to which memory is released when its handler returns
	visitorHeld = 4 << 20
	allHeld     = 64 << 20
)

// newHeaders returns the pool of header bytes for running requests.
func newHeaders() *fair.Pool {
	// share: total 64 MiB of header fields of requests over HTTP/2, and of bodies that are passed on; owner 4 MiB of one visitor, 256 KiB of a connection, the first 32 KiB of each uncounted; edge the stream is refused (REFUSED_STREAM) or answered with 503; one with a body is net/http's
	return fair.New(fair.Config{Places: allHeld, Visitor: visitorHeld})
}

// headerBytes counts the header bytes of one connection's requests.
type headerBytes struct {
	pool    *fair.Pool
	visitor string
	held    atomic.Int64
}

func newHeaderBytes(pool *fair.Pool, remote net.Addr) *headerBytes {
	return &headerBytes{pool: pool, visitor: fair.Visitor(remote.String())}
}

// take counts n bytes until done is called. ok is false if they exceed a limit.
func (b *headerBytes) take(n int) (done func(), ok bool) {
	held := b.held.Add(int64(n))
	done = func() { b.held.Add(int64(-n)) }
	if held > maxHeld {
		done()
		return nil, false
	}
	if held <= freeHeld {
		return done, true
	}
	release, ok := b.pool.TryN(fair.Who{Visitor: b.visitor}, n)
	if !ok {
		done()
		return nil, false
	}
	return func() { b.held.Add(int64(-n)); release() }, true
}

type headerBytesKey struct{}

// counted limits the header bytes of requests on connections that net/http serves.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := r.Context().Value(headerBytesKey{}).(*headerBytes)
		if !ok || r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		n := fieldBytes(r)
		done, ok := b.take(n)
		if !ok {
			w.Header()["Retry-After"] = []string{"1"}
			w.Header()["Content-Length"] = []string{"0"} // a body would need the client's window
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer done()
		next.ServeHTTP(w, r)
		if n > smallHeld { // net/http keeps the header until the client has read even a small response
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// fieldBytes returns the size of a request's header, counted as in RFC 9113 §6.5.2.
func fieldBytes(r *http.Request) (n int) {
	n = len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + 32
		}
	}
	return n
}

// counting stores the connection's counter in the context of its requests.
func (s *Server) counting(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, headerBytesKey{}, newHeaderBytes(s.headers, c.RemoteAddr()))
}
