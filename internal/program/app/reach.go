package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/program/relay"
)

// Reach wakes a deployment's program on this node, for a visitor of another one, and returns what passes a connection on to it.
// While the connection is open the program does not sleep.
func (a *Apps) Reach(ctx context.Context, named string) (relay.Program, func(net.Conn), error) {
	ctx, done := context.WithTimeoutCause(ctx, a.c.WakeTime, errWakeTimeout)
	defer done()
	deployment := id.Deployment(named)
	a.sure(ctx)
	if err := a.look(ctx, deployment); err != nil {
		return relay.Program{}, nil, err
	}
	p, in, err := a.held(ctx, deployment)
	if err != nil {
		return relay.Program{}, nil, err
	}
	about := relay.Program{Site: string(in.site), MaxBody: in.maxBody.Load(), FirstByte: time.Duration(in.firstByte.Load())}
	if in.transport.upstream == nil {
		return about, func(c net.Conn) { defer in.release(); p.serveConn(c, in) }, nil
	}
	to, err := in.running.Dial(ctx)
	if err != nil {
		in.release()
		return relay.Program{}, nil, errCrashed("it accepts no connections", time.Second)
	}
	return about, func(c net.Conn) { defer in.release(); splice(c, to) }, nil
}

// lastWords is how long a program may go on to answer once the other node has closed the connection.
const lastWords = 5 * time.Second

// splice passes on what comes from a node to a program and back, until either has closed the connection.
func splice(from, program net.Conn) {
	end := func() {
		from.Close()
		program.Close()
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		_, err := io.Copy(program, from)
		half, ok := program.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			end()
			return
		}
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-late.C:
			end()
		case <-done:
		}
	})
	_, _ = io.Copy(from, program)
	close(done)
	end()
	work.Wait()
}

// serveConn answers the requests of a connection by a program that speaks something else than HTTP, such as FastCGI, and by the files
// that it has.
func (p *program) serveConn(c net.Conn, in *instance) {
	proxy := &httputil.ReverseProxy{
		Transport:     in.transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(p.apps.c.Log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
			r.Out.Host = r.In.Host
			for name, values := range r.In.Header { // the other node has said who asks
				if name == "Forwarded" || strings.HasPrefix(name, "X-Forwarded-") {
					r.Out.Header[name] = values
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			p.unanswered(in, "A request was not answered: "+err.Error())
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	one := &oneConn{c: c, closed: make(chan struct{})}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limit := in.maxBody.Load(); limit > 0 {
				r.Body = http.MaxBytesReader(w, r.Body, limit)
			}
			if in.transport.serve != nil && in.transport.serve(w, r) {
				return
			}
			proxy.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(p.apps.c.Log.Handler(), slog.LevelDebug),
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-in.ended:
			one.Close()
			c.Close()
		case <-stop:
		}
	}()
	_ = srv.Serve(one)
}

// oneConn is a listener with one connection, that ends with it.
type oneConn struct {
	mu     sync.Mutex // guards c
	c      net.Conn
	once   sync.Once
	closed chan struct{} // closed with the connection
}

func (o *oneConn) Accept() (net.Conn, error) {
	o.mu.Lock()
	c := o.c
	o.c = nil
	o.mu.Unlock()
	if c != nil {
		return &endsWith{c, o}, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *oneConn) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

func (o *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// endsWith is the connection, whose end is that of its listener.
type endsWith struct {
	net.Conn
	of *oneConn
}

func (e *endsWith) Close() error {
	defer e.of.Close()
	return e.Conn.Close()
}
