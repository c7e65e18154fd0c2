package wordpress

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/pagecache"
)

// guard stands before a site's WordPress for one request: it closes what is nobody's
// business, answers from the page cache, and wakes the program for the rest alone.
type guard struct {
	w     *WordPress
	of    served
	pages string    // the deployment whose pages it looks for and stores
	asked time.Time // what the answer shows is not older

	mu      sync.Mutex // guards got
	got     *endpoint.Endpoint
	release sync.Once
}

// guard returns one for a request to a deployment of a site.
func (w *WordPress) guard(s served, deployment string) *guard {
	return &guard{w: w, of: s, pages: deployment, asked: time.Now()}
}

func (g *guard) endpoint() *endpoint.Endpoint {
	return &endpoint.Endpoint{Transport: g, Serve: g.serve, Release: g.end, Answered: g.answered}
}

// served holds what a deployment of a WordPress serves.
type served struct {
	site   string // empty: it is none
	owner  string
	xmlrpc bool
	own    string // marks requests that the site makes to itself
}

// Acquire returns what answers a request to a deployment: for the rest it wakes the program, when it
// has to.
func (w *WordPress) Acquire(ctx context.Context, deployment string) (*endpoint.Endpoint, error) {
	s, err := w.served(ctx, deployment)
	switch {
	case err != nil:
		return nil, err
	case s.site == "":
		return w.c.Programs.Acquire(ctx, deployment)
	}
	return w.guard(s, deployment).endpoint(), nil
}

// Awake returns the same without waiting, if the deployment is known and its program runs.
func (w *WordPress) Awake(deployment string) (*endpoint.Endpoint, bool) {
	known, ok := w.known.Load(deployment)
	if !ok || known.(served).site == "" {
		return nil, false
	}
	p, ok := w.c.Programs.Awake(deployment)
	if !ok {
		return nil, false
	}
	p.Release()
	return w.guard(known.(served), deployment).endpoint(), true
}

// served returns what a deployment serves.
func (w *WordPress) served(ctx context.Context, deployment string) (served, error) {
	if known, ok := w.known.Load(deployment); ok {
		return known.(served), nil
	}
	var s served
	var sealed string
	err := w.c.DB.QueryRow(ctx, `SELECT w.site_id, w.owner_id, w.xmlrpc, w.secret FROM wordpress_sites w JOIN deployment_sites d ON d.site_id = w.site_id WHERE d.id = $1`, deployment).
		Scan(
			&s.site,
			&s.owner,
			&s.xmlrpc,
			&sealed,
		)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("find WordPress of a deployment: %w", err)
	}
	if s.site != "" {
		key, err := w.c.Seal.Open(sealed, purpose(site.ID(s.site)))
		if err != nil {
			return s, fmt.Errorf("open key of WordPress: %w", err)
		}
		s.own = ownMark(key)
	}
	// share: total 50,000 deployments whose guard is known; owner its deployments; edge all are forgotten, and read again
	if w.count.Add(1) > maxKnown {
		w.known.Clear()
		w.count.Store(0)
	}
	w.known.Store(deployment, s)
	return s, nil
}

// SessionCookies are the beginnings of cookies that make a visitor somebody.
func (w *WordPress) SessionCookies() []string { return pagecache.SessionCookies }

// Page returns a cached page that is fresh, for visitors without SessionCookies: what it is, and what
// returns its fields and body for an Accept-Encoding; nil where there is none.
func (w *WordPress) Page(deployment, host, path string) (of any, answer func(accept string) (http.Header, []byte)) {
	p := w.cache.Fresh(deployment, host, path)
	if p == nil {
		return nil, nil
	}
	return p, p.Answer
}

// File returns a deployment's program if it runs, and a path could be a file that visitors see.
func (w *WordPress) File(deployment, path string) (*endpoint.Endpoint, bool) {
	known, ok := w.known.Load(deployment)
	if !ok || known.(served).site == "" || !named(path) || closed(path, known.(served).xmlrpc) {
		return nil, false
	}
	return w.c.Programs.Awake(deployment)
}

// maxKnown bounds what is remembered of deployments.
const maxKnown = 50_000

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
		g.got, err = g.w.c.Programs.Acquire(ctx, g.pages)
	}
	return g.got, err
}

// Files that belong to nobody who visits: the installer, the configuration, what reveals
// versions or users, and what plugins leave behind.
var (
	closedPaths = map[string]bool{
		"/wp-config.php":               true,
		"/wp-admin/install.php":        true,
		"/wp-admin/setup-config.php":   true,
		"/wp-admin/upgrade.php":        true,
		"/wp-admin/maint/repair.php":   true,
		"/wp-admin/install-helper.php": true,
		"/wp-cron.php":                 true,
		"/wp-mail.php":                 true,
		"/wp-links-opml.php":           true,
		"/wp-trackback.php":            true,
		"/wp-settings.php":             true,
		"/wp-load.php":                 true,
		"/readme.html":                 true,
		"/license.txt":                 true,
		"/wp-signup.php":               true,
		"/wp-activate.php":             true,
		"/wp-admin/load-scripts.php":   false,
	}
	closedTrees = []string{
		"/wp-content/database/", "/wp-content/backup", "/wp-content/updraft", "/wp-content/ai1wm-backups",
		"/wp-content/upgrade/", "/wp-content/debug.log", "/wp-admin/includes/", "/wp-includes/theme-compat/",
		"/wp-sitemap-users",
	}
	closedNames = lazyregexp.New(
		`(?i)\.(log|sql|sql\.gz|bak|old|orig|save|swp|sqlite|sqlite3|db|zip\.part|ini|sh|env|tar|tgz|gz\.sql)$|(^|/)(error_log|composer\.(json|lock)|package(-lock)?\.json)$`,
	)
)

