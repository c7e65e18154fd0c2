package api_test

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/visit"
	"slipway/internal/tenant/traffic"
)

func TestTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	of := w.site(key, "blog")
	now := time.Now().UTC()
	for ago, c := range map[time.Duration]traffic.Counts{
		0:                  {OK: 3, Redirected: 2, ClientErrors: 1, Pages: 2, Bytes: 1 << 33},
		3 * time.Hour:      {OK: 1, ServerErrors: 4, Bytes: 7},
		5 * 24 * time.Hour: {OK: 1000},
	} {
		if err := w.c.Traffic.Add(t.Context(), traffic.Batch{Since: now.Add(-ago)}, map[id.Site]traffic.Counts{id.Site(of): c}); err != nil {
			t.Fatal(err)
		}
	}
	for query, points := range map[string]int{
		"": 97, "?since=24h&step=1h": 25, "?since=1440m&step=5m": 289,
		"?step=1h&since=" + now.Add(-24*time.Hour).Format(time.RFC3339): 25,
	} {
		got := w.must(200, "GET", "/sites/"+of+"/traffic"+query, key, nil)
		total := got["total"].(m)
		statuses := total["statuses"].(m)
		if total["requests"] != 11.0 || total["pages"] != 2.0 || total["bytes"] != float64(1<<33+7) ||
			statuses["2xx"] != 4.0 || statuses["3xx"] != 2.0 || statuses["4xx"] != 1.0 || statuses["5xx"] != 4.0 {
			t.Errorf("%q: %v", query, total)
		}
		if n := len(got["data"].([]any)); n != points && n != points+1 { // an interval may have passed meanwhile
			t.Errorf("%q: %d points, want %d", query, n, points)
		}
	}
}

// Only callers that can read the site get top lists and the access log, in the documented formats.
func TestTopAndAccessLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	_, other := w.user("b@example.test")
	of := w.site(key, "blog")
	now := time.Now().UTC()
	err := w.c.Traffic.Add(t.Context(), traffic.Batch{
		Since: now,
	}, nil, traffic.Details{
		Site: id.Site(of),
		Names: map[visit.Name]int64{
			{Kind: visit.Pages, Name: "/"}:      3,
			{Kind: visit.Pages, Name: "/a"}:     2,
			{Kind: visit.Countries, Name: "AT"}: 1,
		},
		Lines:   []visit.Line{{Time: now, Method: "GET", Path: "/a", Status: 200}},
		Omitted: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := w.must(200, "GET", "/sites/"+of+"/traffic/top?since=7d&names=1", key, nil)
	pages := got["pages"].(m)
	if top := pages["top"].([]any); len(top) != 1 || top[0].(m)["name"] != "/" || top[0].(m)["requests"] != 3.0 || pages["others"] != 2.0 {
		t.Error(pages)
	}
	if missing := got["missing"].(m); len(missing["top"].([]any)) != 0 || got["countries"].(m)["top"].([]any)[0].(m)["name"] != "AT" {
		t.Error(got)
	}
	for _, bad := range []string{"?names=0", "?names=201", "?names=x", "?since=never"} {
		w.must(400, "GET", "/sites/"+of+"/traffic/top"+bad, key, nil)
	}
	log := w.api("GET", "/sites/"+of+"/access-log?since=1h", key, nil)
	lines := strings.Split(strings.TrimSpace(log.body), "\n")
	if log.status != 200 || len(lines) != 2 || !strings.Contains(
		lines[0],
		`"path":"/a"`,
	) || !strings.Contains(lines[1], `"omitted":4`) || log.header.Get("Content-Type") != "application/jsonl" {
		t.Error(log)
	}
	w.must(400, "GET", "/sites/"+of+"/access-log?since=never", key, nil)
	w.must(404, "GET", "/sites/"+of+"/access-log", other, nil)
	w.must(404, "GET", "/sites/"+of+"/traffic/top", other, nil)
}
