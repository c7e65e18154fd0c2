package app

import (
	"context"
	"net"
	"net/http"
	"path"

	"slipway/internal/edge/upstream"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
)

// PHP says how requests find the script that answers them.
type PHP struct {
	Root  string // document root, relative to the bundle
	Front string // front controller, relative to it; "" for none
	Tasks string // folder of the bundle whose scripts the service alone may run; "" for none
}

// transport is the way of requests to an instance: HTTP over its port, or FastCGI.
type transport struct {
	http.RoundTripper
	prime func(ctx context.Context)                         // warms it before it serves; nil needs none
	idle  func()                                            // drops connections that nobody uses
	serve func(w http.ResponseWriter, r *http.Request) bool // nil where the program answers for its files
	tasks http.RoundTripper                                 // nil where there are none
	// upstream holds the connections of requests without anything unusual; nil where the
	// program speaks something else than HTTP.
	upstream *upstream.Pool
}

// maxHead is how many bytes the head of an answer may have.
const maxHead = 32 << 10

func (t transport) warm(ctx context.Context) {
	if t.prime != nil {
		t.prime(ctx)
	}
}

func (t transport) CloseIdleConnections() {
	if t.idle != nil {
		t.idle()
	}
}

func (p *program) transportTo(running runtime.Program, want Wanted) transport {
	if want.PHP != nil {
		site := &php.Site{
			Top:    runtime.AppDir,
			Root:   want.PHP.Root,
			Front:  want.PHP.Front,
			Open:   running.Open,
			Dial:   running.Dial,
			Copies: p.apps.copies,
			Name:   want.Site,
			Owner:  want.Owner,
		}
		t := transport{RoundTripper: site, serve: site.Serve, prime: func(ctx context.Context) {
			if err := site.Prime(ctx, path.Join(runtime.AppDir, want.Spec.Dir)); err != nil {
				p.apps.c.Log.DebugContext(ctx, "PHP scripts not precompiled", "site", want.Site, "err", err)
			}
		}}
		if want.PHP.Tasks != "" {
			t.tasks = &php.Site{
				Top:   runtime.AppDir,
				Root:  want.PHP.Tasks,
				Open:  running.Open,
				Dial:  running.Dial,
				Name:  want.Site,
				Owner: want.Owner,
			}
		}
		return t
	}
	t := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return running.Dial(ctx) },
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     idleConn,
		DisableCompression:  true,
		Proxy:               nil,
		// As package upstream has it: a head is not to cost the service more than that.
		MaxResponseHeaderBytes: maxHead,
	}
	pool := upstream.New(upstream.Config{Dial: running.Dial, Idle: idleConn})
	return transport{RoundTripper: t, upstream: pool, idle: func() { t.CloseIdleConnections(); pool.CloseIdle() }}
}
