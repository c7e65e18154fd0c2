// Package guard owns what a request meets before a site's WordPress: paths that nobody may see, a bound on how
// often passwords are tried, the page cache, and the program, which it wakes for the rest alone.
package guard

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/compress"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/id"
	"slipway/internal/program/relay"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/pagecache"
)

// Config holds what guards need.
type Config struct {
	Programs endpoint.Source // behind the guards
	Cache    *pagecache.Cache
	Sites    Sites
	Log      *slog.Logger // Optional.
}

// Sites has what sites serve, and hears what their answers say; package wordpress's are one.
type Sites interface {
	// Served returns what a deployment serves.
	Served(ctx context.Context, deployment id.Deployment) (Served, error)
	// PagesChanged hears that a site made pages of its own stale.
	PagesChanged(ctx context.Context, id site.ID)
	// Scheduled hears when a site's next event is, in seconds since 1970.
	Scheduled(ctx context.Context, id site.ID, at string)
}

// Guards are those of all sites. They are safe for concurrent use.
type Guards struct {
	c      Config
	logins throttle
	// share: total 50,000 deployments whose guard is known; owner its deployments; edge all are forgotten, and read again
	known sync.Map     // of string to Served: deployments whose guard was asked for
	count atomic.Int64 // of them
	turn  atomic.Int64 // how often they were forgotten
}

// New returns guards. It starts nothing.
func New(c Config) *Guards {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Guards{c: c, logins: newThrottle()}
}

// Served holds what a deployment of a WordPress serves.
type Served struct {
	Site   site.ID // empty: it is none
	Owner  id.Owner
	XMLRPC bool
	Own    string // marks requests that the site makes to itself: see Mark
	Device string // by which it knows devices: see Device

	Rules *release.Tree     // its redirects and headers beside those of its repository; nil: none
	Root  map[string]string // contents of files at its root by path, beside those of its repository
	Pages PageCache         // what its owner keeps from the page cache

	Network bool // it is a network of blogs
	Folders bool // whose addresses begin with a folder

	Address string   // of its primary domain; empty: it has none
	Former  []string // hosts of before, which lead there
}

// Acquire returns what answers a request to a deployment: for the rest it wakes the program, when it
// has to.
func (gs *Guards) Acquire(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	s, err := gs.served(ctx, deployment)
	switch {
	case err != nil:
		return nil, err
	case s.Site == "":
		return gs.c.Programs.Acquire(ctx, deployment)
	}
	return gs.Endpoint(s, deployment), nil
}

// Awake returns the same without waiting, if the deployment is known and its program runs.
func (gs *Guards) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	known, ok := gs.known.Load(string(deployment))
	if !ok || known.(Served).Site == "" {
		return nil, false
	}
	p, ok := gs.c.Programs.Awake(deployment)
	if !ok {
		return nil, false
	}
	p.Release()
	return gs.Endpoint(known.(Served), deployment), true
}

// served returns what a deployment serves.
func (gs *Guards) served(ctx context.Context, deployment id.Deployment) (Served, error) {
	if known, ok := gs.known.Load(string(deployment)); ok {
		return known.(Served), nil
	}
	turn := gs.turn.Load()
	s, err := gs.c.Sites.Served(ctx, deployment)
	if err != nil {
		return s, err
	}
	var memory int64 // counts as the deployments that could be known in it, by 4 KiB each
	if s.Rules != nil {
		memory = s.Rules.Memory()
	}
	for _, text := range s.Root {
		memory += int64(len(text))
	}
	gs.count.Add(memory >> 12)
	// share: total 50,000 deployments whose guard is known; owner its deployments; edge all are forgotten, and read again
	if gs.count.Add(1) > maxKnown {
		gs.known.Clear()
		gs.count.Store(0)
	}
	gs.known.Store(string(deployment), s)
	if gs.turn.Load() != turn { // what was read may be from before the change
		gs.known.Delete(string(deployment))
	}
	return s, nil
}

