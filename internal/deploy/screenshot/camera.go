package screenshot

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/image/draw"

	"slipway/internal/platform/sandbox"
)

// Sizes in pixels: of the browser's window, and of the stored picture.
const (
	viewWidth, viewHeight = 1280, 800
	Width, Height         = 800, 500
)

// Limits of one picture.
const (
	wall     = 3 * time.Minute // usually a few seconds, but a server may be busy
	memory   = 1 << 30
	maxBytes = 12 << 20 // bytes of the browser's PNG: noise of 1280 × 800 pixels takes 4 MiB
)

// browsers lists supported browsers; the first installed one is used. Headless ones come first, because they need far
// fewer resources.
var browsers = []string{
	"chromium-headless-shell", "/usr/lib/chromium/chromium-headless-shell", "chrome-headless-shell",
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
}

// NoBrowser is the setting that turns screenshots off.
const NoBrowser = "none"

// Find returns the browser's path: the operator's setting, or an installed one; empty if there is none.
func Find(setting string) string {
	switch setting {
	case NoBrowser:
		return ""
	case "":
	default:
		return setting
	}
	for _, name := range browsers {
		if at, err := exec.LookPath(name); err == nil {
			if at, err = filepath.Abs(at); err == nil {
				return at
			}
		}
	}
	return ""
}

// Camera takes pictures of pages with a browser in a sandbox. The browser reaches only the page's site, at this
// machine's edge.
type Camera struct {
	Runner  sandbox.Runner
	Browser string // path; empty disables pictures
	Dir     string // temporary files; absolute, created if missing
	Edge    string // host:port of the sites' TLS listener

	turn turn // held by the one browser that runs
}

// turn is a lock; waiting for it ends with a context.
type turn struct {
	once sync.Once
	held chan struct{} // holds one element while the lock is taken
}

// take waits for the lock; give releases it.
func (t *turn) take(ctx context.Context) (give func(), err error) {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	select {
	case t.held <- struct{}{}:
		return func() { <-t.held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errNone is the error of a camera without a browser.
var errNone = errors.New("no browser is installed")

// Ready reports whether pictures can be taken. It is false for a nil Camera.
func (c *Camera) Ready() bool {
	return c != nil && c.Browser != "" && c.Runner != nil && c.Edge != ""
}

// redirects caps the redirects to other addresses of the site.
const redirects = 5

// shown requests a page from the edge as an anonymous visitor, follows redirects, and returns the final URL. It returns
// an error if not everyone can see that page.
func (c *Camera) shown(ctx context.Context, page string, hosts []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", c.Edge)
			},
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // this machine's edge may have any certificate
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > redirects || r.URL.Scheme != "https" || !contains(hosts, r.URL.Hostname()) {
				return errElsewhere
			}
			return nil
		},
	}
	ask := func(method string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, page, http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("ask for page: %w", err)
		}
		r.Header.Set("User-Agent", agent)
		r.Header.Set("Accept", "text/html,*/*;q=0.8")
		answer, err := client.Do(r)
		if err != nil {
			return nil, fmt.Errorf("ask for page: %w", err)
		}
		return answer, answer.Body.Close()
	}
	answer, err := ask(http.MethodHead) // doesn't count as a page view
	if err == nil && (answer.StatusCode == http.StatusMethodNotAllowed || answer.StatusCode == http.StatusNotImplemented ||
		answer.StatusCode == http.StatusNotFound) {
		answer, err = ask(http.MethodGet) // for programs that don't support HEAD
	}
	if err != nil {
		return "", err
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); answer.StatusCode != http.StatusOK || kind != "text/html" {
		return "", fmt.Errorf("ask for page: status %d, %q", answer.StatusCode, kind)
	}
	return answer.Request.URL.String(), nil
}

// agent is the browser's User-Agent.
const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 SlipwayScreenshot/1.0"

// proxyPort is the browser's proxy, on the sandbox's own loopback; proxySocket is where it leads.
const (
	proxyPort   = 3128
	proxySocket = "/run/slipway/site.sock"
)

