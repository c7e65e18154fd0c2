package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/build/release"
	"slipway/internal/edge/certs"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/visit"
	"slipway/internal/platform/wait"
)

// world is an edge with a database, a store and two listeners.
type world struct {
	*Edge
	t       testing.TB
	dir     string
	version atomic.Int64
	https   string // listener addresses
	http    string
	roots   *x509.CertPool
}

// certificates, countries and visitsTo implement what the service passes in.
type certificates struct {
	answer    func(*tls.ClientHelloInfo, string, bool) (*tls.Certificate, error)
	challenge func(w http.ResponseWriter, r *http.Request) bool
}

func (c certificates) Certificate(hello *tls.ClientHelloInfo, name string, known bool) (*tls.Certificate, error) {
	return c.answer(hello, name, known)
}

func (c certificates) Challenge(w http.ResponseWriter, r *http.Request) bool {
	return c.challenge != nil && c.challenge(w, r)
}

type countries func(a netip.Addr) string

func (f countries) Of(a netip.Addr) string { return f(a) }

type visitsTo func(ctx context.Context, b visit.Batch, group []visit.Counts) error

func (f visitsTo) Record(ctx context.Context, b visit.Batch, group []visit.Counts) error {
	return f(ctx, b, group)
}

// start starts a world in which the views live and previews are tables, because other packages own the tables behind
// them.
func start(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	return startOn(t, dbtest.URL(t), change...)
}

