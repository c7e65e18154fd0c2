package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
)

func (w *world) visit(s site.Site, ago time.Duration, c traffic.Counts) {
	w.t.Helper()
	if err := w.dash.Traffic.Add(w.t.Context(), traffic.Batch{
		Since: time.Now().Add(-ago),
	}, map[string]traffic.Counts{string(s.ID): c}); err != nil {
		w.t.Fatal(err)
	}
}

// summed lets the job sum up what is over, as it does every hour.
func (w *world) summed() {
	w.t.Helper()
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{"default": 1},
		Poll:   10 * time.Millisecond,
	})
	w.dash.Traffic.Work(jobs)
	if err := w.dash.Traffic.Schedule(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); jobs.Run(ctx) }()
	for done := false; !done; {
		if err := w.db.QueryRow(
			ctx,
			`SELECT EXISTS (SELECT 1 FROM jobs WHERE kind = 'traffic.sum' AND state = 'ready' AND run_at > $1)`,
			db.Now(),
		).Scan(&done); err != nil {
			w.t.Fatal(err)
		}
	}
	stop()
	<-ended
}

func TestTrafficPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	s := w.site(ada, "Blog")
	b := w.as("ada@example.test")
	at := "/sites/" + string(s.ID)
	if p := b.get(at + "/traffic"); !p.has("empty") || !strings.Contains(p.body, "once the site is live") {
		t.Error("before it is online:", p)
	}
	w.activate(s)
	if p := b.get(at + "/traffic"); !strings.Contains(
		p.body,
		"your visit appears here",
	) || !strings.Contains(p.body, "No visitors in the last 24 hours") {
		t.Error("before the first visit:", p)
	}
	if p := b.get(at); !strings.Contains(p.body, "No visitors in the last 24 hours") {
		t.Error("the overview before the first visit:", p)
	}
	w.visit(s, 2*time.Hour, traffic.Counts{OK: 1200, Redirected: 3, ServerErrors: 1, Pages: 400, Bytes: 5 << 20})
	w.visit(s, 3*24*time.Hour, traffic.Counts{OK: 1, Pages: 1})
	w.summed()
	p := b.get(at + "/traffic")
	for _, want := range []string{
		`data-test="requests">1,204<`, `data-test="pages">400<`, "5.0 MiB", "under 0.1% of requests",
		`aria-label="Requests over time by status: 1,204 requests in the last 24 hours, of them redirects and unchanged 3, not found and refused 0 and failed 1"`,
		": 1,204 requests, 3 3xx, 1 5xx</title>", `class="s-server"`, "traffic?since=24h&amp;step=15m",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(p.body, `<path class="s-client"`) || p.has("empty") {
		t.Error("the page shows what is not there")
	}
	details := traffic.Details{
		Site:  string(s.ID),
		Names: map[traffic.Name]int64{{Kind: traffic.Missing, Name: "/<b>gone"}: 41},
		Lines: []traffic.Line{{Method: "GET", Path: "/<b>gone", Status: 404}},
	}
	if err := w.dash.Traffic.Add(t.Context(), traffic.Batch{Since: time.Now()}, nil, details); err != nil {
		t.Fatal(err)
	}
	if p := b.get(at + "/traffic"); !strings.Contains(
		p.body,
		`<code>/&lt;b&gt;gone</code></th><td class="num">41<`,
	) || p.has("top-countries") || !p.has("access-log") {
		t.Error("the page lacks what was not found")
	}
	if p := b.get(at + "/traffic/log"); p.status != 200 || !strings.Contains(
		p.body,
		`"path":"/<b>gone"`,
	) || !strings.Contains(p.header.Get("Content-Disposition"), "attachment") {
		t.Error("the access log:", p.status, p.body)
	}
	if n := strings.Count(p.body, "<g><title>"); n != 3*96 {
		t.Errorf("%d bars", n)
	}
	for span, want := range map[string]string{"7d": "1,205", "30d": "1,205", "nonsense": "1,204", "24h": "1,204", "400d": "1,205"} {
		if p := b.get(at + "/traffic?span=" + span); p.status != 200 || !strings.Contains(
			p.body,
			`data-test="requests">`+want+"<",
		) || len(p.body) > 100_000 {
			t.Errorf("%s: %d, %d bytes", span, p.status, len(p.body))
		}
	}
	if p := b.get(at + "?traffic=7d"); !strings.Contains(
		p.body,
		"<b>1,205</b> requests",
	) || !strings.Contains(p.body, "/follow?traffic=7d") {
		t.Error("the overview:", p)
	}
	if p := w.as("eve@example.test").get(at + "/traffic"); p.status != 404 {
		t.Error("a stranger:", p)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := b.stream(ctx, at+"/traffic/follow?span=7d")
	if e := next(); !strings.Contains(e, ">1,205<") {
		t.Fatalf("the live part: %.300s", e)
	}
	w.visit(s, 0, traffic.Counts{OK: 5})
	if e := next(); !strings.Contains(e, ">1,210<") {
		t.Fatalf("the live part after a visit: %.300s", e)
	}
}

// A full page of the busiest site is a light one, for every stretch of time.
func TestTrafficPageWeight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site(w.user("ada@example.test", false), "Blog")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for span, n := range map[time.Duration]int{5 * time.Minute: 600, time.Hour: 800, 24 * time.Hour: 401} {
			for at := time.Now().Truncate(span); n > 0; n, at = n-1, at.Add(-span) {
				_, err := tx.Exec(
					t.Context(),
					`INSERT INTO traffic (site_id, span, at, ok, redirected, client_errors, server_errors, pages, bytes)
					VALUES ($1, $2, $3, 12345678, 2345678, 345678, 45678, 5678901, 8589934592)`,
					s.ID,
					span.Milliseconds(),
					db.At(at),
				)
				if err != nil {
					return err
				}
			}
		}
		return nil
	}))
	b := w.as("ada@example.test")
	for _, on := range stretches {
		p := b.get("/sites/" + string(s.ID) + "/traffic?span=" + on.Name)
		if bars := strings.Count(p.body, "<g><title>"); p.status != 200 || len(p.body) > 100_000 || bars < 3*30 || bars > 3*96 {
			t.Errorf("%s: %d, %d bytes, %d bars", on.Name, p.status, len(p.body), bars)
		}
	}
}

