package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// A program's log can be read in pages, around a line and as a download, always with the same filters. Its pages stay
// small even with long lines.
func TestProgramLogPages(t *testing.T) {
	t.Parallel()
	var asked []sites.ProgramFilter
	text := "line"
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{log: func(_ site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
			asked = append(asked, f)
			f.Search = "" // the database does the search
			list := printed(2500, f)
			for i := range list {
				list[i].Message = strings.Replace(list[i].Message, "line", text, 1)
			}
			return list, nil
		}}
	})
	u := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	s := w.site(u, "App")
	w.program(s, w.deployment(s))
	b, at := w.as("ada@example.test"), "/sites/"+string(s.ID)+"/logs"
	shows := func(p reply, want ...int) {
		t.Helper()
		for _, n := range want {
			if shown := strings.Contains(p.body, fmt.Sprintf(`id="P%d"`, max(n, -n))); shown != (n > 0) {
				t.Errorf("line %d: shown %v", n, shown)
			}
		}
	}
	p := b.get(at).want(t, 200, `data-after="2500"`)
	shows(p, 2500, 2450, -2000)
	if len(p.body) > 100<<10 {
		t.Errorf("the page has %d bytes", len(p.body))
	}
	shows(b.get(at+"?before=2000").want(t, 200, `data-log=""`), 1999, -2000)
	shows(b.get(at+"?line=1000").want(t, 200, `data-log=""`), 1000, 1001, 950, -2000)

	text = strings.Repeat("<", 4000)
	if p := b.get(at); len(p.body) > 100<<10 {
		t.Errorf("with long lines the page has %d bytes", len(p.body))
	}
	text = "<LINE>"
	b.get(at+"?q=%3Cline%3E").want(t, 200, "<mark>&lt;LINE&gt;</mark>")

	asked, text = nil, "line"
	p = b.get(at+"/download?level=error&process=web&range=1h&stream=nonsense").want(t, 200)
	lines := strings.Split(strings.TrimSpace(p.body), "\n")
	if len(lines) != 2500/7 || !strings.HasSuffix(lines[0], "web line number 7.") || !strings.HasSuffix(lines[356], "line number 2499.") {
		t.Errorf("%d lines were downloaded: %.200s", len(lines), p.body)
	}
	if f := asked[0]; f.Since == 0 || f.Stream != "" || f.Process != "web" {
		t.Errorf("asked for %+v", f)
	}
	if lines := strings.Count(b.get(at+"/download").body, "\n"); lines != 2500 {
		t.Errorf("%d lines of 2500 were downloaded", lines)
	}
	for _, path := range []string{"/download", "/lines"} {
		w.as("eve@example.test").get(at+path).want(t, 404)
	}
}

// printed returns a program's n lines, every seventh an error of the web process.
func printed(n int64, f sites.ProgramFilter) (out []sites.ProgramLine) {
	for i := range n {
		x := sites.ProgramLine{N: i + 1, At: db.Now(), Level: "info", Stream: "stdout", Process: "worker:mail", Message: fmt.Sprintf("line number %d.", i+1)}
		if x.N%7 == 0 {
			x.Level, x.Process = "error", "web"
		}
		if x.N > f.After && (f.Before == 0 || x.N < f.Before) && (f.Level == "" || f.Level == x.Level) &&
			strings.Contains(strings.ToLower(x.Message), strings.ToLower(f.Search)) {
			out = append(out, x)
		}
	}
	if f.After != 0 {
		return out[:min(len(out), f.Limit)]
	}
	return out[max(0, len(out)-f.Limit):]
}
