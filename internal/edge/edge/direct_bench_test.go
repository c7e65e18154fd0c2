package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"slipway/internal/edge/endpoint"
)

// BenchmarkProgram measures requests to a program through TLS and the edge over HTTP/1.1, on eight kept connections,
// for each way.
func BenchmarkProgram(b *testing.B) {
	for way, name := range []string{"ReverseProxy", "net-http", "fast-path"} {
		b.Run(name, func(b *testing.B) {
			p := startProgramBy(b, way, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
			b.ReportAllocs()
			var all sync.WaitGroup
			const conns = 8
			b.ResetTimer()
			for range conns {
				all.Go(func() {
					c, err := tls.Dial("tcp", p.https, &tls.Config{
						RootCAs:    p.roots,
						ServerName: "app.sites.test",
						NextProtos: []string{"http/1.1"},
					})
					if err != nil {
						b.Error(err)
						return
					}
					defer c.Close()
					r := bufio.NewReader(c)
					for range b.N / conns {
						fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: app.sites.test\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n")
						resp, err := http.ReadResponse(r, nil)
						if err != nil {
							b.Error(err)
							return
						}
						io.Copy(io.Discard, resp.Body)
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkUpload sends a long body over HTTP/2: through net/http's connection, and through the fast path.
func BenchmarkUpload(b *testing.B) {
	for name, change := range map[string]func(*Config){
		"net-http": func(c *Config) { c.Programs["node"] = endpoint.NotHTTP{Source: c.Programs["node"]} },
		"lane":     func(*Config) {},
	} {
		b.Run(name, func(b *testing.B) {
			p := startProgram(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, change)
			transport := &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test"},
				ForceAttemptHTTP2: true,
			}
			defer transport.CloseIdleConnections()
			body := make([]byte, 64<<20)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://"+p.https+"/", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				req.Host = "app.sites.test"
				resp, err := transport.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}
