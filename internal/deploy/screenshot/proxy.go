package screenshot

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// connsMost caps the concurrent connections of one picture.
const connsMost = 32

// siteProxy answers CONNECT for given hosts, on port 443 and the edge's port, and connects to the edge.
type siteProxy struct {
	edge  string
	hosts []string
}

func (p *siteProxy) serve(l net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	// share: total connsMost of one picture; owner their own picture's; edge 503
	slots := make(chan struct{}, connsMost)
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host := strings.ToLower(r.URL.Hostname())
			if r.Method != http.MethodConnect || !contains(p.hosts, host) {
				http.Error(w, "Only the site itself is reached here", http.StatusForbidden)
				return
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			default:
				http.Error(w, "Too many connections", http.StatusServiceUnavailable)
				return
			}
			var d net.Dialer
			to, err := d.DialContext(ctx, "tcp", p.edge)
			if err != nil {
				http.Error(w, "The site can't be reached", http.StatusBadGateway)
				return
			}
			defer to.Close()
			from, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer from.Close()
			conns.Add(1)
			defer conns.Done()
			end := context.AfterFunc(ctx, func() { from.Close(); to.Close() })
			defer end()
			if _, err := from.Write([]byte("HTTP/1.1 200 Connected\r\n\r\n")); err != nil {
				return
			}
			done := make(chan struct{})
			// uncaught: copies bytes
			go func() {
				defer close(done)
				_, _ = io.Copy(to, buffered)
				to.Close()
			}()
			_, _ = io.Copy(from, to)
			from.Close()
			<-done
		}),
	}
	// uncaught: net/http catches
	go s.Serve(l)
	return func() {
		cancel()
		s.Close()
		conns.Wait()
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}
