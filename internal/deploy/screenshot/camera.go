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

// The measures of a picture in pixels: what the browser shows, and what is stored of it.
const (
	viewWidth, viewHeight = 1280, 800
	Width, Height         = 800, 500
)

// Bounds of one picture.
const (
	wall     = 3 * time.Minute // some seconds, mostly; a server may be busy
	memory   = 1 << 30
	maxBytes = 12 << 20 // of the browser's PNG: 1280 × 800 pixels of noise have 4 MiB
)

// browsers are what can take pictures, the first one that is installed is used: those without a window need a fraction of the time.
var browsers = []string{
	"chromium-headless-shell", "/usr/lib/chromium/chromium-headless-shell", "chrome-headless-shell",
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
}

// NoBrowser is the setting without screenshots.
const NoBrowser = "none"

// Find returns the path of the browser: the operator's setting, or the host's; empty: there is none.
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

// Camera takes pictures of pages with a browser in a sandbox. The browser reaches the hosts of the page's site alone, and at those
// the edge of this machine.
type Camera struct {
	Runner  sandbox.Runner
	Browser string // its path; empty: no pictures are taken
	Dir     string // for temporary files, absolute; made when missing
	Edge    string // host:port of the sites' TLS listener

	turn turn // is held by the one browser that runs
}

// turn is a lock that a context ends the wait for.
type turn struct {
	once sync.Once
	held chan struct{} // holds one element while the turn is taken
}

// take waits for the turn, and returns what gives it back.
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

// Ready reports whether pictures can be taken. A nil camera takes none.
func (c *Camera) Ready() bool {
	return c != nil && c.Browser != "" && c.Runner != nil && c.Edge != ""
}

// redirects is how often a site may send its visitors on to another of its addresses.
const redirects = 5

// shown asks the edge for a page as a visitor without any credential, and returns where it is in the end. It is an error where that is
// no page that everybody sees.
func (c *Camera) shown(ctx context.Context, page string, hosts []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", c.Edge)
			},
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the edge of this machine, whoever signed its certificate
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
	answer, err := ask(http.MethodHead) // which isn't counted as a page view
	if err == nil && (answer.StatusCode == http.StatusMethodNotAllowed || answer.StatusCode == http.StatusNotImplemented ||
		answer.StatusCode == http.StatusNotFound) {
		answer, err = ask(http.MethodGet) // programs that know no HEAD
	}
	if err != nil {
		return "", err
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); answer.StatusCode != http.StatusOK || kind != "text/html" {
		return "", fmt.Errorf("ask for page: status %d, %q", answer.StatusCode, kind)
	}
	return answer.Request.URL.String(), nil
}

// agent is what the browser calls itself.
const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 SlipwayScreenshot/1.0"

// proxyPort is the browser's way out, on the sandbox's own loopback; proxySocket is where it leads.
const (
	proxyPort   = 3128
	proxySocket = "/run/slipway/site.sock"
)

// Take returns a picture of a page as JPEG. Hosts are those of its site, without ports. uid is the site's own.
func (c *Camera) Take(ctx context.Context, uid int, page string, hosts []string) ([]byte, error) {
	if !c.Ready() {
		return nil, errNone
	}
	u, err := url.Parse(page)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("take picture: %q is no address", page)
	}
	give, err := c.turn.take(ctx) // at most wall, for each of the few workers that take pictures
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
			"--ignore-certificate-errors", // the proxy leads to this machine's edge alone, whoever signed its certificate
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

// fonts are what a page is drawn with.
func fonts() (all []sandbox.Bind) {
	for _, dir := range []string{"/etc/fonts", "/etc/chromium", "/etc/chromium.d"} {
		if _, err := os.Stat(dir); err == nil {
			all = append(all, sandbox.Bind{Source: dir, Target: dir})
		}
	}
	return all
}

// encode reads what a browser of strangers' pages has left, draws it anew and returns it as JPEG.
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