// A week holds what its days do, and begins on a Monday unless it is the first.
func TestWeekly(t *testing.T) {
	t.Parallel()
	begin := db.At(time.Date(2027, 3, 12, 0, 0, 0, 0, time.UTC)) // a Friday
	s := traffic.Series{Step: traffic.Day}
	for i := range 17 {
		s.Points = append(s.Points, traffic.Point{
			At:     begin.Add(time.Duration(i) * 24 * time.Hour),
			Counts: traffic.Counts{OK: 1, Bytes: int64(i)},
		})
	}
	var got []string
	for _, p := range weekly(s).Points {
		got = append(got, fmt.Sprintf("%s: %d", whenWords(p.At, week), p.OK))
	}
	if want := "Week from 12 March 2027: 3, Week from 15 March 2027: 7, Week from 22 March 2027: 7"; strings.Join(
		got,
		", ",
	) != want || weekly(s).Total() != s.Total() {
		t.Errorf("%q, %+v", got, weekly(s).Total())
	}
	if n := len(weekly(traffic.Series{}).Points); n != 0 {
		t.Errorf("%d weeks of no days", n)
	}
}

// Cards show what a site looks like and how its day was, and only its owner gets the
// pictures.
func TestCards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	blog, plain := w.site(ada, "Blog"), w.site(ada, "Plain one")
	w.activate(blog)
	id := w.withThumbnail(blog)
	w.visit(blog, time.Hour, traffic.Counts{OK: 1200, Redirected: 4})
	b := w.as("ada@example.test")
	p := b.get("/")
	at := "/sites/" + string(blog.ID) + "/pictures/" + id
	for _, want := range []string{
		`aria-label="1,204 requests in the last 24 hours"`,
		"<b>1.2k</b> requests in 24 h",
		`src="` + at + `.png"`,
		`fill="#2456d6"`, "&lt;/div&gt;&lt;img src=x onerror=alert(1)&gt; title", "What it says",
		"No requests in 24 h", "No live deployment", ">PO</text>",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the cards lack %q", want)
		}
	}
	if strings.Count(p.body, `class="spark"`) != 1 || strings.Contains(p.body, ".jpg") {
		t.Error("the cards show what is not there")
	}
	if p := b.get("/sites/" + string(blog.ID)); !strings.Contains(p.body, `src="`+at+`.png"`) {
		t.Error("the site's own page lacks its icon")
	}

	icon := b.get(at + ".png")
	for name, want := range map[string]string{
		"Content-Type":                 "image/png",
		"X-Content-Type-Options":       "nosniff",
		"Cache-Control":                "private, max-age=31536000, immutable",
		"Content-Security-Policy":      "default-src 'none'; sandbox; frame-ancestors 'none'",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := icon.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if icon.status != 200 || !strings.HasPrefix(icon.body, "\x89PNG") {
		t.Error(icon.status)
	}
	other := fmt.Sprintf("/sites/%s/pictures/%s", plain.ID, id)
	for who, b := range map[string]*browser{"its owner": b, "a stranger": w.as("eve@example.test")} {
		for _, path := range []string{
			at + ".jpg",
			at + ".svg",
			at,
			at[:len(at)-1] + "z.png",
			other + ".png",
			"/sites/" + string(blog.ID) + "/pictures/.png",
		} {
			if p := b.get(path); p.status != 404 {
				t.Errorf("%s for %s: %d", path, who, p.status)
			}
		}
	}
	if p := w.as("eve@example.test").get(at + ".png"); p.status != 404 {
		t.Error("a stranger gets the icon")
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][2]string{
		0:              {"0", "0"},
		999:            {"999", "999"},
		1000:           {"1,000", "1k"},
		1204:           {"1,204", "1.2k"},
		99_949:         {"99,949", "99.9k"},
		100_000:        {"100,000", "100k"},
		999_999:        {"999,999", "1M"},
		5_600_000:      {"5,600,000", "5.6M"},
		12_345_678_901: {"12,345,678,901", "12.3G"},
	} {
		if got := [2]string{thousands(n), rough(n)}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]int64{0: 1, 1: 1, 3: 3, 7: 8, 10: 10, 11: 12, 96: 100, 101: 120, 3_570: 4_000, 81_000: 100_000} {
		if got := roundTop(n); got != want {
			t.Errorf("the axis above %d ends at %d, want %d", n, got, want)
		}
	}
	if got := roundBytes(170 << 20); got != 200<<20 {
		t.Errorf("the axis above 170 MiB ends at %s", bytesWord(got))
	}
	for n := int64(1); n < 1<<60; n = n*3 + 1 {
		if roundTop(n) < n || roundBytes(n) < n {
			t.Errorf("%d is above its axis", n)
		}
	}
}

