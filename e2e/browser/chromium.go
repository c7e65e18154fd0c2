//go:build browser

package browser

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
)

// patience limits how long a window waits for a condition. Only a broken program uses it up.
const patience = 10 * time.Minute

// Config configures a browser.
type Config struct {
	Name  string   // of the folder with its screenshots
	Trust []string // SHA-256 of public keys (base64) whose certificates are accepted. Optional.
	QUIC  []string // HOST:PORT of servers to contact over HTTP/3 without an Alt-Svc header. Optional.

	AnyCertificate bool // accept any certificate, for sites whose names aren't known when the browser starts
}

// Browser is one process of Chromium. It runs $SLIPWAY_CHROMIUM if set, and otherwise Debian's package; the headless
// shell is preferred, because it uses a third less processor time.
type Browser struct {
	t     testing.TB
	ctx   context.Context
	shots string
	taken int // number of screenshots so far, which numbers their files
}

// keepsPictures reports whether to keep screenshots. They take a fifth of the time of browser tests.
func keepsPictures() bool { return os.Getenv("SLIPWAY_SHOTS") != "" }

// Shots returns the folder for screenshots: $SLIPWAY_SHOTS, or bin/shots. A relative path is relative to the source
// tree, not the working directory.
func Shots() string {
	dir := cmp.Or(os.Getenv("SLIPWAY_SHOTS"), filepath.Join("bin", "shots"))
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(world.Root(), dir)
	}
	return dir
}

// headless is the executable of Debian's headless Chromium. The command in PATH is a shell script that leaves it
// running when it is killed.
const headless = "/usr/lib/chromium/chromium-headless-shell"

// Path returns the executable that Start runs, or "" to let chromedp find one.
func Path() string {
	shell, _ := exec.LookPath(headless)
	return cmp.Or(os.Getenv("SLIPWAY_CHROMIUM"), shell)
}

// Start starts a browser that is stopped when the test ends.
func Start(t testing.TB, c Config) *Browser {
	t.Helper()
	ctx, stop, err := launch(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return begin(t, ctx, c)
}

// shared is one browser for all tests that run in parallel, because starting a browser takes as long as many of these
// tests.
var shared struct {
	sync.Mutex // guards the following fields
	users      int
	ctx        context.Context
	stop       func()
}

// Share returns a browser that other tests of this program use at the same time. Each test has its own windows and
// cookies, but the clipboard is shared. The browser is stopped after the last test that uses it.
func Share(t testing.TB, name string) *Browser {
	t.Helper()
	c := Config{Name: name}
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		var err error
		if shared.ctx, shared.stop, err = launch(c); err != nil {
			t.Fatal(err)
		}
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		shared.users--
		if shared.users == 0 {
			shared.stop()
		}
	})
	return begin(t, shared.ctx, c)
}

// launches limits the attempts to start Chromium, which sometimes exits immediately when several start at the same
// time.
const launches = 3

// launch starts a process of Chromium.
func launch(c Config) (ctx context.Context, end func(), err error) {
	for range launches {
		if ctx, end, err = launchOnce(c); err == nil {
			break
		}
	}
	return ctx, end, err
}

func launchOnce(c Config) (ctx context.Context, end func(), err error) {
	rules := "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost"
	if len(c.QUIC) > 0 { // otherwise Chromium would try [::1] first, and over QUIC it doesn't try a second address
		rules = "MAP *.localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // where tests run, the kernel often doesn't allow user namespaces
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", rules))
	if len(c.Trust) > 0 {
		opts = append(opts, chromedp.Flag("ignore-certificate-errors-spki-list", strings.Join(c.Trust, ",")))
	}
	if c.AnyCertificate {
		opts = append(opts, chromedp.Flag("ignore-certificate-errors", true))
	}
	if len(c.QUIC) > 0 {
		opts = append(opts, chromedp.Flag("enable-quic", true), chromedp.Flag("origin-to-force-quic-on", strings.Join(c.QUIC, ",")))
	}
	if p := Path(); p != "" {
		opts = append(opts, chromedp.ExecPath(p))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	// chromedp only logs events that it doesn't know. Calls return all other errors.
	ctx, stop2 := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	end = func() { stop2(); stop() }
	if err := chromedp.Run(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start Chromium: %w", err)
	}
	return ctx, end, nil
}

// begin creates the folder for a test's screenshots.
func begin(t testing.TB, ctx context.Context, c Config) *Browser {
	t.Helper()
	b := &Browser{t: t, ctx: ctx, shots: filepath.Join(Shots(), c.Name)}
	if err := os.RemoveAll(b.shots); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.shots, 0o755); err != nil {
		t.Fatal(err)
	}
	if keepsPictures() {
		t.Cleanup(func() {
			if err := writeSheet(Shots()); err != nil {
				t.Error(err)
			}
		})
	}
	return b
}

// Window opens a window without cookies, with address as its Base.
func (b *Browser) Window(address string) *Window {
	b.t.Helper()
	over := cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser)
	jar, err := target.CreateBrowserContext().Do(over)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := target.DisposeBrowserContext(jar).Do(over); err != nil {
			b.t.Errorf("close the windows: %v", err)
		}
	})
	// chromedp.WithNewBrowserContext can't be used: it doesn't request a window, which the first page of a browser
	// context needs.
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(jar).WithNewWindow(true).Do(over)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	b.t.Cleanup(stop)
	w := &Window{t: b.t, ctx: ctx, browser: b, Base: strings.TrimSuffix(address, "/"), hosts: map[string]bool{}, expected: map[int]int{}, refused: map[string]int{}}
	w.Allow(w.Base)
	w.watch()
	permit := browser.GrantPermissions([]browser.PermissionType{
		browser.PermissionTypeClipboardReadWrite,
		browser.PermissionTypeClipboardSanitizedWrite,
	}).WithBrowserContextID(jar)
	if err := permit.Do(over); err != nil {
		b.t.Fatal(err)
	}
	w.Run(network.Enable(), audits.Enable(), page.Enable(), emulation.SetFocusEmulationEnabled(true),
		chromedp.EmulateViewport(wide, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}))
	return w
}
