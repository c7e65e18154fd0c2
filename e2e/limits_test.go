package e2e

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/wait"
)

// Clients that open as many connections as possible don't affect the API, the dashboard and /healthz, not even for
// requests from the same address.
func TestHeldConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--max-connections", "200", "--max-connections-per-address", "50")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("held@example.test")
	if err != nil {
		t.Fatal(err)
	}
	let := 0
	for range 150 {
		c, err := net.DialTimeout("tcp", w.HTTPS, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		secure := tls.Client(c, &tls.Config{ServerName: "nobody.localhost", InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if secure.Handshake() != nil {
			continue
		}
		let++
		io.WriteString(secure, "GET / HTTP/1.1\r\nHost: nobody.localhost\r\nContent-Length: 10\r\n\r\n")
	}
	if let == 0 || let > 50 {
		t.Errorf("%d of 150 connections of one address were let in, want at most 50", let)
	}
	answers := func(held string) {
		t.Helper()
		for path, key := range map[string]string{"/healthz": "", "/readyz": "", "/sign-in": "", "/api/v1/sites": key} {
			a, err := w.Do(t.Context(), world.Request{Method: "GET", URL: "http://" + w.Listen + path, Key: key})
			if err != nil || a.Status != 200 {
				t.Errorf("%s, with %s: %v, status %d", path, held, err, a.Status)
			}
		}
	}
	answers("unsent bodies of one address")

	// Clients on several addresses take all connections, with incomplete handshakes and requests.
	hello := clientHello(t)
	for from := range 8 {
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+from))}}
		for i := range 40 {
			c, err := d.DialContext(t.Context(), "tcp", w.HTTPS)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(hello[:[]int{0, 1, 5, len(hello) / 2, len(hello)}[i%5]]) // the connection may be closed already
		}
	}
	answers("half handshakes of many addresses")
	visit := func() bool {
		c, err := tls.DialWithDialer(&net.Dialer{
			Timeout:   5 * time.Second,
			LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, 1)},
		}, "tcp", w.HTTPS,
			&tls.Config{ServerName: "nobody.localhost", InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(world.Patience(5 * time.Second)))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: nobody.localhost\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && resp.StatusCode == 404
	}
	waitFor(t, "half handshakes have ended and a visitor is served", visit)
}

// clientHello returns the first bytes of a TLS handshake.
func clientHello(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: "nobody.localhost"}).Handshake() // fails when the pipe is closed
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// After SIGTERM the listeners stay open for the drain delay. Requests on new and existing connections get 503 with
// Retry-After, and no connection is refused.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--drain-delay", min(12*time.Second, world.Patience(4*time.Second)).Round(time.Second).String())
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	get := func(path string) (int, http.Header, error) {
		resp, err := client.Get("http://" + w.Listen + path)
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header, nil
	}
	if status, _, err := get("/readyz"); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if err := syscall.Kill(w.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "/readyz says no", func() bool {
		status, h, err := get("/readyz")
		if err != nil {
			t.Fatalf("refused while draining: %v", err)
		}
		return status == 503 && h.Get("Retry-After") != ""
	})
	for range 3 {
		if status, h, err := get("/api/v1/sites"); status != 503 || h.Get("Retry-After") == "" || err != nil {
			t.Errorf("the interface while draining: %d %v, %v", status, h, err)
		}
	}
	<-w.Ended()
	if _, _, err := get("/readyz"); err == nil {
		t.Error("the service still answers")
	}
}

// The API and the dashboard only accept requests for their own host names.
func TestHostOfListen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--base-url", "http://panel.example.test", "--api-url", "http://api.example.test")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, path string
		status     int
	}{
		{"panel.example.test", "/sign-in", 200},
		{"api.example.test", "/docs", 200},
		{w.Listen, "/docs", 200},
		{"localhost", "/docs", 200},
		{"evil.test", "/sign-in", 421},
		{"evil.test", "/api/v1/sites", 421},
		{"evil.test", "/metrics", 421},
		{"evil.test", "/hooks/deploy/x", 421},
		{"evil.test", "/healthz", 200},
		{"evil.test", "/readyz", 200},
	} {
		r, err := http.NewRequest("GET", "http://"+w.Listen+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("Host %s %s: status %d, want %d", tt.host, tt.path, resp.StatusCode, tt.status)
		}
	}
}

func newWorld(t *testing.T, flags ...string) *world.World {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, flags...)
	return w
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait.Until(t, what, ok)
}
