package fastpath

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A long header field that small requests repeat by its table index can't hold memory without bound, neither on a
// fast-path connection nor on one handed to net/http.
func TestHeldFields(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plain bool
		path  string
	}{
		"here":            {true, "/large?x"},
		"net/http":        {false, "/large?x"},
		"here, small":     {true, "/small?x"},
		"net/http, small": {false, "/small?x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := tt.plain
			w := start(t, func(c *Config) { c.Hosts.(*hosts).takes = func(string) bool { return plain } })
			r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			var bomb []string
			for range 14 {
				bomb = append(bomb, "cookie", strings.Repeat("a", 2000))
			}
			const asked = 100
			for i := range uint32(asked) {
				r.get(2*i+1, tt.path, bomb...) // a body that waits for the window
			}
			h := r.listen(func(h *heard) bool { return len(h.status)+len(h.reset) == asked })
			served := 0
			for id := range uint32(asked) {
				switch id := 2*id + 1; {
				case h.status[id] == "200":
					served++
				case plain && h.reset[id] == http2.ErrCodeRefusedStream, !plain && h.status[id] == "503" && h.ended[id]:
				default:
					t.Errorf("stream %d: status %q, reset %v", id, h.status[id], h.reset[id])
				}
			}
			if most := maxHeld / (14 * 2000); served < 2 || served > most {
				t.Errorf("%d requests with 28 KB of fields are under way, want at most %d", served, most)
			}
			r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			r.WriteWindowUpdate(0, 1<<30)
			r.listen(func(h *heard) bool { return len(h.ended) >= served })
			for id := uint32(2*asked + 1); ; id += 2 { // a handler ends shortly after its response
				r.get(id, "/small?x", bomb...)
				h := r.listen(func(h *heard) bool { return h.ended[id] || h.reset[id] != 0 })
				if h.status[id] == "200" {
					break
				}
				if h.closed {
					t.Fatal("no request is served after those had ended")
				}
			}
		})
	}
}

// The connections of one visitor share a limit, and other visitors have their own.
func TestHeldFieldsOfVisitor(t *testing.T) {
	t.Parallel()
	pool := newHeaders()
	took := func(addr string, connections int) (n int) {
		for range connections {
			b := newHeaderBytes(pool, &net.TCPAddr{IP: net.ParseIP(addr), Port: 1})
			for {
				if _, ok := b.take(16 << 10); !ok {
					break
				}
				n += 16 << 10
			}
		}
		return n
	}
	most := visitorHeld + 100*freeHeld
	if n := took("192.0.2.1", 100); n > most || n < most/2 {
		t.Errorf("100 connections of one visitor hold %d bytes, want about %d", n, most)
	}
	if n := took("192.0.2.2", 1); n != maxHeld {
		t.Errorf("another visitor holds %d, want %d", n, maxHeld)
	}
	took("2001:db8::1", 100)
	if n := took("2001:db8::2", 1); n != freeHeld {
		t.Errorf("a second address of a /64 holds %d, want %d", n, freeHeld)
	}
}

// A host with an invalid port has no hostname.
func TestHostname(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a.test": "a.test", "A.test.": "a.test", "a.test:8443": "a.test", "[::1]:80": "::1", "a.test:": "a.test",
		"a.test:8443/..//evil.test": "", "a.test:80 ": "", "a.test:-1": "", "a.test:123456": "", "a.test:http": "",
	} {
		if got := Hostname(in); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", in, got, want)
		}
	}
}
