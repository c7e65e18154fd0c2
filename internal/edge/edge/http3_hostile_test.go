package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// Invalid HTTP/3 input gets its request refused or its connection closed. It never gets a site's content and never
// stops the server.
func TestHTTP3Hostile(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.HTTP3 = true })
	addr, _ := w.overHTTP3(nil)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "home", "secret.html": "secret"}))
	block := func(fields ...string) []byte {
		var b bytes.Buffer
		enc := qpack.NewEncoder(&b)
		for i := 0; i < len(fields); i += 2 {
			if err := enc.WriteField(qpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	frame := func(kind uint64, payload []byte) []byte {
		return append(quicvarint.Append(quicvarint.Append(nil, kind), uint64(len(payload))), payload...)
	}
	request := func(fields ...string) []byte { return frame(1, block(fields...)) }
	plain := []string{":method", "GET", ":scheme", "https", ":authority", "blog.sites.test", ":path", "/"}
	with := func(more ...string) []byte { return request(append(append([]string{}, plain...), more...)...) }
	for name, bytes := range map[string][]byte{
		"no path":              request(":method", "GET", ":scheme", "https", ":authority", "blog.sites.test"),
		"two paths":            with(":path", "/secret"),
		"pseudo field at end":  with("a", "b", ":path", "/secret"),
		"upper case":           with("X-Upper", "a"),
		"connection":           with("connection", "close"),
		"transfer encoding":    with("transfer-encoding", "chunked"),
		"line feed in value":   with("a", "b\r\nSet-Cookie: c"),
		"blank in name":        with("a b", "c"),
		"two lengths":          with("content-length", "5", "content-length", "6"),
		"bad length":           with("content-length", "-1"),
		"no block at all":      frame(1, nil),
		"garbage for a block":  frame(1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"data first":           frame(0, []byte("data")),
		"settings on a stream": frame(4, nil),
		"absolute path of else": request(":method", "GET", ":scheme", "https", ":authority", "blog.sites.test", ":path",
			"https://panel.test/"),
		"path without slash": request(":method", "GET", ":scheme", "https", ":authority", "blog.sites.test", ":path", "secret"),
		"another authority":  request(":method", "GET", ":scheme", "https", ":authority", "panel.test", ":path", "/"),
		"half a frame":       {1, 50, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			conn, err := quic.DialAddr(ctx, addr, &tls.Config{
				RootCAs:    w.roots,
				ServerName: "blog.sites.test",
				NextProtos: []string{"h3"},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseWithError(0x100, "")
			control, err := conn.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			control.Write(append([]byte{0}, frame(4, nil)...))
			s, err := conn.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			s.SetDeadline(time.Now().Add(15 * time.Second))
			s.Write(bytes)
			s.Close()
			got, err := io.ReadAll(s)
			if ne := (interface{ Timeout() bool })(nil); errors.As(err, &ne) && ne.Timeout() && conn.Context().Err() == nil {
				t.Fatal("no answer and no end")
			}
			if contains(got, "home") || contains(got, "secret") || contains(got, "control plane") {
				t.Errorf("it is answered: %q", got)
			}
		})
	}
	resp, err := w.client3(addr).Get("https://blog.sites.test/")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal("the server is gone:", err)
	}
	resp.Body.Close()
}

func contains(b []byte, text string) bool { return bytes.Contains(b, []byte(text)) }
