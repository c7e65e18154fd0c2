package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/e2e/world"
)

// tenant is an owner: a normal one, or one that uses all available resources.
type tenant struct {
	key                     string
	static, app, wp         string // hosts
	staticID, appID, blogID string
	client                  *http.Client
}

// eveProgram is the program of a hostile tenant.
var eveProgram = map[string]string{
	"package.json": `{"name": "eve", "private": true, "scripts": {"start": "node eve.js"}}`,
	"eve.js": `const fs = require('fs')
let n = 0
require('http').createServer((q, r) => {
  if (q.url === '/burn') { for (const end = Date.now() + 2000; Date.now() < end;); return r.end() }
  if (q.url === '/head') { for (let i = 0; i < 400; i++) r.setHeader('X-' + i, 'a'.repeat(60)); return r.end() }
  if (q.url === '/files') { for (let i = 0; i < 2000; i++) fs.writeFileSync('data/' + n++, ''); return r.end() }
  if (q.url === '/log') { for (let i = 0; i < 2000; i++) console.log('x'.repeat(8000)); return r.end() }
  if (q.url === '/slow') return
  r.end('hello')
}).listen(process.env.PORT, '127.0.0.1')
`,
}

// tenants measures the service for one owner while two others use all resources that they can get, from their own
// addresses, with every attack that once worked, for b.long.
func (b *bench) tenants(w *world.World) error {
	for i, f := range w.Flags {
		if f == "--rate-limit" {
			w.Flags[i+1] = "600"
		}
	}
	w.Flags = append(w.Flags, "--wordpress-source", "debian")
	if err := errors.Join(w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
		return err
	}
	var rules, headers strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&rules, "/x%d /y 302 Cookie=a\n", i%7)
	}
	headers.WriteString("/*\n")
	for i := range 90 {
		fmt.Fprintf(&headers, "  X-%d: %s\n", i, strings.Repeat("a", 150))
	}
	for name, files := range map[string]map[string]string{
		"plain": {"index.html": strings.Repeat("<p>plain</p>", 300)}, "app": benchProgram, "eve": eveProgram,
		"rules": {"index.html": "x", "_redirects": rules.String(), "_headers": headers.String()},
	} {
		if err := b.repository(w, name, files); err != nil {
			return err
		}
	}
	anna, err := b.tenant(w, "anna@example.test", "127.0.0.1", "plain", "app", nil)
	if err != nil {
		return err
	}
	alone, err := b.watch(w, anna, 20*time.Second)
	if err != nil {
		return err
	}
	var eves []*tenant
	for i, email := range []string{"eve@example.test", "mallory@example.test"} {
		e, err := b.tenant(w, email, fmt.Sprintf("127.%d.0.1",
			7+i), "rules", "eve", map[string]any{"storage": []string{"data"}, "storageMiB": 64})
		if err != nil {
			return err
		}
		eves = append(eves, e)
	}
	ctx, stop := context.WithCancel(b.ctx)
	var all sync.WaitGroup
	var did atomic.Int64
	for _, e := range eves {
		for _, attack := range b.attacks(w, e) {
			all.Go(func() {
				for ctx.Err() == nil {
					attack(ctx)
					did.Add(1)
				}
			})
		}
	}
	beside, err := b.watch(w, anna, b.long)
	select {
	case <-w.Ended():
		fmt.Fprintf(os.Stderr, "THE SERVICE DIED\n%s\n", w.Log(6000))
	default:
	}
	stop()
	all.Wait()
	if err != nil {
		return err
	}
	for _, what := range []string{"API", "static", "program", "WordPress"} {
		x, y := beside.of[what], alone.of[what]
		if x.Failed > 0 {
			fmt.Fprintf(os.Stderr, "  %s failed first: %s\n", what, x.Why)
		}
		goal := map[string]string{"API": "p99 ≤ 500 ms", "static": "p99 ≤ 50 ms"}[what]
		b.add(row{
			what: "beside two hostile accounts: " + what + ", p99",
			value: fmt.Sprintf("%s (p50 %s), %d of %d failed", ms(quantile(x.Took, .99)), ms(median(x.Took)), x.Failed,
				x.Failed+len(x.Took)),
			yardstick: "alone " + ms(quantile(y.Took, .99)),
			ratio:     fmt.Sprintf("%.1f×", float64(quantile(x.Took, .99))/float64(quantile(y.Took, .99))),
			goal:      goal,
		})
	}
	b.add(row{
		what:      fmt.Sprintf("beside two hostile accounts (%d attacks in %s): memory at most", did.Load(), b.long),
		value:     megabytes(beside.memory),
		yardstick: "alone " + megabytes(alone.memory),
		ratio:     fmt.Sprintf("%.1f×", float64(beside.memory)/float64(alone.memory)),
		goal:      "≤ 300 MB",
	})
	return nil
}

