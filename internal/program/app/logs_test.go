package app

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"
)

// A search finds lines by their text in any case, whatever a database takes for a pattern.
func TestLogSearch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	lines := []string{"GET /Products 200", "100% done", "100 percent", "a_b", "aXb", `C:\temp`, "Ärger mit Äpfeln", "it's \"quoted\""}
	for _, line := range lines {
		a.logs.add("site", "one", web, "stdout", line)
	}
	for search, want := range map[string][]string{
		"get /products": {lines[0]},
		"100%":          {lines[1]},
		"100":           {lines[1], lines[2]},
		"a_b":           {lines[3]},
		`C:\T`:          {lines[5]},
		"Äpfel":         {lines[6]},
		"Ärger":         {lines[6]},
		"mit Ä":         {lines[6]},
		`it's "q`:       {lines[7]},
		"%":             {lines[1]},
		`\`:             {lines[5]},
		"nothing":       nil,
		"' OR 1=1 --":   nil,
	} {
		list, err := a.Logs(t.Context(), "site", LogFilter{Search: search, Flush: true})
		f.ok(err)
		var got []string
		for _, l := range list {
			got = append(got, l.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", search, got, want)
		}
	}
}

// Lines of one owner's sites fill a quarter of what waits: others' are kept meanwhile.
func TestLogsAreShared(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	l := &logs{}
	l.init(f.nodes[0].c.DB, slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 16<<10)
	for i := range 100 {
		site := id.Site(fmt.Sprint("anna", i))
		l.owned(site, "anna")
		for range 100 {
			l.add(site, "one", web, "stdout", long)
		}
	}
	if l.bytes > waitingMost/4+len(long) {
		t.Errorf("%d bytes of one owner wait", l.bytes)
	}
	before := len(l.waiting)
	l.owned("ben", "ben")
	l.add("ben", "one", web, "stdout", "hello")
	if len(l.waiting) != before+1 {
		t.Error("another owner's line was dropped")
	}
	l.flush(t.Context())
	if len(l.of) != 0 || l.bytes != 0 {
		t.Errorf("after they were written %v and %d bytes wait", l.of, l.bytes)
	}
	list, err := f.nodes[0].Logs(t.Context(), "ben", LogFilter{})
	if f.ok(err); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

// Long lines of a site are kept up to a bound of bytes, the newest ones.
func TestLogsAreBoundedByText(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	l := &logs{}
	l.init(f.nodes[0].c.DB, slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 16<<10)
	for part := range 4 {
		var batch []entry
		for i := range 400 {
			batch = append(batch, entry{site: "site", Line: Line{N: int64(part*400 + i + 1), Message: long}})
		}
		l.siteLog("site", time.Now())
		f.ok(l.write(t.Context(), batch))
	}
	var n, newest, bytes int64
	f.ok(f.nodes[0].c.DB.QueryRow(t.Context(), `SELECT count(*), max(n), sum(length(message)) FROM app_logs WHERE site_id = 'site'`).Scan(
		&n,
		&newest,
		&bytes,
	))
	if bytes > keptText+keptText/8+400*int64(len(long)) || n < 900 || newest != 1600 {
		t.Errorf("%d lines with %d bytes, up to %d", n, bytes, newest)
	}
}

// A log is read from its end, from its beginning, and in pages either way.
func TestLogPages(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	for i := range 9 {
		a.logs.add("site", "one", web, "stdout", fmt.Sprint(i))
	}
	read := func(x LogFilter) (text string, first, last int64) {
		t.Helper()
		x.Limit, x.Flush = 3, true
		list, err := a.Logs(t.Context(), "site", x)
		f.ok(err)
		for _, l := range list {
			text += l.Message
		}
		return text, list[0].N, list[len(list)-1].N
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("lines %s, want %s", got, want)
		}
	}
	newest, first, _ := read(LogFilter{})
	want(newest, "678")
	older, _, _ := read(LogFilter{Before: first})
	want(older, "345")
	oldest, _, last := read(LogFilter{After: -1})
	want(oldest, "012")
	next, _, _ := read(LogFilter{After: last})
	want(next, "345")
}
