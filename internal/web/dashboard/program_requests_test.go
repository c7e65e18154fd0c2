package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/sites"
)

// On request the log shows all or failed requests among the output of the same time, and searches them too.
func TestRequestsBesideOutput(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{log: func(_ site.ID, f sites.ProgramFilter) (out []sites.ProgramLine, _ error) {
			if f.After > 0 {
				return nil, nil
			}
			for i := range 3 {
				out = append(out, sites.ProgramLine{N: int64(i + 1), At: db.At(begin.Add(time.Duration(10*i) * time.Second)), Message: fmt.Sprint("output ", i)})
			}
			return out, nil
		}}
	})
	u := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	s := w.site(u, "App")
	w.program(s, w.deployment(s))
	add := func(after time.Duration, path string, status int) {
		t.Helper()
		must(t, w.dash.Traffic.Add(t.Context(), traffic.Batch{Since: begin}, nil, traffic.Details{Site: s.ID, Lines: []visit.Line{
			{Time: begin.Add(after), Method: "GET", Path: path, Status: status, Bytes: 1200, Agent: "<i>curl", Country: "NO"},
		}}))
	}
	add(5*time.Second, "/cart", 200)
	add(15*time.Second, "/broken<b>", 502)
	b, at := w.as("ada@example.test"), "/sites/"+string(s.ID)+"/logs"
	order := func(p reply, want ...string) {
		t.Helper()
		rest := p.body
		for _, text := range want {
			_, after, ok := strings.Cut(rest, text)
			if !ok {
				t.Fatalf("%s doesn't come after what precedes it in %v", text, want)
			}
			rest = after
		}
	}
	b.get(at).want(t, 200, "output 2").lacks(t, "/cart", "/broken")
	p := b.get(at+"?requests=all").want(t, 200, `ln app request error`, "&lt;i&gt;curl", "1.2 KiB", `/logs/download"`)
	p.lacks(t, "<b>&lt;", "/broken<b>", "<i>curl")
	order(p, "output 0", "GET /cart", "output 1", "GET /broken&lt;b&gt;", "output 2")
	b.get(at+"?requests=failed").want(t, 200, "output 2", "/broken&lt;b&gt;").lacks(t, "/cart")
	b.get(at+"?requests=all&q=CART").want(t, 200, "GET /<mark>cart</mark>").lacks(t, "/broken")
	if p := w.as("eve@example.test").get(at + "?requests=all"); p.status != 404 {
		t.Errorf("a stranger: %s", p)
	}
	for i := range 400 { // of hostile length
		add(time.Duration(i)*time.Millisecond, strings.Repeat("<", 256), 200)
	}
	if p := b.get(at + "?requests=all"); len(p.body) > 100<<10 {
		t.Errorf("the page has %d bytes", len(p.body))
	}
}
