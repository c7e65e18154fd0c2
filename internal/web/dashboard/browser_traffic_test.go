//go:build browser

package dashboard

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"
	"time"

	"slipway/internal/deploy/thumbnail"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
)

// drawn is a picture that looks like something.
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

// publishPage gives a site the thumbnail of a page with these files.
func (w *world) publishPage(s site.Site, page string, files map[string][]byte) {
	w.t.Helper()
	p := thumbnail.Of(w.t.Context(), thumbnail.Files{
		Page: func(int64) []byte { return []byte(page) },
		File: func(at string, _ int64) []byte { return files[at] },
	})
	id := fmt.Sprintf("%064x", []byte(s.ID)[len(s.ID)-8:])
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(w.t.Context(), `UPDATE sites SET live_release = $1 WHERE id = $2`, id, s.ID); err != nil {
			return err
		}
		_, err := tx.Exec(
			w.t.Context(),
			`INSERT INTO thumbnails (release, title, text, color, icon, image, made_at) VALUES ($1, $2, $3, $4, $5, $6, 1)`,
			id, p.Title, p.Text, p.Color,
			base64.StdEncoding.EncodeToString(p.Icon),
			base64.StdEncoding.EncodeToString(p.Image),
		)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// visited gives a site visits that come and go with the hours of the day.
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
		n := int64(perHour * max(day, .05) * float64(step) / float64(time.Hour)) // somebody comes by night, too
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

// The home page and a site's traffic; figures grow without a reload, and a
// table has them too.
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
		html  string
		files map[string][]byte
		busy  float64
	}{
		{
			`<title>Harbor Journal: news from the quay</title><meta name=description content="Tides, ships and people. Printed every Friday, read all week."><link rel=icon href=/i.png sizes=64x64>`,
			map[string][]byte{"i.png": drawn(64, 64, teal, night)},
			4200,
		},
		{
			`<title>Acme Docs</title><meta property=og:image content=/og.png><link rel=icon href=/i.png>`,
			map[string][]byte{"og.png": drawn(1200, 630, night, rust), "i.png": drawn(64, 64, rust, gold)},
			900,
		},
		{
			`<title>Nordlicht Shop</title><meta name=description content="Lampen, Leuchten und Laternen aus Flensburg."><meta name=theme-color content="#14532d">`,
			nil,
			60,
		},
		{`<h1>All systems operational</h1><link rel=icon href=/i.png>`, map[string][]byte{"i.png": drawn(32, 32, gold, rust)}, 12},
		{
			`<title>` + "Ein sehr langer Titel, der ganz bestimmt nicht in zwei Zeilen passt, weil er einfach immer weitergeht" + `</title><meta property=og:image content=/og.png>`,
			map[string][]byte{"og.png": drawn(1200, 800, gold, teal)},
			0,
		},
	}
	var live []site.Site
	for _, s := range list {
		if s.LiveRelease == "" {
			continue
		}
		p := pages[len(live)%len(pages)]
		w.publishPage(s, p.html, p.files)
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
	b.Sees("#traffic-table[open]") // what was opened stays so
	quiet := w.site(u, "Quiet")
	b.Go("/sites/" + string(quiet.ID) + "/traffic")
	b.Look("site-empty")
}
