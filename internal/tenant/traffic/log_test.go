package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
)

// lines returns the log of ada's site.
func (w *world) lines(site id.Site, since time.Duration) []map[string]any {
	w.t.Helper()
	var b bytes.Buffer
	if err := w.Log(w.t.Context(), ada, site, db.At(w.now.Add(-since)), &b); err != nil {
		w.t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// A site's log lists its requests in order, only for its owner, and is deleted with the site.
func TestLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "s1")
	w.sites(eve, "s2")
	add := func(d ...Details) {
		t.Helper()
		if err := w.Add(t.Context(), Batch{Since: w.now}, nil, d...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 45 { // more than one read returns
		add(Details{
			Site: "s1",
			Lines: []visit.Line{{
				Time:    w.now,
				Method:  "GET",
				Host:    "a.test",
				Path:    fmt.Sprint("/", i),
				Status:  200,
				Bytes:   5,
				Agent:   "\"quoted\" <b>\n",
				Address: "203.0.113.0",
			}},
		})
		w.now = w.now.Add(time.Second)
	}
	add(Details{
		Site:    "s1",
		Omitted: 7,
	}, Details{Site: "s2", Lines: []visit.Line{{Path: "/eve"}}}, Details{Site: "nobody", Lines: []visit.Line{{Path: "/nobody"}}})
	got := w.lines("s1", time.Hour)
	if len(got) != 46 || got[45]["omitted"] != 7.0 {
		t.Fatalf("%d lines, the last %v", len(got), got[len(got)-1])
	}
	for i, l := range got[:45] {
		if l["path"] != fmt.Sprint("/", i) || l["network"] != "203.0.113.0" || l["userAgent"] != "\"quoted\" <b>\n" || l["country"] != nil {
			t.Fatalf("line %d: %v", i, l)
		}
	}
	if n := len(w.lines("s1", 10*time.Second)); n < 5 || n > 15 {
		t.Errorf("%d lines of the last seconds", n)
	}
	if got := w.lines("s2", time.Hour); len(got) != 0 {
		t.Errorf("another owner's: %v", got)
	}
	if got := w.lines("nobody", time.Hour); len(got) != 0 {
		t.Errorf("of a site that isn't there: %v", got)
	}
	w.now = w.now.Add(keepLog + time.Hour)
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.lines("s1", 30*day); len(got) != 0 {
		t.Errorf("%d lines after a week", len(got))
	}
	add(Details{Site: "s1", Lines: []visit.Line{{Path: "/"}}, Names: map[visit.Name]int64{{Kind: visit.Pages, Name: "/"}: 1}})
	if err := w.ForgetSite(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if got := w.lines("s1", time.Hour); len(got) != 0 {
		t.Error("the log of a deleted site is there")
	}
	if top, _, err := w.Top(t.Context(), ada, "s1", visit.Pages, db.At(w.now), 10); err != nil || len(top) != 0 {
		t.Error("names of a deleted site are there", top, err)
	}
}

// A site's log and all logs together stay within their limits. The oldest entries are deleted first.
func TestLogBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.c.SiteLog, w.c.AllLogs = 20_000, 30_000
	for _, site := range []id.Site{"s1", "s2", "s3"} {
		w.sites(ada, site)
		for i := range 100 {
			if err := w.Add(t.Context(), Batch{
				Since: w.now,
			}, nil, Details{Site: site, Lines: []visit.Line{{Path: fmt.Sprintf("/%s/%d", site, i), Agent: fmt.Sprint(i * 7919)}}}); err != nil {
				t.Fatal(err)
			}
			w.now = w.now.Add(time.Second)
		}
	}
	sum := func(where string) (n int64) {
		if err := w.c.DB.QueryRow(
			t.Context(),
			`SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM access_log `+where,
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if sum("") < 31_000 || sum("WHERE site_id = 's3'") < 10_000 {
		t.Fatalf("the test's own log is too small: %d", sum(""))
	}
	w.c.SiteLog = sum("WHERE site_id = 's3'") - 1000
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := sum(""); n > 30_000 || n < 28_000 {
		t.Errorf("%d bytes of all logs", n)
	}
	last := w.lines("s3", time.Hour)
	if n := sum("WHERE site_id = 's3'"); n > w.c.SiteLog || n < w.c.SiteLog-1000 || len(last) == 0 ||
		last[len(last)-1]["path"] != "/s3/99" {
		t.Errorf("%d bytes of one, the last line is %v", n, last[len(last)-1])
	}
}

// Names are counted per day and listed by frequency. Names above the limit are summed in one entry, whatever visitors
// invent.
func TestTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "s1")
	add := func(names map[visit.Name]int64) {
		t.Helper()
		if err := w.Add(t.Context(), Batch{Since: w.now}, nil, Details{Site: "s1", Names: names}); err != nil {
			t.Fatal(err)
		}
	}
	add(map[visit.Name]int64{
		{Kind: visit.Pages, Name: "/"}:               3,
		{Kind: visit.Pages, Name: "/about"}:          5,
		{Kind: visit.Missing, Name: "/wp-login.php"}: 9,
		{Kind: visit.Countries, Name: "AT"}:          2,
		{Kind: visit.Referrers, Name: "news.test"}:   1,
	})
	w.now = w.now.Add(24 * time.Hour)
	add(map[visit.Name]int64{{Kind: visit.Pages, Name: "/"}: 4, {Kind: visit.Pages, Name: "/bad\xff\x00path"}: 1})
	since := db.At(w.now.Add(-48 * time.Hour))
	top := func(kind visit.Kind, limit int) string {
		t.Helper()
		list, rest, err := w.Top(t.Context(), ada, "s1", kind, since, limit)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list, rest)
	}
	if got := top(visit.Pages, 2); got != "[{/ 7} {/about 5}] 1" {
		t.Error(got)
	}
	if got := top(visit.Missing, 10) + top(visit.Countries, 10) + top(visit.Referrers, 10); got != "[{/wp-login.php 9}] 0[{AT 2}] 0[{news.test 1}] 0" {
		t.Error(got)
	}
	if list, _, err := w.Top(t.Context(), eve, "s1", visit.Pages, since, 10); err != nil || len(list) != 0 {
		t.Error("another owner's:", list, err)
	}
	many := map[visit.Name]int64{}
	for i := range 1000 {
		many[visit.Name{Kind: visit.Missing, Name: fmt.Sprint("/guess/", i)}] = 1
	}
	add(many)
	add(map[visit.Name]int64{{Kind: visit.Missing, Name: "/one/more"}: 50})
	since = db.At(w.now)
	list, rest, err := w.Top(t.Context(), ada, "s1", visit.Missing, since, 10_000)
	if err != nil || len(list) != dayNames || rest != 1000-dayNames+50 {
		t.Errorf("%d names, %d others, %v", len(list), rest, err)
	}
	w.now = w.now.Add(keepTop + 48*time.Hour)
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	since = 0
	if got := top(visit.Pages, 10); got != "[] 0" {
		t.Error("after a month:", got)
	}
}
