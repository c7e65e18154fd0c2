package edge

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// BenchmarkHandshake makes TLS 1.3 handshakes over loopback, each with a connection of
// its own and one small answer, from as many clients as there are CPUs. The client costs
// as much as the server, so the figure is for comparing: SLIPWAY_BENCH_TLS=host:port
// (and SLIPWAY_BENCH_SNI) point the same client at another server, such as nginx with
// an ECDSA P-256 key.
func BenchmarkHandshake(b *testing.B) {
	addr, name := os.Getenv("SLIPWAY_BENCH_TLS"), cmp.Or(os.Getenv("SLIPWAY_BENCH_SNI"), "blog.sites.test")
	config := &tls.Config{ServerName: name, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}
	if addr == "" {
		w := start(b)
		w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
		addr, config.RootCAs = w.https, w.roots
	} else {
		config.InsecureSkipVerify = true // the other server's certificate is not the question
	}
	visit := func(c *tls.Config) (resumed bool, err error) {
		raw, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return false, err
		}
		conn := tls.Client(raw, c)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: "+name+"\r\nConnection: close\r\n\r\n"); err != nil {
			return false, err
		}
		answer, err := io.ReadAll(conn)
		if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
			err = io.ErrUnexpectedEOF
		}
		return conn.ConnectionState().DidResume, err
	}
	for _, resume := range []bool{false, true} {
		b.Run(map[bool]string{false: "full", true: "resumed"}[resume], func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				c := config.Clone()
				if resume {
					c.ClientSessionCache = tls.NewLRUClientSessionCache(8)
					if _, err := visit(c); err != nil { // to get a ticket
						b.Error(err)
						return
					}
				}
				for p.Next() {
					resumed, err := visit(c)
					if err != nil || resumed != resume {
						b.Errorf("resumed %v, %v", resumed, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handshakes/s")
		})
	}
}