// tenant creates an account with a static site, a program and a WordPress site, whose visitors have one address.
func (b *bench) tenant(w *world.World, email, from, static, app string, run map[string]any) (*tenant, error) {
	key, err := w.User(email)
	if err != nil {
		return nil, err
	}
	t := &tenant{key: key}
	if t.client, err = w.Browser(); err != nil {
		return nil, err
	}
	transport := t.client.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if _, port, _ := net.SplitHostPort(addr); port == "443" || port == "80" {
			return dial(ctx, network, addr)
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx,
			"tcp", "127.0.0.1:"+port)
	}
	t.client.Timeout = 30 * time.Second
	for _, s := range []struct {
		body    map[string]any
		id, url *string
	}{
		{map[string]any{"type": "static", "repository": "git.test/bench/" + static, "branch": "main"}, &t.staticID, &t.static},
		{map[string]any{"type": "static", "repository": "git.test/bench/" + app, "branch": "main"}, &t.appID, &t.app},
		{map[string]any{"type": "wordpress"}, &t.blogID, &t.wp},
	} {
		s.body["name"] = "site of " + email
		var made struct{ Data struct{ ID, URL string } }
		if err := w.Call(b.ctx, key, "POST", "/sites", s.body, &made); err != nil {
			return nil, err
		}
		*s.id, *s.url = made.Data.ID, made.Data.URL
		if s.id == &t.appID && run != nil {
			if err := w.Call(b.ctx, key, "PATCH", "/sites/"+t.appID, map[string]any{"run": run}, nil); err != nil {
				return nil, err
			}
		}
		ctx, done := context.WithTimeout(b.ctx, 3*time.Minute)
		err := world.Until(ctx, 100*time.Millisecond, func() (bool, error) {
			a, err := world.Read(t.client.Get(*s.url + "/"))
			return err == nil && a.Status == 200, nil
		})
		done()
		if err != nil {
			return nil, fmt.Errorf("%s does not answer: %w", *s.url, err)
		}
	}
	return t, nil
}

// watched holds the durations of one tenant's requests.
type watched struct {
	of     map[string]*latencies
	memory int // maximum of the service, in kB
}

