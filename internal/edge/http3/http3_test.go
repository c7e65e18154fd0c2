package http3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	h3 "github.com/quic-go/quic-go/http3"

	"slipway/internal/edge/connlimit"
	"slipway/internal/platform/wait"
)

// start serves "home" over QUIC until the test ends, and returns the address and a client's TLS config.
func start(t *testing.T, limits *connlimit.Limiter) (addr string, client *tls.Config) {
	return serve(t, limits, 2*time.Minute, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "home") })
}

// serve is start with a different handler and idle timeout.
func serve(t *testing.T, limits *connlimit.Limiter, idle time.Duration, handler http.HandlerFunc) (addr string, client *tls.Config) {
	t.Helper()
	known := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(known.Close)
	roots := x509.NewCertPool()
	roots.AddCert(known.Certificate())
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := New(handler, &tls.Config{Certificates: known.TLS.Certificates}, limits)
	srv.idle = idle
	done := make(chan error, 1)
	go func() { done <- srv.Serve(c) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return c.LocalAddr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"h3"}}
}

// The server answers GET, refuses CONNECT, and accepts no connection after it is closed.
func TestServe(t *testing.T) {
	t.Parallel()
	addr, client := start(t, nil)
	conn, err := quic.DialAddr(t.Context(), addr, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	cc := (&h3.Transport{}).NewClientConn(conn)
	for method, want := range map[string]int{"GET": 200, "CONNECT": 501} {
		r, _ := http.NewRequest(method, "https://example.com", nil)
		resp, err := cc.RoundTrip(r)
		if err != nil || resp.StatusCode != want {
			t.Fatal(method, resp, err)
		}
		resp.Body.Close()
	}
	srv := New(http.NotFoundHandler(), client, nil)
	srv.Close()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Serve(c); !errors.Is(err, http.ErrServerClosed) {
		t.Error("after Close:", err)
	}
}

// QUIC connections count towards the same limits as TCP: per address and in total. An idle one is closed to make room.
func TestLimits(t *testing.T) {
	t.Parallel()
	limits := connlimit.New(connlimit.Config{Total: 8, PerAddress: 2, Spare: 1})
	addr, client := start(t, limits)
	dial := func() (*quic.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return quic.DialAddr(ctx, addr, client, &quic.Config{})
	}
	var conns []*quic.Conn
	for range 2 {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if _, err := dial(); err == nil {
		t.Fatal("a third connection of one address is accepted")
	}
	if n := limits.Len(); n != 2 {
		t.Errorf("%d are counted", n)
	}
	conns[0].CloseWithError(0x100, "")
	wait.Until(t, "the place is free", func() bool { return limits.Len() == 1 })
	c, err := dial()
	if err != nil {
		t.Fatal("the place that is free again:", err)
	}
	r, _ := http.NewRequest("GET", "https://example.com/", nil)
	resp, err := (&h3.Transport{}).NewClientConn(c).RoundTrip(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err)
	}
	resp.Body.Close()
	// Invalid packets open no connection and don't stop the server.
	raw, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for i := range 100 {
		raw.Write([]byte(strings.Repeat(string(rune(0xc0+i%64)), 1200)))
	}
	if n := limits.Len(); n != 2 {
		t.Errorf("%d are counted after noise", n)
	}
}

// A connection without a request in progress closes after the idle time, regardless of half-sent streams and
// keep-alives. A request in progress keeps it open.
func TestIdle(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	addr, client := serve(t, nil, 5*time.Second, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		io.WriteString(w, "home")
	})
	dial := func() *quic.Conn {
		c, err := quic.DialAddr(t.Context(), addr, client, &quic.Config{KeepAlivePeriod: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ended := func(c *quic.Conn) {
		select {
		case <-c.Context().Done():
		case <-time.After(time.Minute):
			t.Error("a connection without a request stays open")
		}
	}
	busy := dial()
	answer := make(chan error, 1)
	go func() {
		r, _ := http.NewRequest("GET", "https://example.com/", nil)
		resp, err := (&h3.Transport{}).NewClientConn(busy).RoundTrip(r)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		answer <- err
	}()
	select {
	case <-begun:
	case err := <-answer:
		t.Fatal(err)
	}
	half := dial()
	s, err := half.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	s.Write([]byte{1, 50, 0}) // a HEADERS frame of 50 bytes, of which one is sent
	quiet := dial()
	ended(half)
	ended(quiet)
	close(finish)
	if err := <-answer; err != nil {
		t.Error("the request that was under way all the time:", err)
	}
	ended(busy)
}
