// Package control owns the outer handler of the control plane: the hosts it serves, and the deadlines of request bodies
// and responses.
package control

import (
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing/seller"
)

const (
	bodyTime  = time.Minute // to receive a request's whole body
	writeTime = time.Minute // write timeout per chunk
)

type Config struct {
	Listen   string        // HOST:PORT
	Hosts    []string      // the control plane's hosts in lower case
	Sellers  *seller.Hosts // sellers' hosts. Optional.
	Draining *atomic.Bool  // whether the process is shutting down. Optional.
}

// Door wraps the handlers of the control plane.
type Door struct{ c Config }

// New returns a Door.
func New(c Config) *Door {
	c.Draining = cmp.Or(c.Draining, new(atomic.Bool))
	return &Door{c}
}

// Named responds with 421 to requests for hosts that aren't the control plane's. This prevents DNS rebinding, by which
// another page could act as ours in a browser, and links made from a wrong Host header.
func (d *Door) Named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.ownHost(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		const sentence = "This host is not served here"
		const details = "use the address that --base-url or --api-url names, or the one of --listen"
		if strings.HasPrefix(r.URL.Path, "/api") || strings.HasPrefix(r.URL.Path, "/hooks") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMisdirectedRequest)
			json.NewEncoder(w).Encode(map[string]string{"error": sentence, "details": details, "code": "misdirected_request"})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusMisdirectedRequest)
		io.WriteString(w, sentence+": "+details+".\n")
	})
}

// ownHost reports whether a request's host is the control plane's: a host of --base-url, --api-url, --listen or a
// seller, the address at which the connection arrived, or localhost if that is a loopback address. The port is ignored,
// since a proxy may use another.
func (d *Door) ownHost(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "" {
		return false
	}
	listen, _, _ := net.SplitHostPort(d.c.Listen)
	if slices.Contains(d.c.Hosts, host) || host == strings.ToLower(listen) || d.c.Sellers.Has(host) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	at := local.AddrPort().Addr().Unmap().WithZone("")
	if host == "localhost" {
		return at.IsLoopback()
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().WithZone("") == at
}

// Bounded adds the control plane's deadlines to a handler, both on --listen and behind the edge: it ends requests whose
// body doesn't arrive and responses that aren't read. Streams continue as long as they are read. [db.ForRequest] limits
// the wait for an unavailable database. While the process drains, each response closes its connection, so that clients
// move to another node without losing a request.
func (d *Door) Bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		// A request with Transfer-Encoding may also have had a Content-Length, which net/http has dropped. The rest of
		// the connection can't be trusted (RFC 9112 §6.1).
		if d.c.Draining.Load() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // tests' writers don't support it
			r.Body = &timedBody{r.Body, conn}
		}
		out := &timedWriter{ResponseWriter: w, conn: conn}
		out.arm()
		next.ServeHTTP(out, r.WithContext(db.ForRequest(r.Context())))
		out.arm() // for data that net/http still buffers
	})
}

// timedBody removes the deadline once the body has been read, since the connection's next read waits for the client to
// disconnect.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// timedWriter sets a deadline for every write.
type timedWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	armed time.Time
}

// arm extends the deadline, at most once per second.
func (w *timedWriter) arm() {
	if now := time.Now(); now.Sub(w.armed) > time.Second {
		w.armed = now
		_ = w.conn.SetWriteDeadline(now.Add(writeTime))
	}
}

func (w *timedWriter) Write(p []byte) (int, error) {
	w.arm()
	return w.ResponseWriter.Write(p)
}

// FlushError supports [http.ResponseController].
func (w *timedWriter) FlushError() error {
	w.arm()
	return w.conn.Flush()
}

// Unwrap supports [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