// Whatever was counted, no bar leaves the plot and every number is one.
func TestPlot(t *testing.T) {
	t.Parallel()
	now := db.At(time.Date(2027, 3, 14, 0, 0, 0, 0, time.UTC))
	for _, n := range []int{1, 30, 400} {
		s := traffic.Series{Step: traffic.Day}
		for i := range n {
			s.Points = append(s.Points, traffic.Point{
				At:     now.Add(time.Duration(i-n) * 24 * time.Hour),
				Counts: traffic.Counts{OK: int64(i) << 40, ServerErrors: 1, Bytes: 1<<62 + int64(i)},
			})
		}
		for _, p := range []plot{requestsPlot(s, stretches[4]), pagesPlot(s, stretches[4]), bytesPlot(s, stretches[4])} {
			for _, bad := range []string{"NaN", "Inf", `"-`, " -", "e+", "e-"} {
				if strings.Contains(string(p.Bars+p.Days), bad) {
					t.Errorf("%s of %d holds %s", p.ID, n, bad)
				}
			}
		}
	}
	p := requestsPlot(traffic.Series{
		Step:   traffic.Day,
		Points: []traffic.Point{{At: now, Counts: traffic.Counts{OK: 50, ClientErrors: 50}}},
	}, stretches[2])
	for _, want := range []string{
		`<path class="s-ok" d="M0.08 500h.84v500h-.84z"/>`,
		`<path class="s-client" d="M0.08 0h.84v500h-.84z"/>`,
		"<title>Sun 14 March 2027: 100 requests, 50 4xx</title>",
	} {
		if !strings.Contains(string(p.Bars), want) {
			t.Errorf("%s lacks %s", p.Bars, want)
		}
	}
}
