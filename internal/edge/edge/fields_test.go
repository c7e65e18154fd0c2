package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/internal/edge/response"
)

// A response with more header fields than allowed is a failed one on each way to the program.
func TestProgramManyFields(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			n := 100
			if r.URL.Path == "/many" {
				n = response.MaxFields + 20
			}
			for i := range n {
				w.Header().Set(fmt.Sprintf("X-%d", i), "a")
			}
		})
		for _, proto := range []string{"http/1.1", "h2"} {
			for _, tt := range []struct {
				method, path string
				body         io.Reader
				status       int
			}{
				{"GET", "/", nil, 200},
				{"GET", "/many", nil, 502},
				{"POST", "/", io.MultiReader(strings.NewReader("x")), 200}, // of unknown length
				{"POST", "/many", io.MultiReader(strings.NewReader("x")), 502},
			} {
				transport := &http.Transport{
					TLSClientConfig:   &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{proto}},
					ForceAttemptHTTP2: proto == "h2",
				}
				req, err := http.NewRequestWithContext(t.Context(), tt.method, "https://"+p.https+tt.path, tt.body)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "app.sites.test"
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatalf("way %d: %s %s over %s: %v", way, tt.method, tt.path, proto, err)
				}
				resp.Body.Close()
				if resp.StatusCode != tt.status || (resp.Header.Get("X-99") != "") != (tt.status == 200) {
					t.Errorf("way %d: %s %s over %s: %d, want %d", way, tt.method, tt.path, proto, resp.StatusCode, tt.status)
				}
				transport.CloseIdleConnections()
			}
		}
	}
}

// When net/http serves the visitor, the header fields of a response count against the limit until the visitor has read it
// or left.
func TestFieldsHeld(t *testing.T) {
	t.Parallel()
	p := startProgramBy(t, byServer, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 20<<10))
		_, _ = io.WriteString(w, "hello")
	})
	c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	const streams = 20
	for i := range uint32(streams) {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "app.sites.test"}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	go io.Copy(io.Discard, c)
	held := p.world.held.Bytes
	p.until("all answers are counted", func() bool { return held() > streams*20<<10 })
	c.Close()
	p.until("nothing is counted", func() bool { return held() == 0 })
}