// startOn is start on the database at url.
func startOn(t testing.TB, url string, change ...func(*Config)) *world {
	t.Helper()
	d := dbtest.Open(t, url)
	for _, q := range []string{
		`DROP VIEW IF EXISTS live`, `DROP VIEW IF EXISTS previews`, `DROP VIEW IF EXISTS custom_hosts`,
		`CREATE TABLE custom_hosts (host TEXT PRIMARY KEY, site_id TEXT, redirect_to TEXT, state TEXT, version BIGINT NOT NULL, certified_until BIGINT NOT NULL DEFAULT 0)`,
		`CREATE TABLE live (host_label TEXT, site_id TEXT PRIMARY KEY, owner_id TEXT NOT NULL DEFAULT 'owner', release TEXT, deployment_id TEXT, state TEXT NOT NULL, version BIGINT NOT NULL, backend TEXT NOT NULL DEFAULT 'files', runtime TEXT NOT NULL DEFAULT '', node TEXT NOT NULL DEFAULT '')`,
		`CREATE TABLE previews (label TEXT, host_label TEXT, release TEXT, deployment_id TEXT NOT NULL DEFAULT '', backend TEXT NOT NULL DEFAULT 'files', runtime TEXT NOT NULL DEFAULT '', node TEXT NOT NULL DEFAULT '')`,
	} {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := seal.Load(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := certs.New(certs.Config{DB: d, Seal: sealer, SiteDomain: "sites.test"})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		DB:           d,
		Certificates: certificates{answer: authority.Certificate},
		Blobs:        blobs,
		Releases:     release.New(release.Config{Blobs: blobs}),
		SiteDomain:   "sites.test",
		ControlHosts: []string{"panel.test"},
		Metrics:      prometheus.NewRegistry(),
		Control:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "control plane") }),
	}
	for _, f := range change {
		f(&c)
	}
	w := &world{t: t, dir: dir, roots: x509.NewCertPool()}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.https, w.http = secure.Addr().String(), plain.Addr().String()
	c.HTTPSPort = secure.Addr().(*net.TCPAddr).Port
	w.Edge = New(c)
	root, err := authority.RootPEM(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.roots.AppendCertsFromPEM(root)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s, p := w.Secure(), w.Server(w.HTTP())
	go s.Serve(secure)
	go p.Serve(plain)
	t.Cleanup(func() {
		s.Close()
		p.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.until("the table is read", w.Ready)
	return w
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, ok)
}

func (w *world) publish(files map[string]string) release.ID {
	w.t.Helper()
	wr, err := w.Releases.Begin(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for path, text := range files {
		if err := wr.Add(w.t.Context(), path, "", strings.NewReader(text)); err != nil {
			w.t.Fatal(err)
		}
	}
	wr.Hashed([]release.HashedFolder{{Form: release.Hex}, {Folder: "assets", Form: release.Base64}}, nil)
	s, err := wr.Seal(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ID
}

// row writes a site's row as the services do.
func (w *world) row(site id.Site, label, state string, id release.ID) {
	w.t.Helper()
	err := w.DB.Write(w.t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(w.t.Context(), `
			INSERT INTO live (host_label, site_id, release, deployment_id, state, version) VALUES ($1, $2, $3, 'dep_1', $4, $5)
			ON CONFLICT (site_id) DO UPDATE SET host_label = $1, release = $3, state = $4, version = $5`,
			label, site, string(id), state, w.version.Add(1))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// live writes a row and waits until the edge uses it.
func (w *world) live(site id.Site, label, state string, id release.ID) {
	w.t.Helper()
	w.row(site, label, state, id)
	want := w.version.Load()
	w.until("the row is in force", func() bool {
		t := w.table.hosts().find(label)
		if state == stateDeleted {
			return t == nil
		}
		return t != nil && t.version >= want
	})
}

// client connects to the edge for every host and follows no redirect.
func (w *world) client() *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			to := w.https
			if strings.HasSuffix(addr, ":80") {
				to = w.http
			}
			return new(net.Dialer).DialContext(ctx, network, to)
		},
		TLSClientConfig:    &tls.Config{RootCAs: w.roots},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport: tr, Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer holds a response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (w *world) get(url string, headers ...string) answer {
	return w.do(http.MethodGet, url, headers...)
}

func (w *world) do(method, url string, headers ...string) answer {
	w.t.Helper()
	return w.send(method, url, nil, headers...)
}

func (w *world) send(method, url string, body io.Reader, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := w.client().Do(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// want fails the test unless the answer has this status and a body that contains text.
func (a answer) want(t testing.TB, status int, text string) answer {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, text) {
		t.Errorf("status %d, want %d; body %.300q, want %q in it", a.status, status, a.body, text)
	}
	return a
}

func (a answer) head(t testing.TB, name, value string) answer {
	t.Helper()
	if got := strings.Join(a.header.Values(name), " | "); got != value {
		t.Errorf("%s is %q, want %q", name, got, value)
	}
	return a
}

func TestStates(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.publish(map[string]string{"index.html": "<h1>hello</h1>"})
	w.get("https://blog.sites.test/").want(t, 404, "Site not found").head(t, "Cache-Control", "no-store")
	w.live("s1", "blog", stateEmpty, "")
	w.get("https://blog.sites.test/").want(t, 503, "being deployed").head(t, "Retry-After", "5")
	w.live("s1", "blog", stateError, "")
	w.get("https://blog.sites.test/").want(t, 503, "available yet")
	w.live("s1", "blog", stateLive, id)
	w.get("https://blog.sites.test/").want(t, 200, "<h1>hello</h1>")
	w.live("s1", "blog", stateStopped, id)
	w.get("https://blog.sites.test/").want(t, 503, "is offline")
	w.live("s1", "blog", stateLive, id)
	w.get("https://BLOG.sites.test:443/").want(t, 200, "<h1>hello</h1>")
	w.get("https://other.sites.test/").want(t, 404, "Site not found")

	// A renamed site leaves its old label, which another site can take.
	w.live("s1", "journal", stateLive, id)
	w.get("https://journal.sites.test/").want(t, 200, "hello")
	w.get("https://blog.sites.test/").want(t, 404, "Site not found")
	other := w.publish(map[string]string{"index.html": "other"})
	w.live("s2", "blog", stateLive, other)
	w.live("s1", "journal", stateDeleted, "")
	w.get("https://journal.sites.test/").want(t, 404, "Site not found")
	w.get("https://blog.sites.test/").want(t, 200, "other")

	// A missing release is a 500 whose page reveals no details.
	w.live("s2", "blog", stateLive, release.ID(blob.Sum([]byte("gone")).String()))
	a := w.get("https://blog.sites.test/").want(t, 500, "internal error occurred")
	if strings.Contains(a.body, "blob") || strings.Contains(a.body, w.dir) {
		t.Errorf("the page tells too much: %q", a.body)
	}
}

// A full read finds rows that existed before the edge started and drops rows that vanished.
func TestTableFollowsEverything(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 50 {
		w.row(id.Site(fmt.Sprint("s", i)), fmt.Sprint("site", i), stateEmpty, "")
	}
	second := w.Config
	second.Metrics = nil
	e := New(second)
	if _, _, err := e.readBoth(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	if n := e.table.hosts().len(); n != 50 {
		t.Errorf("%d hosts, want 50", n)
	}
	if err := w.DB.Admin(t.Context(), "DELETE FROM live WHERE site_id = 's7'"); err != nil {
		t.Fatal(err)
	}
	if v, _, err := e.readBoth(t.Context(), 50, 0); v != 50 || err != nil || e.table.hosts().find("site7") == nil {
		t.Errorf("reading changes alone: %d, %v", v, err)
	}
	if _, _, err := e.readBoth(t.Context(), 0, 0); err != nil || e.table.hosts().find("site7") != nil || e.table.hosts().len() != 49 {
		t.Errorf("a vanished row is still served, %v", err)
	}
	if e.Ready() {
		t.Error("ready without Run")
	}
	rec := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "https://x.sites.test/", nil)
	r.URL.Host, r.URL.Scheme, r.TLS = "", "", nil
	e.HTTPS().ServeHTTP(rec, r)
	if rec.Code != 503 {
		t.Errorf("an unknown host before the table was read: %d", rec.Code)
	}
}

func TestPreviews(t *testing.T) {
	t.Parallel()
	w := start(t)
	first, second := w.publish(map[string]string{"index.html": "first"}), w.publish(map[string]string{"index.html": "second"})
	w.live("s1", "blog", stateLive, second)
	if err := w.DB.Admin(t.Context(),
		fmt.Sprintf("INSERT INTO previews (label, host_label, release) VALUES ('abcdefghijk1', 'blog', '%s')", first)); err != nil {
		t.Fatal(err)
	}
	w.get("https://abcdefghijk1--blog.sites.test/").want(t, 200, "first").head(t, "X-Robots-Tag", "noindex")
	w.get("https://blog.sites.test/").want(t, 200, "second").head(t, "X-Robots-Tag", "")
	w.get("https://abcdefghijk2--blog.sites.test/").want(t, 404, "Site not found")
	w.get("https://abcdefghijk1--other.sites.test/").want(t, 404, "Site not found")
	w.get("https://abc--blog.sites.test/").want(t, 404, "Site not found")
	// A missing preview is looked up once, not once per visitor.
	if p, ok := w.previews.known.Get("abcdefghijk2--blog"); !ok || p.release != "" || !time.Now().Before(p.until) {
		t.Error("an absent preview isn't remembered")
	}
	w.get("http://abcdefghijk1--blog.sites.test/").want(t, 308, "")

	// A branch's address serves another deployment as soon as its row changes.
	if err := w.DB.Admin(t.Context(),
		fmt.Sprintf("INSERT INTO previews (label, host_label, release) VALUES ('feature-x', 'blog', '%s')", first)); err != nil {
		t.Fatal(err)
	}
	w.get("https://feature-x--blog.sites.test/").want(t, 200, "first").head(t, "X-Robots-Tag", "noindex")
	if err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("previews")
		_, err := tx.Exec(t.Context(), `UPDATE previews SET release = $1 WHERE label = 'feature-x'`, second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(w.get("https://feature-x--blog.sites.test/").body, "second"); {
		if time.Now().After(deadline) {
			t.Fatal("the branch's address still serves the earlier deployment")
		}
	}
	w.live("s1", "blog", stateStopped, second)
	w.get("https://abcdefghijk1--blog.sites.test/").want(t, 503, "is offline")
	w.live("s1", "blog", stateDeleted, "")
	w.get("https://abcdefghijk1--blog.sites.test/").want(t, 404, "Site not found")
}

func TestPlainRedirects(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.live("s1", "blog", stateEmpty, "")
	port := w.https[strings.LastIndexByte(w.https, ':'):]
	for url, want := range map[string]string{
		"http://blog.sites.test":                  "https://blog.sites.test" + port + "/",
		"http://blog.sites.test/a%20b/?q=1&r=%2F": "https://blog.sites.test" + port + "/a%20b/?q=1&r=%2F",
		"http://blog.sites.test//evil.test/":      "https://blog.sites.test" + port + "//evil.test/",
		"http://panel.test/login?next=/":          "https://panel.test" + port + "/login?next=/",
	} {
		w.get(url).want(t, 308, "").head(t, "Location", want)
	}
	w.do("POST", "http://blog.sites.test/form").want(t, 308, "")
	w.get("http://nobody.sites.test/").want(t, 404, "Site not found")
	w.get("http://evil.test/").want(t, 404, "Site not found")
	if New(Config{HTTPSPort: 443}).port != "" {
		t.Error("port 443 is spelled out")
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.get("https://panel.test/").want(t, 200, "control plane")
	w.get("https://PANEL.test/").want(t, 200, "control plane")
	w.live("s1", "panel", stateEmpty, "")
	w.get("https://panel.sites.test/").want(t, 503, "being deployed")
}

// Malformed and misleading raw requests are refused.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello", "404.html": "nothing here"}))
	w.live("s2", "shop", stateLive, w.publish(map[string]string{"index.html": "shop"}))
	for name, tt := range map[string]struct {
		request string
		status  int
		also    string
	}{
		"good":                {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 200, "hello"},
		"with a dot and port": {"GET / HTTP/1.1\r\nHost: blog.sites.test.:8443\r\n\r\n", 200, "hello"},
		"absolute form":       {"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 400, ""},
		"absolute, own host":  {"GET https://blog.sites.test/ HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 400, ""},
		"absolute, upgrade": {
			"GET http://169.254.169.254/ HTTP/1.1\r\nHost: blog.sites.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			400,
			"",
		},
		"another tenant":    {"GET / HTTP/1.1\r\nHost: shop.sites.test\r\n\r\n", 421, ""},
		"the control plane": {"GET / HTTP/1.1\r\nHost: panel.test\r\n\r\n", 421, ""},
		"unknown host":      {"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 421, ""},
		"no host":           {"GET / HTTP/1.1\r\n\r\n", 400, ""},
		"two hosts":         {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nHost: shop.sites.test\r\n\r\n", 400, ""},
		"empty host":        {"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400, ""},
		"connect":           {"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 400, ""},
		"options":           {"OPTIONS / HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 204, "Allow: GET, HEAD, OPTIONS"},
		"options *":         {"OPTIONS * HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 0, ""},
		"post":              {"POST / HTTP/1.1\r\nHost: blog.sites.test\r\nContent-Length: 0\r\n\r\n", 405, "Allow: GET, HEAD"},
		"trace":             {"TRACE / HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 405, "Allow: GET, HEAD"},
		"open redirect":     {"GET //evil.test/%2e%2e HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"traversal":         {"GET /../../../etc/passwd HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"encoded traversal": {"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"doubly encoded":    {"GET /%252e%252e%252fetc/passwd HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"backslash":         {"GET /..\\..\\etc HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"nul":               {"GET /%00 HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"newline":           {"GET /%0d%0aSet-Cookie:a=b HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"hidden":            {"GET /.git/config HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n", 404, "nothing here"},
		"long header":       {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, ""},
		"smuggling": {
			"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /x",
			200,
			"hello",
		},
		"obs-fold":     {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nX: a\r\n b\r\n\r\n", 200, "hello"},
		"bad chunking": {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nTransfer-Encoding: xchunked\r\n\r\n", 501, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := tls.Dial("tcp", w.https, &tls.Config{
				RootCAs:    w.roots,
				ServerName: "blog.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			go io.WriteString(c, strings.Replace(tt.request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
			b, _ := io.ReadAll(c)
			if tt.status != 0 && !strings.HasPrefix(string(b), fmt.Sprintf("HTTP/1.1 %d ", tt.status)) ||
				!strings.Contains(string(b), tt.also) {
				t.Errorf("answer %.400q, want status %d and %q", b, tt.status, tt.also)
			}
			if strings.Contains(string(b), "\nSet-Cookie") || strings.Contains(string(b), "evil.test") ||
				strings.Contains(string(b), "root:") || strings.Count(string(b), "HTTP/1.1 ") > 1 {
				t.Errorf("answer %.400q", b)
			}
		})
	}
}
