package systemd

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The watchdog accepts any response as alive, also an immediately closed connection, but not a listener from which
// nothing is accepted.
func TestAnswers(t *testing.T) {
	t.Parallel()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	t.Cleanup(busy.Close)
	full, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	go func() {
		for {
			c, err := full.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	stuck, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stuck.Close() })
	for name, c := range map[string]struct {
		at   net.Addr
		want int
		fail string // part of the error; empty if none
	}{
		"an answer":                {busy.Listener.Addr(), 0, ""},
		"an answer, but not ready": {busy.Listener.Addr(), 200, "503"},
		"too many, but not ready":  {full.Addr(), 200, "healthz"},
	} {
		err := answers(t.Context(), c.at, "/healthz", c.want)
		if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 300 { // closed before or after the request is written
		if err := answers(t.Context(), full.Addr(), "/healthz", 0); err != nil {
			t.Fatalf("too many connections: %v", err)
		}
	}
	// The kernel accepts the connection and the request. The check waits for a response until its time is over.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan error, 1)
	go func() { asked <- answers(ctx, stuck.Addr(), "/healthz", 0) }()
	c, err := stuck.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("a listener that nobody accepts from: %v", err)
	}
}
