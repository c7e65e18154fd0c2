//go:build browser

package dashboard

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/sites"
)

// An application's overview shows its process, the last day's requests, latency, memory and errors with a shared
// crosshair for pointer and keyboard, and a timeline of events.
func TestBrowserCockpit(t *testing.T) {
	t.Parallel()
	now := db.Now()
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{
			process: func(site.Site) sites.Process {
				return sites.Process{State: "running", Since: now.Add(-time.Hour), Memory: 96 << 20, Restarts: 2}
			},
			figures: func() (list []sites.ProgramFigures, step time.Duration, err error) {
				for i := range 96 {
					list = append(list, sites.ProgramFigures{
						At: now.Add(-time.Duration(95-i) * 15 * time.Minute), P95: time.Duration(20+i*7919%60) * time.Millisecond, Memory: int64(64+i%30) << 20,
					})
				}
				return list, 15 * time.Minute, nil
			},
			log: func(_ site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
				if f.Stream != "system" {
					return nil, nil
				}
				return []sites.ProgramLine{
					{N: 1, At: now.Add(-2 * time.Hour), Level: "warn", Stream: "system", Message: "The process exited: exit code 1"},
					{N: 2, At: now.Add(-2 * time.Hour), Level: "warn", Stream: "system", Message: "GET / was answered with 502: hidden"},
				}, nil
			},
		}
	})
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	w.program(s, w.deployment(s))
	w.visited(s, 900, 24*time.Hour)
	if err := w.dash.Traffic.Add(t.Context(), traffic.Batch{Since: time.Now()}, map[site.ID]traffic.Counts{s.ID: {OK: 40, ServerErrors: 3}}); err != nil {
		t.Fatal(err)
	}
	w.as(ada).post("/sites/"+string(s.ID)+"/domains", "domain", "shop.example.com")
	b := w.window("cockpit", w.srv.URL)
	signIn(b, ada)
	b.Go("/sites/" + string(s.ID))
	b.Sees("@overview-process", "Running", "2 restarts")
	b.Sees("@gauge-memory", "96.0 MiB", "Peak 96.0 MiB")
	b.Sees("@gauge-p95", "ms")
	b.Sees("@gauge-errors", "of requests")
	b.Sees("@timeline", "Deployed", "Application stopped", "The process exited: exit code 1", "Domain added", "shop.example.com")
	b.Until("a failed request is a crash", `!document.querySelector('[data-test="timeline"]').innerText.includes('hidden')`)
	b.Look("overview")

	const gauge = `document.querySelector('[data-test="gauge-requests"] .gauge-plot')`
	b.Until("the gauges can't be reached by keys", gauge+`.tabIndex === 0 && `+gauge+`.getAttribute('role') === 'slider'`)
	b.Eval(`void `+gauge+`.focus()`, nil)
	b.Until("the crosshair isn't in every gauge", `document.querySelectorAll('.gauge .gauge-cross').length === 4`)
	note := `document.querySelector('[data-test="gauge-memory"] .gauge-note').innerText`
	var last string
	b.Eval(note, &last)
	b.Look("overview-crosshair")
	w.as(ada).post("/sites/"+string(s.ID)+"/domains", "domain", "other.example.com")
	b.Sees("@timeline", "other.example.com") // the overview was replaced: the focus stays
	b.Keys("ArrowLeft", "ArrowLeft")
	b.Until("the keys don't move the crosshair", note+` !== '`+last+`' && /\d\d:\d\d.* · .*MiB/.test(`+note+`)`)
	b.Eval(`void document.activeElement.blur()`, nil)
	b.Sees("@gauge-memory", "Peak")
	b.Until("the crosshair stays", `!document.querySelector('.gauge-cross')`)
	b.Eval(`(() => {
		const r = `+gauge+`.getBoundingClientRect(), n = parseInt(document.querySelector('[data-gauges]').dataset.marks);
		const x = r.left + r.width * n / (`+gauge+`.dataset.words.split('|').length - 1);
		`+gauge+`.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: x, clientY: r.top + 5 }));
	})()`, nil)
	b.Sees("@gauge-memory", "Deployed: ")
}
