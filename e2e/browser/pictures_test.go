//go:build browser

package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
)

// journal is the build program of the site in the README's screenshots.
const journal = `console.log('Reading 42 articles')
await pass('articles')
console.log('Rendering 58 pages')
console.log('Optimizing 31 images')
await pass('images')
console.log('Built in 2.4 s')
mkdirSync('dist', { recursive: true })
writeFileSync('dist/index.html', '<!doctype html><html lang="en"><meta charset="utf-8"><title>Harbor Journal</title><link rel="icon" href="data:,">' +
  '<style>body{margin:0;font:18px/1.6 Georgia,serif;color:#1b2733;background:#f6f2ea}header{padding:5rem 8vw 4rem;background:#173a52;color:#f6f2ea}h1{margin:0;font-size:4rem}main{display:grid;grid-template-columns:repeat(3,1fr);gap:2rem;padding:3rem 8vw}h2{margin:0;font-size:1.4rem}a{color:inherit}</style>' +
  '<header><h1>Harbor Journal</h1><p>Stories from the waterfront, every Thursday.</p></header><main>' +
  '<article><h2>The last lighthouse keeper</h2><p>Forty years of fog, radio and very good coffee.</p></article>' +
  '<article><h2>Wooden boats, new hands</h2><p>A yard where apprentices outnumber the masters.</p></article>' +
  '<article><h2>What the tide brings in</h2><p>A week with the people who keep our beaches clean.</p></article></main>')
for (const name of ['about', 'archive', 'lighthouse', 'boats']) writeFileSync('dist/' + name + '.html', '<!doctype html><title>' + name + '</title><h1>' + name + '</h1>')
`

// The README's screenshots can be taken from the current program. With SLIPWAY_PICTURES=docs/images (make pictures),
// they are stored there.
func TestPictures(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--git-host", "github.com="+w.Git.URL)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t}
	h.chromium = Start(t, Config{Name: "pictures", Trust: h.trust([]string{"harbor-journal"})})
	p := newPictures(h)
	live := "https://harbor-journal.localhost:" + h.port() + "/"
	p.Allow(live)
	h.commit("acme/harbor-journal", "Publish the autumn issue", h.project(journal))

	p.Run(emulation.SetDeviceMetricsOverride(1200, 750, 1, false))
	p.Go(h.setupLink())
	p.Type("#f-email", "ada@example.com")
	p.Type("#f-password", password)
	p.Press("@submit")
	p.Press("@empty a.primary")
	p.Type("#f-repository", "github.com/acme/harbor-journal")
	p.frame(120)
	p.Press("@continue")
	p.Sees("@plan", "npm run build", "dist")
	p.frame(180)
	p.Press("@create")
	p.Sees("@log", "Reading 42 articles")
	p.frame(120)
	h.open("articles")
	p.Sees("@log", "Optimizing 31 images")
	p.frame(120)
	h.open("images")
	p.Sees("@deployment @status-success")
	p.frame(200)
	deployment := p.Path()
	p.Press("@live-link")
	p.Sees("h1", "Harbor Journal")
	p.frame(300)
	p.writeFrames("deployment.gif")

	client, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for i := range 240 {
		path := []string{"", "", "", "about", "archive", "lighthouse", "lighthouse", "boats"}[i%8]
		a, err := w.Site(t.Context(), client, world.Request{Method: http.MethodGet, URL: live + path})
		if err != nil || a.Status != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, a.Status, err)
		}
	}
	p.Run(emulation.SetDeviceMetricsOverride(1280, 800, 1.5, false))
	for name, path := range map[string]string{"log": deployment, "docs": "/docs/deployments"} {
		p.Go(path)
		p.Sees("main")
		p.both(name)
	}
}

