package edge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/upstream"
)

// closing is a connection whose peer closes without reading once left requests have been written.
type closing struct {
	net.Conn
	left int // requests until the peer closes
	end  func()
}

func (c *closing) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.left--
	if c.left == 0 {
		c.end()
	}
	return n, err
}

// unaccepted connects to a program that stops listening before it accepts the connection.
func unaccepted(t *testing.T) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	return &closing{Conn: c, left: 1, end: func() { l.Close() }}, err
}

// once connects to a program that answers one request and closes the connection when the next arrives.
func once(t *testing.T) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	its, err := l.Accept()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { its.Close() })
	go func() {
		if _, err := http.ReadRequest(bufio.NewReader(its)); err == nil {
			fmt.Fprint(its, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}()
	return &closing{Conn: c, left: 2, end: func() { its.Close() }}, nil
}

// A program that stops listening resets connections that it hasn't accepted, and a busy one may reset kept connections
// with unread requests. The edge retries a request that is safe to repeat or was not read. A request that can't be
// retried doesn't use a kept connection.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, way := range []int{byServer, byAll} {
		for _, tt := range []struct {
			method string
			dials  string // o: once, u: unaccepted; later connections are accepted
			asked  int    // number of requests
			status int    // of the last response
			body   int    // bytes of the last request's body
		}{
			{"GET", "u", 1, 200, 0},
			{"DELETE", "u", 1, 200, 0},
			{"POST", "u", 1, 502, 0},
			{"GET", "uu", 1, 502, 0}, // both connections fail: the request may be the cause
			{"GET", "o", 2, 200, 0},
			{"POST", "o", 2, 200, 0}, // the kept connection reports that the request was not read
			{"GET", "ou", 2, 200, 0},
			{"POST", "ou", 2, 502, 0},
			{"GET", "ouu", 2, 502, 0},
			{"POST", "o", 2, 200, 10},
			{"PUT", "o", 2, 200, 10},
			{"POST", "o", 2, 200, 5000}, // on a new connection
			{"PUT", "o", 2, 200, 5000},
			{"POST", "ou", 2, 502, 5000},
		} {
			t.Run(fmt.Sprint(way, tt.method, tt.dials, tt.body), func(t *testing.T) {
				t.Parallel()
				next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
				t.Cleanup(next.Close)
				addr := next.Listener.Addr().String()
				p := startProgramAt(t, way, addr)
				var n atomic.Int64
				p.pool = upstream.New(upstream.Config{Idle: time.Hour, Dial: func(ctx context.Context) (net.Conn, error) {
					i := int(n.Add(1)) - 1
					switch {
					case i >= len(tt.dials):
						return new(net.Dialer).DialContext(ctx, "tcp", addr)
					case tt.dials[i] == 'u':
						return unaccepted(t)
					}
					return once(t)
				}})
				t.Cleanup(p.pool.CloseIdle)
				for i := range tt.asked {
					if i < tt.asked-1 {
						p.get("https://app.sites.test/").want(t, 200, "ok")
						continue
					}
					var body io.Reader
					if tt.body > 0 {
						body = strings.NewReader(strings.Repeat("x", tt.body))
					}
					want := "ok"
					if tt.status != 200 {
						want = ""
					}
					p.send(tt.method, "https://app.sites.test/", body).want(t, tt.status, want)
				}
			})
		}
	}
}
