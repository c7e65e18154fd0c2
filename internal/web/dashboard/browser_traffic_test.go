//go:build browser

package dashboard

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"
	"time"

	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
)

// drawn returns an image with a pattern of two colors.
func drawn(w, h int, a, b color.NRGBA) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			f := float64(x)/float64(w)*.6 + float64(y)/float64(h)*.4
			mix := func(p, q uint8) uint8 { return uint8(float64(p)*(1-f) + float64(q)*f) }
			c := color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
			dx, dy := float64(x-w/2), float64(y-h/2)
			if r := math.Hypot(dx, dy) / float64(min(w, h)); r > .22 && r < .3 {
				c = color.NRGBA{255, 255, 255, 255}
			}
			img.SetNRGBA(x, y, c)
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// visited gives a site visits that vary with the time of day.
func (w *world) visited(s site.Site, perHour float64, back time.Duration) {
	w.t.Helper()
	now := time.Now()
	for ago, step := back, 15*time.Minute; ago >= 0; ago -= step {
		step = 15 * time.Minute
		if ago > 30*time.Hour {
			step = 2 * time.Hour
		}
		at := now.Add(-ago)
		day := 1 + .8*math.Sin(2*math.Pi*(float64(at.Unix()%86400)/86400-.3)) + .25*math.Sin(float64(at.Unix()/900*7919%97))
		n := int64(perHour * max(day, .05) * float64(step) / float64(time.Hour)) // some visits at night, too
		if n <= 0 {
			continue
		}
		c := traffic.Counts{OK: n * 7 / 10, Redirected: n * 2 / 10, ClientErrors: n / 14, Pages: n / 5, Bytes: n * 48_000}
		if at.Hour() == 4 {
			c.ServerErrors = n / 9
		}
		if err := w.dash.Traffic.Add(w.t.Context(), traffic.Batch{Since: at}, map[site.ID]traffic.Counts{s.ID: c}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The figures on the home page and on a site's traffic page update without a reload and are also available as a table.
func TestBrowserTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	w.fill(u.Email, 9)
	list, _, err := w.dash.Sites.List(t.Context(), u.Owner, site.Filter{Page: 1, Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	teal, rust, night, gold := color.NRGBA{
		12,
		126,
		120,
		255,
	}, color.NRGBA{196, 78, 42, 255}, color.NRGBA{26, 32, 74, 255}, color.NRGBA{240, 180, 60, 255}
	pages := []struct {
		icon []byte
		busy float64
	}{{drawn(64, 64, teal, night), 4200}, {drawn(64, 64, rust, gold), 900}, {nil, 60}, {drawn(32, 32, gold, rust), 12}, {nil, 0}}
	var live []site.Site
	for _, s := range list {
		if s.LiveRelease == "" {
			continue
		}
		p := pages[len(live)%len(pages)]
		w.withIcon(s, map[string]string{"i.png": string(p.icon)})
		w.visited(s, p.busy, 26*time.Hour)
		live = append(live, s)
	}
	b := w.window("traffic", w.srv.URL)
	signIn(b, u.Email)
	b.Look("home-pictures")
	s := live[0]
	w.visited(s, 3000, 32*24*time.Hour)
	w.summed()
	at := "/sites/" + string(s.ID)
	b.Go(at)
	b.Look("site-overview")
	b.Go(at + "/traffic")
	b.Look("site-24h")
	b.Go(at + "/traffic?span=30d")
	b.Click("#traffic-table summary")
	b.Look("site-table")
	before := b.Text("@requests")
	w.visited(s, 1_000_000, 0)
	b.Until("the figures stay", `document.querySelector('[data-test="requests"]').innerText !== `+fmt.Sprintf("%q", before))
	b.Sees("#traffic-table[open]") // an opened table stays open
	quiet := w.site(u, "Quiet")
	b.Go("/sites/" + string(quiet.ID) + "/traffic")
	b.Look("site-empty")
}