// Take returns a picture of a page as a JPEG. hosts are the site's, without ports; uid is the site's own.
func (c *Camera) Take(ctx context.Context, uid int, page string, hosts []string) ([]byte, error) {
	if !c.Ready() {
		return nil, errNone
	}
	u, err := url.Parse(page)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("take picture: %q is no address", page)
	}
	give, err := c.turn.take(ctx) // at most wall for each waiting worker
	if err != nil {
		return nil, fmt.Errorf("take picture: wait for the browser: %w", err)
	}
	defer give()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("take picture: %w", err)
	}
	dir, err := os.MkdirTemp(c.Dir, "screenshot-")
	if err != nil {
		return nil, fmt.Errorf("take picture: %w", err)
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, fmt.Errorf("take picture: %w", err)
	}
	if err := sandbox.Own(work, uid); err != nil {
		return nil, err
	}
	l, socket, err := sandbox.Listen(dir, "site.sock")
	if err != nil {
		return nil, err
	}
	out := &siteProxy{edge: c.Edge, hosts: hosts}
	stop := out.serve(l)
	defer stop()
	var said bytes.Buffer
	res, err := c.Runner.Run(ctx, sandbox.Command{
		Argv: []string{
			c.Browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync",
			"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--no-first-run", "--mute-audio",
			"--no-pings", "--disable-breakpad", "--disable-crash-reporter",
			"--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
			"--user-data-dir=" + path.Join(sandbox.Root, "profile"), "--disk-cache-size=1",
			fmt.Sprintf("--proxy-server=http://127.0.0.1:%d", proxyPort), "--proxy-bypass-list=<-loopback>",
			"--ignore-certificate-errors", // the proxy leads only to this machine's edge, whose certificate doesn't matter
			"--hide-scrollbars", fmt.Sprintf("--window-size=%d,%d", viewWidth, viewHeight), "--force-prefers-reduced-motion",
			"--virtual-time-budget=5000", "--user-agent=" + agent,
			"--screenshot=" + path.Join(sandbox.Root, "page.png"), page,
		},
		Work: work, UID: uid,
		Binds:    append(fonts(), sandbox.Bind{Source: socket, Target: proxySocket}),
		Forwards: map[int]string{proxyPort: proxySocket},
		Limits:   sandbox.Limits{Memory: memory, Pids: 256, Disk: 128 << 20, Files: 4096, Wall: wall, Output: 64 << 10, CPU: 1},
		Stdout:   &said, Stderr: &said,
	})
	if err != nil {
		return nil, fmt.Errorf("take picture: %w", err)
	}
	if !res.OK() {
		return nil, fmt.Errorf("take picture: the browser %s: %.300s", res, strings.TrimSpace(said.String()))
	}
	return encode(filepath.Join(work, "page.png"))
}

// fonts returns the font directories that the sandbox needs.
func fonts() (all []sandbox.Bind) {
	for _, dir := range []string{"/etc/fonts", "/etc/chromium", "/etc/chromium.d"} {
		if _, err := os.Stat(dir); err == nil {
			all = append(all, sandbox.Bind{Source: dir, Target: dir})
		}
	}
	return all
}

// encode decodes the browser's picture, which is untrusted, scales it and returns it as a JPEG.
func encode(name string) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("read picture: %w", err)
	}
	defer root.Close()
	f, err := root.Open(filepath.Base(name))
	if err != nil {
		return nil, fmt.Errorf("read picture: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil || len(b) > maxBytes {
		return nil, fmt.Errorf("read picture: more than %d bytes: %w", maxBytes, err)
	}
	size, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil || size.Width != viewWidth || size.Height < 100 || size.Height > viewHeight {
		return nil, fmt.Errorf("read picture: %d × %d pixels: %w", size.Width, size.Height, err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read picture: %w", err)
	}
	small := image.NewRGBA(image.Rect(0, 0, Width, Height))
	draw.CatmullRom.Scale(small, small.Bounds(), img, img.Bounds(), draw.Src, nil)
	var to bytes.Buffer
	if err := jpeg.Encode(&to, small, &jpeg.Options{Quality: 80}); err != nil {
		return nil, fmt.Errorf("write picture: %w", err)
	}
	return to.Bytes(), nil
}
