package systemd

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// The watchdog takes any answer for a sign of life, a connection that is closed at once too; a
// listener that nobody accepts from is none.
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
		ok   bool
	}{
		"an answer":                    {busy.Listener.Addr(), 0, true},
		"an answer, but not ready":     {busy.Listener.Addr(), 200, false},
		"too many connections":         {full.Addr(), 0, true},
		"too many, but not ready":      {full.Addr(), 200, false},
		"a listener that is not heard": {stuck.Addr(), 0, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if c.ok {
			ctx = t.Context()
		}
		if err := answers(ctx, c.at, "/healthz", c.want); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
