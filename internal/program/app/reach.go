package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/relay"
)

// Reach wakes a deployment's program on this node, for a visitor of another one, and returns what passes a connection on to it, or
// with tasks to the scripts that no visitor can ask for. While the connection is open the program does not sleep.
func (a *Apps) Reach(ctx context.Context, deployment id.Deployment, tasks bool) (relay.Program, func(net.Conn), error) {
	ctx, done := context.WithTimeoutCause(ctx, a.c.WakeTime, errWakeTimeout)
	defer done()
	a.sure(ctx)
	if err := a.look(ctx, deployment); err != nil {
		if fault.As(err) != nil {
			return relay.Program{}, nil, err
		}
		e, awake := a.awake(deployment)
		if !awake {
			return relay.Program{}, nil, err
		}
		defer e.Release() // the database doesn't answer: what is awake goes on, and nobody can take it
	}
	p, in, err := a.held(ctx, deployment)
	if err != nil {
		return relay.Program{}, nil, err
	}
	about := relay.Program{
		Site: string(in.site), MaxBody: in.maxBody.Load(), FirstByte: time.Duration(in.firstByte.Load()), Tasks: in.transport.Tasks != nil,
	}
	switch {
	case tasks && in.transport.Tasks == nil:
		in.release()
		return relay.Program{}, nil, &fault.Error{Kind: fault.Conflict, Message: "The program has no tasks", Code: "no_tasks"}
	case tasks:
		return about, func(c net.Conn) { defer in.release(); p.serveConn(c, in, p.proxy(in, in.transport.Tasks)) }, nil
	case in.transport.Upstream == nil:
		return about, func(c net.Conn) { defer in.release(); p.serveConn(c, in, p.answers(in)) }, nil
	}
	to, err := in.running.Dial(ctx)
	if err != nil {
		in.release()
		return relay.Program{}, nil, errCrashed("it accepts no connections", time.Second)
	}
	return about, func(c net.Conn) { defer in.release(); relay.Splice(c, to) }, nil
}

// answers is a program that speaks something else than HTTP, such as FastCGI, with the files that it has.
func (p *program) answers(in *instance) http.Handler {
	proxy := p.proxy(in, in.transport)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit := in.maxBody.Load(); limit > 0 {
			r.Body = http.MaxBytesReader(w, r.Body, limit)
		}
		if addr := r.Header.Get("X-Real-Ip"); addr != "" { // the other node has said who asks
			r.RemoteAddr = net.JoinHostPort(addr, "0")
		}
		if files := in.transport.Files; files != nil && files.Serve(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// proxy passes what another node sends on to a program, with what that node has said of who asks.
func (p *program) proxy(in *instance, to http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     to,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(p.apps.c.Log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
			r.Out.Host = r.In.Host
			for name, values := range r.In.Header {
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
}

// serveConn answers the requests of a connection until it or the program ends.
func (p *program) serveConn(c net.Conn, in *instance, h http.Handler) {
	one := relay.Listen(c)
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(p.apps.c.Log.Handler(), slog.LevelDebug),
	}
	stop := make(chan struct{})
	defer close(stop)
	// uncaught: waits
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