// watch requests everything of a tenant at a visitor's pace for a while.
func (b *bench) watch(w *world.World, t *tenant, long time.Duration) (out watched, err error) {
	v := visitor{Long: long, Sites: w.HTTPS, Asks: map[string]ask{
		"API":       {URL: "http://" + w.Listen + "/api/v1/sites", Key: t.key, Every: 200 * time.Millisecond},
		"static":    {URL: t.static + "/", Every: 50 * time.Millisecond},
		"program":   {URL: t.app + "/", Every: 200 * time.Millisecond},
		"WordPress": {URL: t.wp + "/", Every: time.Second, Fresh: true},
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		out.of, err = v.run(b.ctx)
	}()
	for {
		kb, _ := resident(w)
		out.memory = max(out.memory, kb)
		select {
		case <-time.After(200 * time.Millisecond):
			continue
		case <-done:
		}
		break
	}
	for _, l := range out.of {
		slices.Sort(l.Took)
	}
	return out, err
}

// attacks returns the actions that a hostile tenant repeats, each from one visitor.
func (b *bench) attacks(w *world.World, e *tenant) (list []func(context.Context)) {
	get := func(address string, header ...string) func(context.Context) {
		return func(ctx context.Context) {
			r, err := http.NewRequestWithContext(ctx, "GET", address, nil)
			if err != nil {
				return
			}
			for i := 0; i+1 < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			_, _ = world.Read(e.client.Do(r))
		}
	}
	post := func(address, kind string, body func() io.Reader) func(context.Context) {
		return func(ctx context.Context) {
			ctx, done := context.WithTimeout(ctx, 20*time.Second)
			defer done()
			r, err := http.NewRequestWithContext(ctx, "POST", address, body())
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", kind)
			_, _ = world.Read(e.client.Do(r))
		}
	}
	api := func(method, path string, body any) func(context.Context) {
		return func(ctx context.Context) {
			_, _ = w.Do(ctx, world.Request{Method: method, Path: path, Key: e.key, Body: body})
			select { // more than are admitted
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	var n atomic.Int64
	list = []func(context.Context){
		get(e.static+"/x1", "Cookie", strings.Repeat(";", 28<<10)),
		func(ctx context.Context) { b.unread(ctx, w, e.static) },
		get(e.app + "/burn"), get(e.app + "/head"), get(e.app + "/files"), get(e.app + "/log"), get(e.app + "/slow"),
		post(e.app+"/", "text/plain", func() io.Reader { return &drip{} }),
		post(e.wp+"/wp-login.php/x", "application/x-www-form-urlencoded",
			func() io.Reader { return strings.NewReader("log=admin&pwd=guess") }),
		post(e.wp+"/xmlrpc.php", "text/xml", func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte("<a>"), 10_000)) }),
		post(e.wp+"/", "text/plain", func() io.Reader { return &drip{} }),
		func(ctx context.Context) { get(fmt.Sprint(e.wp, "/?s=", n.Add(1)))(ctx) },
		api("POST", "/sites/"+e.appID+"/backups", nil), api("POST", "/sites/"+e.blogID+"/backups", nil),
		api("POST", "/sites/"+e.staticID+"/deploy", map[string]any{}), api("POST", "/sites/"+e.appID+"/deploy", map[string]any{}),
		api("GET", "/sites?limit=100", nil), api("GET", "/audit", nil),
		api("POST", "/sites/"+e.staticID+"/env", []map[string]any{{"key": "A", "value": strings.Repeat("x", 30_000)}}),
	}
	return append(list, list[0], list[1], list[2], list[11]) // some twice
}

// drip is a body that sends a byte every ten seconds.
type drip struct{ n int }

func (d *drip) Read(p []byte) (int, error) {
	d.n++
	if d.n > 3 {
		return 0, io.EOF
	}
	if d.n > 1 {
		time.Sleep(10 * time.Second)
	}
	p[0] = 'x'
	return 1, nil
}

// unread sends HTTP/2 requests with many header fields, all referring to the same entry of the header table, and
// doesn't read the answers for a while.
func (b *bench) unread(ctx context.Context, w *world.World, site string) {
	u, err := url.Parse(site)
	if err != nil {
		return
	}
	raw, err := net.Dial("tcp", w.HTTPS)
	if err != nil {
		return
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: u.Hostname(), NextProtos: []string{"h2"}})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := range uint32(120) {
		block.Reset()
		for _, x := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", u.Host}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: x[0], Value: x[1]})
		}
		for range 14 {
			_ = enc.WriteField(hpack.HeaderField{Name: "cookie", Value: strings.Repeat("c", 2000)})
		}
		if f.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      2*i + 1,
			BlockFragment: block.Bytes(),
			EndHeaders:    true,
			EndStream:     true,
		}) != nil {
			return
		}
	}
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
}