// The screenshots in examples/README.md show the deployed examples.
func TestExamplePictures(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_PICTURES") == "" {
		t.Skip("make pictures takes them: npm and WordPress make it long, and other tests deploy each example")
	}
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	flags, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	core := filepath.Join(w.Dir, "core")
	if err := world.DebianWordPress(core, "6.1.90"); err != nil {
		t.Fatal(err)
	}
	w.Flags = append(append(w.Flags, flags...), "--wordpress-source", core)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t}
	h.chromium = Start(t, Config{Name: "examples", AnyCertificate: true})
	p := newPictures(h)
	p.Run(emulation.SetDeviceMetricsOverride(960, 600, 1, false))
	for name, shows := range map[string]string{
		"hello": "", "astro": "ships in the harbor", "next": "enters the harbor", "express": "Arrival number", "php": "answered", "wordpress-theme": "News from the harbor",
		"terraform": "made by Terraform", "github-actions": "deployed by a workflow",
	} {
		kind := "static"
		if name == "wordpress-theme" {
			kind = "wordpress"
		}
		dir := filepath.Join(world.Root(), "examples", name)
		switch name {
		case "terraform":
			dir = filepath.Join(dir, "site")
		case "github-actions":
			to := t.TempDir()
			build := exec.Command("sh", filepath.Join(dir, "build.sh"))
			build.Dir = to
			if err := errors.Join(os.CopyFS(to, os.DirFS(dir)), build.Run()); err != nil {
				t.Fatal(err)
			}
			dir = filepath.Join(to, "dist")
		}
		if _, err := h.Git.Commit("acme/"+name, "main", dir, "first"); err != nil {
			t.Fatal(err)
		}
		var made struct{ Data struct{ ID, URL string } }
		site := map[string]any{"name": name, "type": kind, "repository": "git.test/acme/" + name}
		if err := h.Call(t.Context(), key, "POST", "/sites", site, &made); err != nil {
			t.Fatal(err)
		}
		if name == "express" { // as its README says
			if err := h.Call(t.Context(), key, "POST", "/sites/"+made.Data.ID+"/databases", map[string]any{"engine": "mariadb"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		browser, err := w.Browser()
		if err != nil {
			t.Fatal(err)
		}
		restarted := false
		h.until(name, func() (bool, error) {
			a, err := world.Read(browser.Get(made.Data.URL))
			if name == "express" && !restarted && a.Status == http.StatusOK {
				restarted = h.Call(t.Context(), key, "POST", "/sites/"+made.Data.ID+"/restart", nil, nil) == nil
			}
			return err == nil && a.Status == http.StatusOK && strings.Contains(string(a.Body), shows), fmt.Errorf("%d %.300s: %w", a.Status, a.Body, err)
		})
		p.Allow(made.Data.URL)
		p.Go(made.Data.URL)
		p.write("example-"+name+".png", p.screen())
	}
}

// pictures takes the README's screenshots.
type pictures struct {
	*Window
	t      *testing.T
	dir    string
	frames []image.Image
	delays []int // hundredths of a second
}

func newPictures(h *harness) *pictures {
	p := &pictures{Window: h.window(), t: h.t, dir: h.chromium.shots}
	if dir := os.Getenv("SLIPWAY_PICTURES"); dir != "" {
		p.dir = dir
		if !filepath.IsAbs(dir) {
			p.dir = filepath.Join(world.Root(), dir)
		}
	}
	return p
}

func (p *pictures) screen() []byte {
	p.t.Helper()
	var out []byte
	p.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		out, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	return out
}

// both writes a screenshot in the light and in the dark theme.
func (p *pictures) both(name string) {
	p.t.Helper()
	for scheme, suffix := range map[string]string{"light": "", "dark": "-dark"} {
		p.Run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}))
		p.Eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
		p.write(name+suffix+".png", p.screen())
	}
}

func (p *pictures) write(name string, content []byte) {
	p.t.Helper()
	if len(content) > 1<<20 {
		p.t.Errorf("%s has %d bytes", name, len(content))
	}
	if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// frame adds a frame to the animation, shown for the given time in hundredths of a second.
func (p *pictures) frame(hundredths int) {
	p.t.Helper()
	img, err := png.Decode(bytes.NewReader(p.screen()))
	if err != nil {
		p.t.Fatal(err)
	}
	p.frames, p.delays = append(p.frames, img), append(p.delays, hundredths)
}

func (p *pictures) writeFrames(name string) {
	p.t.Helper()
	colors := commonColors(p.frames)
	var out gif.GIF
	nearest := map[color.RGBA]uint8{}
	for i, f := range p.frames {
		to := image.NewPaletted(f.Bounds(), colors)
		for y := f.Bounds().Min.Y; y < f.Bounds().Max.Y; y++ {
			for x := f.Bounds().Min.X; x < f.Bounds().Max.X; x++ {
				c := color.RGBAModel.Convert(f.At(x, y)).(color.RGBA)
				n, ok := nearest[c]
				if !ok {
					n = uint8(colors.Index(c))
					nearest[c] = n
				}
				to.SetColorIndex(x, y, n)
			}
		}
		out.Image, out.Delay = append(out.Image, to), append(out.Delay, p.delays[i])
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &out); err != nil {
		p.t.Fatal(fmt.Errorf("encode %s: %w", name, err))
	}
	p.write(name, b.Bytes())
}

// commonColors returns the 256 most frequent colors. Pages have few colors, and blended ones are close to one of these.
func commonColors(frames []image.Image) color.Palette {
	count := map[color.RGBA]int{}
	for _, f := range frames {
		for y := f.Bounds().Min.Y; y < f.Bounds().Max.Y; y++ {
			for x := f.Bounds().Min.X; x < f.Bounds().Max.X; x++ {
				count[color.RGBAModel.Convert(f.At(x, y)).(color.RGBA)]++
			}
		}
	}
	var all []color.RGBA
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return count[b] - count[a] })
	var out color.Palette
	for _, c := range all[:min(len(all), 256)] {
		out = append(out, c)
	}
	return out
}
