package api_test

import (
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/usage"
)

// Usage is listed per meter by day or hour, for the account or one of its sites. Invalid and unavailable ranges are
// refused.
func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	_, other := w.user("ben@example.test")
	x := w.belongings(u, key)
	source := usage.NewSource("edge/1")
	now := db.Now()
	source.Add(now, w.owner(u), usage.Bandwidth, id.Site(x["site"]), 5000)
	source.Add(now, w.owner(u), usage.Bandwidth, "site_gone", 100)
	source.Add(now, w.owner(u), usage.Build, id.Site(x["site"]), 60_000)
	if err := w.c.Usage.Write(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	total := func(path, key string) int64 {
		t.Helper()
		a := w.must(200, "GET", path, key, nil)
		points := a["data"].([]any)
		var sum, last int64
		for _, p := range points {
			sum += int64(p.(map[string]any)["quantity"].(float64))
		}
		for _, x := range a["totals"].([]any) {
			last += int64(x.(map[string]any)["quantity"].(float64))
		}
		if sum != last || points[len(points)-1].(map[string]any)["sealed"] != false {
			t.Errorf("%s: the points add up to %d, the totals to %d", path, sum, last)
		}
		return sum
	}
	today := now.Time().Format(time.DateOnly)
	for path, want := range map[string]int64{
		"/usage": 65_100, "/usage?meter=bandwidth.bytes": 5100, "/usage?meter=bandwidth.bytes&siteId=" + x["site"]: 5000,
		"/usage?meter=build.ms&step=1h&from=" + today: 60_000, "/usage?meter=cpu.ms": 0,
		"/usage?meter=bandwidth.bytes&step=1h&from=" + today + "&siteId=" + x["site"]: 5000,
	} {
		if n := total(path, key); n != want {
			t.Errorf("%s: %d, want %d", path, n, want)
		}
	}
	if n := total("/usage", other); n != 0 {
		t.Errorf("another user sees %d", n)
	}
	if a := w.api("GET", "/usage?siteId="+x["site"], other, nil); a.status != 404 {
		t.Errorf("another user's site: %s", a)
	}
	for path, code := range map[string]string{
		"/usage?meter=lunch": "invalid_meter", "/usage?step=2h": "invalid_step", "/usage?from=yesterday": "invalid_from",
		"/usage?to=0": "invalid_to", "/usage?from=2019-01-01": "invalid_from", "/usage?from=2999-01-01": "invalid_from",
		"/usage?step=1h&from=" + now.Time().AddDate(0, 0, -40).Format(time.DateOnly): "invalid_from",
	} {
		if a := w.api("GET", path, key, nil); a.status != 400 || a.json(t)["code"] != code {
			t.Errorf("%s: %s, want 400 %s", path, a, code)
		}
	}
}