// closed reports whether nobody may see a path.
func closed(name string, xmlrpc bool) bool {
	low := script(strings.ToLower(name))
	switch {
	case closedPaths[low]:
		return true
	case low == "/xmlrpc.php":
		return !xmlrpc
	case strings.HasPrefix(low, "/wp-content/") && strings.Contains(low, ".ph"): // scripts of plugins run through WordPress alone
		return true
	case strings.HasPrefix(low, "/wp-includes/") && strings.HasSuffix(low, ".php"):
		return true
	}
	for _, t := range closedTrees {
		if strings.HasPrefix(low, t) {
			return true
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(low, "/"), "/") {
		if strings.HasPrefix(part, ".") && part != ".well-known" {
			return true
		}
	}
	return closedNames.MatchString(low)
}

// ownMark returns what a WordPress with that key sends as Slipway-Loopback to its own wp-cron.php.
func ownMark(key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("loopback"))
	return hex.EncodeToString(m.Sum(nil))
}

// ownCron reports whether the site itself asks for its wp-cron.php, to see that it can. There is
// nothing to do: events are run when they are due.
func (g *guard) ownCron(r *http.Request) bool {
	return script(strings.ToLower(r.URL.Path)) == "/wp-cron.php" && hmac.Equal([]byte(r.Header.Get("Slipway-Loopback")), []byte(g.of.own))
}

// serve answers what needs no program, or a file, and reports whether it did.
func (g *guard) serve(w http.ResponseWriter, r *http.Request) bool {
	if g.of.own != "" && g.ownCron(r) {
		answer(w, http.StatusOK, "")
		return true
	}
	if closed(r.URL.Path, g.of.xmlrpc) {
		answer(w, http.StatusNotFound, "Not found\n")
		return true
	}
	if wait := g.w.logins.take(g.of.site, r); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		answer(w, http.StatusTooManyRequests, "Too many attempts to log in. Try again later.\n")
		return true
	}
	if p, how := g.w.cache.Lookup(g.pages, r); p != nil {
		p.Write(w, r, how)
		return true
	}
	if !named(r.URL.Path) {
		return false
	}
	p, err := g.program(r.Context())
	return err == nil && p.Serve != nil && p.Serve(w, r)
}

// named reports whether a path could be a file's.
func named(name string) bool { return path.Ext(name) != "" && !strings.HasSuffix(name, ".php") }

// RoundTrip asks the program, and stores a page that may be.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ContentLength < 0 && g.w.cache.Cacheable(r) {
		// A body of GET means nothing (RFC 9110 §9.3.1), and what is made from it is no page for
		// everybody. Over HTTP/3 requests without one don't say that they have none.
		if r.Body != nil {
			_ = r.Body.Close()
		}
		r.Body, r.ContentLength = http.NoBody, 0
	}
	filled := g.w.cache.Filling(g.pages, r)
	defer filled()
	p, err := g.program(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		g.w.c.Log.WarnContext(r.Context(), "WordPress not woken", "site", g.of.site, "err", err)
		return plain(r, http.StatusServiceUnavailable, "This site is starting. Try again in a few seconds.\n"), nil
	}
	resp, err := p.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if paths := resp.Header.Get("X-Slipway-Purge"); paths != "" {
		g.w.tell(r.Context(), site.ID(g.of.site))
		g.asked = g.w.cache.ChangedBy(g.of.site, g.asked, strings.Fields(paths)...)
	}
	if at := resp.Header.Get("X-Slipway-Cron"); at != "" {
		g.w.scheduled(r.Context(), site.ID(g.of.site), at)
	}
	page := resp.Header.Get("X-Slipway-Cache") == "page"
	resp.Header.Del("X-Slipway-Cron")
	resp.Header.Del("X-Slipway-Purge")
	resp.Header.Del("X-Slipway-Cache")
	if page {
		g.w.cache.Store(g.of.owner, g.of.site, g.pages, r, resp, g.asked)
	}
	return resp, nil
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

// Attempts to log in, or to be sent a new password, within five minutes; and requests of
// XML-RPC, each of which may hold one.
const (
	loginWindow     = 5 * time.Minute
	loginsOfVisitor = 10
	loginsOfNetwork = 50
	loginsOfSite    = 200
	remoteMore      = 5 // times as many requests of XML-RPC, which apps make for other things too
)

// throttle bounds how often passwords are tried.
type throttle struct{ logins, remote *fair.Attempts }

func newThrottle() throttle {
	times := func(n int) *fair.Attempts {
		// share: total every site with sign-ins in the last window; owner of each site 200 tries, one network 50, one visitor 10; five times as many of XML-RPC; edge 429 with Retry-After
		return fair.NewAttempts(fair.Limit{
			Window:  loginWindow,
			Visitor: n * loginsOfVisitor,
			Network: n * loginsOfNetwork,
			Site:    n * loginsOfSite,
		})
	}
	return throttle{times(1), times(remoteMore)}
}

// take counts a request that may try a password, and returns how long to wait where it is one
// too many.
func (t throttle) take(site string, r *http.Request) time.Duration {
	if r.Method != http.MethodPost {
		return 0
	}
	switch visitor := fair.Visitor(r.RemoteAddr); script(r.URL.Path) {
	case "/wp-login.php":
		return t.logins.Try(site, visitor, time.Now())
	case "/xmlrpc.php":
		return t.remote.Try(site, visitor, time.Now())
	}
	return 0
}

// script returns the script that a path runs where it names one: what follows it is told to
// it as PATH_INFO.
func script(name string) string {
	p := path.Clean("/" + name)
	if i := strings.Index(p, ".php/"); i >= 0 {
		return p[:i+4]
	}
	return p
}
