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

// patience is how long a window waits for what must come; only a broken program uses it up.
const patience = 10 * time.Minute

// Config says what a browser is for.
type Config struct {
	Name  string   // of the folder with its pictures
	Trust []string // SHA-256 of public keys (base64) that certificates may come from. Optional.
	QUIC  []string // HOST:PORT of those asked over HTTP/3 without having offered it. Optional.

	AnyCertificate bool // of sites whose names aren't known yet when it starts
}

// Browser is one process of Chromium: what SLIPWAY_CHROMIUM names, or Debian's package, of two the one
// that has no windows of its own, which takes two thirds of the processor time.
type Browser struct {
	t     testing.TB
	ctx   context.Context
	shots string
	taken int // pictures so far, to name them in the order of the story
}

// keepsPictures reports whether somebody wants to look at the pages: pictures are a fifth of what browser tests cost.
func keepsPictures() bool { return os.Getenv("SLIPWAY_SHOTS") != "" }

// Shots is the folder of the pictures: SLIPWAY_SHOTS, or bin/shots. A relative one is below
// the sources, wherever the tests run.
func Shots() string {
	dir := cmp.Or(os.Getenv("SLIPWAY_SHOTS"), filepath.Join("bin", "shots"))
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(world.Root(), dir)
	}
	return dir
}

// headless is Debian's browser without windows itself: what is in PATH is a shell that starts it and, killed, leaves it running.
const headless = "/usr/lib/chromium/chromium-headless-shell"

// Path is the program that Start starts; empty: what chromedp finds.
func Path() string {
	shell, _ := exec.LookPath(headless)
	return cmp.Or(os.Getenv("SLIPWAY_CHROMIUM"), shell)
}

// Start starts a browser that ends with the test.
func Start(t testing.TB, c Config) *Browser {
	t.Helper()
	ctx, stop, err := launch(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return begin(t, ctx, c)
}

// shared is the browser of the tests that run side by side: starting one takes as long as what many of them do with it.
var shared struct {
	sync.Mutex // guards all below
	users      int
	ctx        context.Context
	stop       func()
}

// Share returns a browser that other tests of this program use at the same time, each with windows and cookies of its own; it
// ends with the last of them. They have one clipboard.
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

// launches is how many times Chromium may be started: now and then it ends at once, by itself, where several start at the same time.
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
	if len(c.QUIC) > 0 { // it would ask [::1] first, and over QUIC nobody else then
		rules = "MAP *.localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // the kernel often has no user namespaces for it where tests run
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
	// What chromedp has to say is about events that it doesn't know; all else is an error of a call.
	ctx, stop2 := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	end = func() { stop2(); stop() }
	if err := chromedp.Run(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start Chromium: %w", err)
	}
	return ctx, end, nil
}

// begin makes the folder of a test's pictures.
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

// Window opens a window with no cookies at all, on the page that address names.
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
	// Not chromedp.WithNewBrowserContext: a first page wants a window, which that doesn't ask for.
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