// ahead reports whether something of the site's own may answer for a path before its pages and files do.
func (s Served) ahead(path string) bool {
	_, file := s.Root[strings.TrimPrefix(path, "/")]
	return s.Rules != nil || file
}

// Rules returns a site's redirects and headers beside those of its repository.
func (gs *Guards) Rules(ctx context.Context, deployment id.Deployment) (*release.Tree, error) {
	s, err := gs.served(ctx, deployment)
	return s.Rules, err
}

// Forget makes what deployments serve be read again.
func (gs *Guards) Forget() {
	gs.turn.Add(1)
	gs.known.Clear()
}

// SessionCookies are the beginnings of cookies whose visitors get no page that is ready.
func (gs *Guards) SessionCookies(deployment id.Deployment) []string {
	if known, ok := gs.known.Load(string(deployment)); ok {
		return slices.Concat(pagecache.SessionCookies, known.(Served).Pages.Cookies)
	}
	return pagecache.SessionCookies
}

// Page returns a cached page that is fresh, for visitors without SessionCookies: what it is, and what
// returns its fields and body for an Accept-Encoding; nil where there is none.
func (gs *Guards) Page(deployment id.Deployment, host, path string) (of any, answer func(accept string) (http.Header, []byte)) {
	known, ok := gs.known.Load(string(deployment))
	if !ok || known.(Served).ahead(path) {
		return nil, nil
	}
	p := gs.c.Cache.Fresh(deployment, host, path)
	if p == nil {
		return nil, nil
	}
	return p, p.Answer
}

// File returns a deployment's program if it runs, and a path could be a file that visitors see.
func (gs *Guards) File(deployment id.Deployment, host, path string) (*endpoint.Endpoint, bool) {
	known, ok := gs.known.Load(string(deployment))
	if !ok || !named(path) {
		return nil, false
	}
	s := known.(Served)
	if s.Site == "" || s.ahead(path) || slices.Contains(s.Former, host) || s.closes(path) {
		return nil, false
	}
	return gs.c.Programs.Awake(deployment)
}

// maxKnown bounds what is remembered of deployments.
const maxKnown = 50_000

// guard stands before a site's WordPress for one request: it closes what is nobody's
// business, answers from the page cache, and wakes the program for the rest alone.
type guard struct {
	of    *Guards
	site  Served
	pages id.Deployment // the deployment whose pages it looks for and stores
	asked time.Time     // what the answer shows is not older

	mu      sync.Mutex // guards got
	got     *endpoint.Endpoint
	release sync.Once
}

// Endpoint returns what answers a request to a deployment of a site.
func (gs *Guards) Endpoint(s Served, deployment id.Deployment) *endpoint.Endpoint {
	g := &guard{of: gs, site: s, pages: deployment, asked: time.Now()}
	return &endpoint.Endpoint{Transport: g, Serve: g.serve, Release: g.end, Answered: g.answered}
}

// end ends the request.
func (g *guard) end() {
	g.release.Do(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.got != nil {
			g.got.Release()
		}
	})
}

// answered hears an answer of the program.
func (g *guard) answered(status int, bytes int64, took time.Duration) {
	g.mu.Lock()
	got := g.got
	g.mu.Unlock()
	if got != nil && got.Answered != nil {
		got.Answered(status, bytes, took)
	}
}

func (g *guard) program(ctx context.Context) (_ *endpoint.Endpoint, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.got == nil {
		g.got, err = g.of.c.Programs.Acquire(ctx, g.pages)
	}
	return g.got, err
}

// Mark returns the key by which a WordPress with that key marks its requests to itself.
func Mark(key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("loopback"))
	return hex.EncodeToString(m.Sum(nil))
}

// ownCron reports whether the site itself asks for its wp-cron.php, to see that it can. There is
// nothing to do: events are run when they are due.
func (g *guard) ownCron(r *http.Request) bool {
	return script(strings.ToLower(g.site.inner(r.URL.Path))) == "/wp-cron.php" && (g.site.Vouches(r.Header.Get(loopback), time.Now()) ||
		hmac.Equal([]byte(r.Header.Get(loopback)), []byte(g.site.Own))) // of a core that an earlier version deployed
}

