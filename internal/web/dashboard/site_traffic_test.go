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
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

func (w *world) visit(s site.Site, ago time.Duration, c traffic.Counts) {
	w.t.Helper()
	if err := w.dash.Traffic.Add(w.t.Context(), traffic.Batch{
		Since: time.Now().Add(-ago),
	}, map[site.ID]traffic.Counts{s.ID: c}); err != nil {
		w.t.Fatal(err)
	}
}

// summed runs the hourly job that aggregates traffic.
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
		t.Error("the page shows figures without traffic")
	}
	details := traffic.Details{
		Site:  s.ID,
		Names: map[visit.Name]int64{{Kind: visit.Missing, Name: "/<b>gone"}: 41},
		Lines: []visit.Line{{Method: "GET", Path: "/<b>gone", Status: 404}},
	}
	if err := w.dash.Traffic.Add(t.Context(), traffic.Batch{Since: time.Now()}, nil, details); err != nil {
		t.Fatal(err)
	}
	if p := b.get(at + "/traffic"); !strings.Contains(
		p.body,
		`<code>/&lt;b&gt;gone</code></th><td class="num">41<`,
	) || p.has("top-countries") || !p.has("access-log") {
		t.Error("the page lacks the paths that were not found")
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

// The traffic page of the busiest site stays small for every period.
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
	for _, on := range shell.Stretches {
		p := b.get("/sites/" + string(s.ID) + "/traffic?span=" + on.Name)
		if bars := strings.Count(p.body, "<g><title>"); p.status != 200 || len(p.body) > 100_000 || bars < 3*30 || bars > 3*96 {
			t.Errorf("%s: %d, %d bytes, %d bars", on.Name, p.status, len(p.body), bars)
		}
	}
}

// Cards show a site's icon and its visits of the day. Only the site's owner can load the images.
func TestCards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	blog, plain := w.site(ada, "Blog"), w.site(ada, "Plain one")
	w.activate(blog)
	id := w.withIcon(blog, map[string]string{"i.png": "\x89PNG\r\n\x1a\n"})
	w.visit(blog, time.Hour, traffic.Counts{OK: 1200, Redirected: 4})
	b := w.as("ada@example.test")
	p := b.get("/")
	at := "/sites/" + string(blog.ID) + "/pictures/" + id
	for _, want := range []string{
		`aria-label="1,204 requests in the last 24 hours"`,
		"<b>1.2k</b> requests in 24 h",
		`src="` + at + `.icon"`,
		"No requests in 24 h", "No live deployment", ">PO</text>",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the cards lack %q", want)
		}
	}
	if strings.Count(p.body, `class="spark"`) != 1 || strings.Contains(p.body, ".shot") {
		t.Error("the cards show missing images or figures")
	}
	if p := b.get("/sites/" + string(blog.ID)); !strings.Contains(p.body, `src="`+at+`.icon"`) {
		t.Error("the site's own page lacks its icon")
	}

	icon := b.get(at + ".icon")
	for name, want := range map[string]string{
		"Content-Type":                 "image/png",
		"X-Content-Type-Options":       "nosniff",
		"Cache-Control":                "private, max-age=3600",
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
			at[:len(at)-1] + "z.icon",
			other + ".icon",
			"/sites/" + string(blog.ID) + "/pictures/.icon",
		} {
			if p := b.get(path); p.status != 404 {
				t.Errorf("%s for %s: %d", path, who, p.status)
			}
		}
	}
	if p := w.as("eve@example.test").get(at + ".icon"); p.status != 404 {
		t.Error("a stranger gets the icon")
	}
	at = "/sites/" + string(plain.ID) + "/pictures/"
	for text, want := range map[string][2]string{
		"<svg xmlns='x'/>":           {"<svg xmlns='x'/>", "default-src 'none'; sandbox; frame-ancestors 'none'; style-src 'unsafe-inline'"},
		"<script>alert(1)</script>x": {">PO</text>", "default-src 'none'; sandbox; frame-ancestors 'none'; style-src 'unsafe-inline'"},
	} {
		p := b.get(at + w.withIcon(plain, map[string]string{"favicon.svg": text}) + ".icon")
		if p.status != 200 || !strings.Contains(p.body, want[0]) || p.header.Get("Content-Type") != "image/svg+xml" ||
			p.header.Get("Content-Security-Policy") != want[1] {
			t.Errorf("%s: %d, %.100s, %s", text, p.status, p.body, p.header)
		}
	}
}
