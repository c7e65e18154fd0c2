package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
)

// BenchmarkProgram asks a program through TLS and the edge over HTTP/1.1, on eight kept
// connections, on each way to it.
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
					c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
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