const (
	loopback     = "Slipway-Loopback"
	loopbackTime = time.Minute
)

// Vouches reports whether a site says that it makes a request itself: a moment ago, and with its mark.
func (s Served) Vouches(says string, now time.Time) bool {
	at, sum, ok := strings.Cut(says, ".")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if s.Own == "" || !ok || err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > loopbackTime {
		return false
	}
	return hmac.Equal([]byte(sum), []byte(digest(s.Own, at)))
}

// Vouches reports whether a deployment's site makes a request itself, which its own password doesn't keep out.
func (gs *Guards) Vouches(ctx context.Context, deployment id.Deployment, r *http.Request) bool {
	says := r.Header.Get(loopback)
	if says == "" {
		return false
	}
	s, err := gs.served(ctx, deployment)
	return err == nil && s.Vouches(says, time.Now())
}

// moved returns where a request leads that asks a host of before; empty: it doesn't. Forms and calls that change something are answered:
// a client that follows would ask again without what it sent.
func (s Served) moved(r *http.Request) string {
	if s.Address == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return ""
	}
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if !slices.Contains(s.Former, host) {
		return ""
	}
	return s.Address + r.URL.RequestURI()
}

// told hears what a site tells of itself, in an answer or in a request of its own once an answer has begun: changed pages, and when its
// next event is. It returns since when an answer that was asked for then is up to date.
func (g *guard) told(ctx context.Context, h http.Header, asked time.Time) time.Time {
	if paths := h.Get("X-Slipway-Purge"); paths != "" {
		g.of.c.Sites.PagesChanged(ctx, g.site.Site)
		asked = g.of.c.Cache.ChangedBy(g.site.Site, asked, strings.Fields(paths)...)
	}
	if at := h.Get("X-Slipway-Cron"); at != "" {
		g.of.c.Sites.Scheduled(ctx, g.site.Site, at)
	}
	return asked
}

// serve answers what needs no program, or a file, and reports whether it did.
func (g *guard) serve(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Slipway-Told") != "" && g.site.Vouches(r.Header.Get(loopback), time.Now()) {
		g.told(r.Context(), r.Header, time.Now())
		answer(w, http.StatusOK, "")
		return true
	}
	if g.site.Own != "" && g.ownCron(r) {
		answer(w, http.StatusOK, "")
		return true
	}
	if g.site.closes(r.URL.Path) {
		answer(w, http.StatusNotFound, "Not found\n")
		return true
	}
	if to := cmp.Or(g.site.moved(r), bedrock(r)); to != "" {
		w.Header().Set("Location", to)
		answer(w, http.StatusMovedPermanently, "Moved to "+to+"\n")
		return true
	}
	if g.rootFile(w, r) {
		return true
	}
	if page := g.site.page(r); page != nil {
		if p, how := g.of.c.Cache.Lookup(g.pages, page); p != nil {
			p.Write(w, r, how)
			return true
		}
	}
	if !named(r.URL.Path) {
		return false
	}
	if h := w.Header(); h.Get("Cache-Control") == "" && versioned(r.URL.RawQuery) {
		h.Set("Cache-Control", "public, max-age=31536000")
	}
	p, err := g.program(r.Context())
	return err == nil && p.Serve != nil && p.Serve(w, r)
}

