package api_test

import (
	"testing"
	"time"

	"slipway/internal/traffic"
)

func TestTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "blog")
	now := time.Now().UTC()
	for ago, c := range map[time.Duration]traffic.Counts{
		0:                  {OK: 3, Redirected: 2, ClientErrors: 1, Pages: 2, Bytes: 1 << 33},
		3 * time.Hour:      {OK: 1, ServerErrors: 4, Bytes: 7},
		5 * 24 * time.Hour: {OK: 1000},
	} {
		if err := w.c.Traffic.Add(t.Context(), now.Add(-ago), map[string]traffic.Counts{id: c}); err != nil {
			t.Fatal(err)
		}
	}
	for query, points := range map[string]int{"": 97, "?since=24h&step=1h": 25, "?since=1440m&step=5m": 289,
		"?step=1h&since=" + now.Add(-24*time.Hour).Format(time.RFC3339): 25} {
		got := w.must(200, "GET", "/sites/"+id+"/traffic"+query, key, nil)
		total := got["total"].(m)
		statuses := total["statuses"].(m)
		if total["requests"] != 11.0 || total["pages"] != 2.0 || total["bytes"] != float64(1<<33+7) ||
			statuses["2xx"] != 4.0 || statuses["3xx"] != 2.0 || statuses["4xx"] != 1.0 || statuses["5xx"] != 4.0 {
			t.Errorf("%q: %v", query, total)
		}
		if n := len(got["data"].([]any)); n != points && n != points+1 { // the clock may have gone on
			t.Errorf("%q: %d points, want %d", query, n, points)
		}
	}
}
