package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
)

// A program may answer as soon as it has the request's last byte, before the proxy has seen the end of the request. The
// visitor still gets the whole response.
func TestQuickAnswerIsWhole(t *testing.T) {
	t.Parallel()
	said := make(chan struct{})
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, r.ContentLength))
		io.WriteString(w, "quick ")
		w.(http.Flusher).Flush()
		<-said
		io.WriteString(w, "answer")
	}))
	defer program.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, program.Listener.Addr().String())
	}}
	defer transport.CloseIdleConnections()
	to := &endpoint.Endpoint{Transport: transport, FirstByte: time.Minute}
	p := New(Config{SiteDomain: "sites.test", Log: slog.New(slog.DiscardHandler)})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, seen := make(chan struct{}), make(chan struct{})
		r.Body = &lateEnd{ReadCloser: r.Body, begun: begun, seen: seen}
		early := &begins{ResponseWriter: w, tell: sync.OnceFunc(func() { close(begun); <-seen; close(said) })}
		if err := p.Serve(&response.Recorder{ResponseWriter: early}, r, to, Site{Host: "app.sites.test"}, time.Now()); err != nil {
			t.Error(err)
		}
	}))
	defer front.Close()
	resp, err := front.Client().Post(front.URL, "text/plain", strings.NewReader("want it"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "quick answer" {
		t.Errorf("got %q, %v", got, err)
	}
}

// lateEnd is a request body whose EOF is read only after the response has begun.
type lateEnd struct {
	io.ReadCloser
	reads       int
	begun, seen chan struct{}
}

func (b *lateEnd) Read(p []byte) (int, error) {
	b.reads++
	if b.reads != 2 {
		return b.ReadCloser.Read(p)
	}
	<-b.begun
	defer close(b.seen)
	return b.ReadCloser.Read(p)
}

// begins calls tell at the first byte of a response.
type begins struct {
	http.ResponseWriter
	tell func()
}

func (w *begins) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *begins) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	_ = w.FlushError()
	return n, err
}

func (w *begins) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.tell()
	return err
}
