// Package control owns the outer handler of the control plane: the hosts that it serves, and
// deadlines for request bodies and responses.
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
	bodyTime  = time.Minute // for the whole body of a request to the control plane
	writeTime = time.Minute // for any part of an answer to be taken by the client
)

// Config says whose door it is.
type Config struct {
	Listen   string        // its HOST:PORT
	Hosts    []string      // of the control plane's addresses, in lower case
	Sellers  *seller.Hosts // and those of sellers. Optional.
	Draining *atomic.Bool  // whether the process is about to end. Optional.
}

// Door stands before the handlers of the control plane.
type Door struct{ c Config }

// New returns a Door.
func New(c Config) *Door {
	c.Draining = cmp.Or(c.Draining, new(atomic.Bool))
	return &Door{c}
}

// Named answers 421 to requests for another host than the control plane's: a page of
// somebody else's, whose name was made to lead here, must not pass for ours in a browser
// (DNS rebinding), and links that are made from the Host header must lead to us.
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

// ownHost reports whether a request names the control plane: the hosts of --base-url and
// --api-url, those of sellers, the one of --listen, the address at which the connection arrived, and
// localhost where that is a loopback address. The port doesn't matter: a proxy may have
// another.
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

// Bounded puts the control plane's deadlines around a handler, on --listen and behind the
// edge alike: a body that doesn't arrive and an answer that nobody reads end. Streams go
// on for as long as somebody reads them. A database that doesn't answer is waited for as
// db.ForRequest says. While the process drains, each answer is the last one of its
// connection, so that clients go elsewhere without losing a request.
func (d *Door) Bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		// With Transfer-Encoding, Content-Length may have stood beside it (RFC 9112,
		// section 6.1): net/http has dropped it, and what follows is not to be trusted.
		if d.c.Draining.Load() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // tests have writers without
			r.Body = &timedBody{r.Body, conn}
		}
		out := &timedWriter{ResponseWriter: w, conn: conn}
		out.arm()
		next.ServeHTTP(out, r.WithContext(db.ForRequest(r.Context())))
		out.arm() // for what net/http still holds
	})
}

// timedBody lifts the deadline when the body has been read: the connection's next read
// waits for the client's leaving.
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

// timedWriter gives every write its deadline.
type timedWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	armed time.Time
}

// arm moves the deadline, unless it has been moved just now.
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

// FlushError is for http.ResponseController.
func (w *timedWriter) FlushError() error {
	w.arm()
	return w.conn.Flush()
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