// RoundTrip asks the program, and stores a page that may be.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if wait := g.of.logins.take(g.site.Site, g.site.Device, g.site.inner(r.URL.Path), r); wait > 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		resp := plain(r, http.StatusTooManyRequests, "Too many attempts to log in. Try again later.\n")
		resp.Header.Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		return resp, nil
	}
	page := g.site.page(r)
	if page != nil && !g.of.c.Cache.Cacheable(page) {
		page = nil
	}
	if r.ContentLength < 0 && page != nil {
		// A GET body has no meaning (RFC 9110 §9.3.1), so it is dropped. Over HTTP/3, requests without a body don't say so.
		if r.Body != nil {
			_ = r.Body.Close()
		}
		r.Body, r.ContentLength = http.NoBody, 0
		page.Body, page.ContentLength = http.NoBody, 0
	}
	tracks := ""
	if page != nil { // it is everybody's, and names no campaign
		defer g.of.c.Cache.Filling(g.pages, page)()
		tracks, r = r.URL.RawQuery, page
	}
	resp, woken, err := g.ask(r)
	if !woken {
		g.of.c.Log.WarnContext(r.Context(), "WordPress not woken", "site", g.site.Site, "err", err)
		return plain(r, http.StatusServiceUnavailable, "This site is starting. Try again in a few seconds.\n"), nil
	}
	if err != nil {
		return nil, err
	}
	g.asked = g.told(r.Context(), resp.Header, g.asked)
	if to := resp.Header.Get("Location"); tracks != "" && to != "" && !strings.ContainsAny(to, "?#") {
		resp.Header.Set("Location", to+"?"+tracks)
	}
	whose, stored := pages[resp.Header.Get("X-Slipway-Cache")]
	resp.Header.Del("X-Slipway-Cron")
	resp.Header.Del("X-Slipway-Purge")
	resp.Header.Del("X-Slipway-Cache")
	if stored && page != nil {
		g.of.c.Cache.Store(g.site.Owner, g.site.Site, g.pages, page, resp, g.asked, whose)
	}
	compress.Answer(r, resp)
	return resp, nil
}

// mostTries is how many times a request looks for a program that takes it, where one node after the other ends in that moment.
const mostTries = 3

// ask sends a request to the program; once more, where the node that has it turns out to be gone before it got any of the request.
// woken is false if the program could not be woken.
func (g *guard) ask(r *http.Request) (resp *http.Response, woken bool, err error) {
	body := r.Body
	if body != nil {
		defer func() {
			if err != nil {
				_ = body.Close()
			}
		}()
	}
	for tries := 1; ; tries++ {
		p, err := g.program(r.Context())
		if err != nil {
			return nil, false, err
		}
		out, unread := r, &unreadBody{ReadCloser: body}
		if body != nil && body != http.NoBody {
			out = r.Clone(r.Context())
			out.Body = unread
		}
		resp, err := p.Transport.RoundTrip(out)
		// With its node, or with a program that was replaced: RFC 9110 §9.2.2.
		lost := upstream.Idempotent(r.Method) && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
			errors.Is(err, syscall.EPIPE))
		if err == nil || !lost && !errors.Is(err, relay.ErrUnreached) || unread.begun.Load() || tries == mostTries ||
			!lost && !p.Ends(r.Context()) {
			return resp, true, err
		}
		g.mu.Lock()
		g.got.Release()
		g.got = nil
		g.mu.Unlock()
	}
}

// unreadBody is a body that stays open for another try, until some of it has been read.
type unreadBody struct {
	io.ReadCloser
	begun atomic.Bool
}

func (b *unreadBody) Read(p []byte) (int, error) {
	b.begun.Store(true)
	return b.ReadCloser.Read(p)
}

// Close closes the body if some of it was read: an unread body is for another try.
func (b *unreadBody) Close() error {
	if !b.begun.Load() {
		return nil
	}
	return b.ReadCloser.Close()
}

func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func plain(r *http.Request, status int, text string) *http.Response {
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode: status,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Request:    r,
		Header: http.Header{
			"Content-Type":           {"text/plain; charset=utf-8"},
			"Retry-After":            {"5"},
			"Cache-Control":          {"no-store"},
			"X-Content-Type-Options": {"nosniff"},
		},
		ContentLength: int64(len(text)),
		Body:          io.NopCloser(strings.NewReader(text)),
	}
}
