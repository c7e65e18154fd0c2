//go:build browser

package browser

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// view is one way to display a page: color scheme, width and scale.
type view struct {
	name, scheme string
	width        int64
	scale        float64
	rules        string // rules that axe-core checks
}

// Another scheme changes only colors, and another width only sizes, so the other views check fewer rules.
var views = []view{
	{"light", "light", wide, 1, everything},
	{"dark", "dark", wide, 1, `{ type: "rule", values: ["color-contrast"] }`},
	{"phone", "light", phone, 2, `{ type: "rule", values: ["target-size"] }`},
	{"large", "light", large, 1, ""}, // no screenshot; only checks that the page isn't wider than the screen
}

const everything = `{ type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }`

const (
	large  = 2560
	wide   = 1280
	phone  = 390
	height = 860
)

// Marker is the JavaScript variable that the tests' hostile texts try to set.
const Marker = "slipwayWasHere"

// Look checks a page in all views: light, dark and on a phone. The page must not be wider than the screen, axe-core
// must not report a serious problem, and no hostile script may have run. Screenshots are kept if SLIPWAY_SHOTS is set.
// With -short, axe-core checks only the light view.
func (w *Window) Look(name string) {
	w.t.Helper()
	w.browser.taken++
	axe := axeCore(w)
	defer w.Run(w.view(views[0]))
	w.measure(name)
	for _, v := range views {
		w.Run(w.view(v))
		var seen struct {
			Ran     bool
			Wide    float64
			Screen  float64
			Culprit string
		}
		w.Eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => {
			const screen = document.documentElement.clientWidth;
			const beyond = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > screen + 1).pop();
			return { ran: '`+Marker+`' in window, wide: document.documentElement.scrollWidth, screen, culprit: beyond ? beyond.outerHTML.slice(0, 200) : '' };
		})`, &seen)
		if seen.Ran {
			w.t.Errorf("%s: a hostile text ran", name)
		}
		if seen.Wide > math.Max(seen.Screen, float64(v.width)) {
			w.t.Errorf("%s (%s): the page is %.0f wide on a screen of %d: %s", name, v.name, seen.Wide, v.width, seen.Culprit)
		}
		if v.rules == "" {
			continue
		}
		if keepsPictures() {
			w.picture(fmt.Sprintf("%02d-%s--%s.png", w.browser.taken, name, v.name))
		}
		if v == views[0] || !testing.Short() {
			w.axe(axe, name, v)
		}
	}
}

// maxPage limits a page's HTML, in bytes.
const maxPage = 100 << 10

// measure checks the size of a page's HTML, and stores how long the page took to load beside the screenshots. Times
// don't fail a test, because they depend on the machine's load.
func (w *Window) measure(name string) {
	w.t.Helper()
	var m struct {
		Bytes        int
		Answer, Show float64 // milliseconds until the last byte, and until the first paint
	}
	w.Eval(`(() => { const n = performance.getEntriesByType('navigation')[0] ?? {}, p = performance.getEntriesByName('first-contentful-paint')[0];
		return { bytes: n.decodedBodySize ?? 0, answer: (n.responseEnd ?? 0) - (n.requestStart ?? 0), show: p ? p.startTime : 0 }; })()`, &m)
	if m.Bytes > maxPage {
		w.t.Errorf("%s: the page has %d bytes", name, m.Bytes)
	}
	f, err := os.OpenFile(filepath.Join(w.browser.shots, "pages.tsv"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s\t%d\t%.1f\t%.1f\n", name, m.Bytes, m.Answer, m.Show)
		f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// view applies a view to the window.
func (w *Window) view(v view) chromedp.Action {
	return chromedp.Tasks{
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: v.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}),
		emulation.SetDeviceMetricsOverride(v.width, height, v.scale, v.width == phone),
	}
}

// picture stores a screenshot of the whole page, or of the visible part if a dialog is open.
func (w *Window) picture(file string) {
	w.t.Helper()
	var dialog bool // a dialog covers only the visible part
	w.Eval(`document.querySelector(':popover-open') !== null || (scrollTo(0, 0), false)`, &dialog)
	var png []byte
	w.Run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, _, _, _, size, err := page.GetLayoutMetrics().Do(ctx)
		if err != nil {
			return err
		}
		shot := page.CaptureScreenshot().WithOptimizeForSpeed(true)
		if !dialog {
			shot = shot.WithCaptureBeyondViewport(true).WithClip(&page.Viewport{
				Width:  size.Width,
				Height: math.Max(size.Height, height),
				Scale:  1,
			})
		}
		png, err = shot.Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join(w.browser.shots, file), png, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// axe runs axe-core on the page.
func (w *Window) axe(source, name string, v view) {
	w.t.Helper()
	var loaded bool
	w.Eval(`'axe' in window`, &loaded)
	if !loaded {
		w.Eval(source, nil)
	}
	var found []string
	w.Eval(
		`axe.run(document.querySelector(":popover-open") ?? document, { runOnly: `+v.rules+`, resultTypes: ["violations"] }).then((r) => r.violations
		.map((v) => v.impact + " " + v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + ((n.any[0] || n.all[0] || n.none[0] || { message: "" }).message)).slice(0, 3).join(" | ")))`,
		&found,
	)
	for _, f := range found {
		w.t.Errorf("%s (%s): %s", name, v.name, f)
	}
}

// axeVersion is the version of axe-core that npm installs for the tests, unless SLIPWAY_AXE is the path of an
// axe.min.js.
const axeVersion = "4.14.1"

var loadAxe = sync.OnceValues(func() (string, error) {
	file := os.Getenv("SLIPWAY_AXE")
	if file == "" {
		dir, err := os.MkdirTemp("", "slipway-axe-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "axe-core@"+axeVersion)
		npm.Dir = dir
		if out, err := npm.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm install axe-core: %w\n%s", err, out)
		}
		file = filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	}
	text, err := os.ReadFile(file)
	return string(text), err
})

// axeCore returns axe-core's source.
func axeCore(w *Window) string {
	w.t.Helper()
	text, err := loadAxe()
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// Picture stores a screenshot of what a screen of this width shows, as name-WIDTH-SCHEME.png.
func (w *Window) Picture(name string, width int64, scheme string) {
	w.t.Helper()
	tall := map[int64]int64{phone: 844, wide: 800}[width]
	if tall == 0 {
		tall = 1080
	}
	w.PictureTo(filepath.Join(w.browser.shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), width, tall, 1, scheme)
}

// PictureTo writes a screenshot of what a screen of this size shows to a file. scale is the number of pixels per CSS
// pixel.
func (w *Window) PictureTo(file string, width, tall int64, scale float64, scheme string) {
	w.t.Helper()
	w.Run(
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}),
		emulation.SetDeviceMetricsOverride(width, tall, scale, width == phone),
	)
	var png []byte
	w.Eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
	w.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	if err := os.WriteFile(file, png, 0o644); err != nil {
		w.t.Fatal(err)
	}
}
