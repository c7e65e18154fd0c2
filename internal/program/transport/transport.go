// Package transport owns the ways of requests to a program that runs: HTTP over its port, or FastCGI.
package transport

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path"
	"time"

	"slipway/internal/build/htaccess"
	"slipway/internal/edge/compress"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/id"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
)

// PHP says how requests find the script that answers them.
type PHP struct {
	Root  string // document root, relative to the bundle
	Front string // front controller, relative to it; "" for none
	// Closed are files and folders that visitors never reach, relative to Root.
	Closed []string
	Obeys  *php.Obeyed       // Optional: nil obeys no files of Apache.
	Rules  []htaccess.Folder // of the release's .htaccess files
	Ruled  bool              // Rules name the front controller
	Tasks  string            // folder of the bundle whose scripts the service alone may run; "" for none
}

// Config says of a program what its requests need.
type Config struct {
	Program runtime.Program
	Site    id.Site
	Owner   account.OwnerID
	PHP     *PHP             // nil where the program speaks HTTP
	Dir     string           // of the bundle, where its scripts are
	Workers int              // of PHP, as runtime.Workers has them
	Spool   string           // directory of what is on its way to and from PHP. Optional: empty is the system's.
	Notes   php.Log          // the site's log. Optional.
	Copies  *compress.Copies // of files that PHP leaves to the service
	Log     *slog.Logger
}

// Transport is the way of requests to an instance. Its zero value has none.
type Transport struct {
	http.RoundTripper
	Files *php.Site         // answers for the files beside scripts; nil where the program does
	Tasks http.RoundTripper // nil where there are none
	// Upstream holds the connections of requests without anything unusual; nil where the
	// program speaks something else than HTTP.
	Upstream *upstream.Pool

	prime func(ctx context.Context) // warms it before it serves; nil needs none
	idle  func()                    // drops connections that nobody uses
}

// MaxHead is how many bytes the head of an answer may have.
const MaxHead = 32 << 10

// Idle is how long a connection to a program waits for the next request. Node.js closes
// its end after 5 s: a request that is not safe to repeat must not meet that moment.
const Idle = 3 * time.Second

// New returns the way to a program.
func New(c Config) Transport {
	if c.PHP == nil {
		return overHTTP(c.Program)
	}
	rules, err := htaccess.Compile(c.PHP.Rules)
	if err != nil { // the deployment has compiled them before
		c.Log.Error("rules of .htaccess not readable; the site answers nothing", "site", c.Site, "err", err)
	}
	site := &php.Site{
		Top:     runtime.AppDir,
		Root:    c.PHP.Root,
		Front:   c.PHP.Front,
		Closed:  c.PHP.Closed,
		Obeys:   c.PHP.Obeys,
		Rules:   rules,
		Ruled:   c.PHP.Ruled,
		Open:    c.Program.Open,
		Dial:    c.Program.Dial,
		Workers: php.NewWorkers(php.WorkersConfig{Workers: c.Workers, Server: c.Program, Log: c.Notes}),
		Spool:   c.Spool,
		Copies:  c.Copies,
		Gzip:    c.PHP.Tasks == "", // what sends tasks compresses what it doesn't keep
		Name:    c.Site,
		Owner:   c.Owner,
	}
	t := Transport{RoundTripper: site, Files: site, prime: func(ctx context.Context) {
		if err := site.Prime(ctx, path.Join(runtime.AppDir, c.Dir)); err != nil {
			c.Log.DebugContext(ctx, "PHP scripts not precompiled", "site", c.Site, "err", err)
		}
	}}
	if c.PHP.Tasks != "" {
		t.Tasks = &php.Site{
			Spool: c.Spool,
			Top:   runtime.AppDir,
			Root:  c.PHP.Tasks,
			Open:  c.Program.Open,
			Dial:  c.Program.Dial,
			Name:  c.Site,
			Owner: c.Owner,
		}
	}
	return t
}

func overHTTP(program runtime.Program) Transport {
	t := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return program.Dial(ctx) },
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     Idle,
		DisableCompression:  true,
		Proxy:               nil,
		// As package upstream has it: a head is not to cost the service more than that.
		MaxResponseHeaderBytes: MaxHead,
	}
	pool := upstream.New(upstream.Config{Dial: program.Dial, Idle: Idle})
	return Transport{RoundTripper: t, Upstream: pool, idle: func() { t.CloseIdleConnections(); pool.CloseIdle() }}
}

// Warm makes a program ready for its first request: PHP compiles its scripts.
func (t Transport) Warm(ctx context.Context) {
	if t.prime != nil {
		t.prime(ctx)
	}
}

// CloseIdleConnections closes connections that no request uses.
func (t Transport) CloseIdleConnections() {
	if t.idle != nil {
		t.idle()
	}
}
