package applog

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
)

// A search must find lines by their text, whether in upper or lower case, even if it contains characters that a
// database takes for a pattern.
func TestLogSearch(t *testing.T) {
	t.Parallel()
	l := New(dbtest.New(t), slog.New(slog.DiscardHandler))
	lines := []string{"GET /Products 200", "100% done", "100 percent", "a_b", "aXb", `C:\temp`, "Ärger mit Äpfeln", "it's \"quoted\""}
	for _, line := range lines {
		l.Add("site", "one", Web, "stdout", line)
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
		list, err := l.Read(t.Context(), "site", Filter{Search: search, Flush: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range list {
			got = append(got, l.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", search, got, want)
		}
	}
}

// Lines of one owner's sites may fill no more than a quarter of the queue, and lines of other owners must still be
// kept.
func TestLogsAreShared(t *testing.T) {
	t.Parallel()
	l := New(dbtest.New(t), slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 16<<10)
	for i := range 100 {
		site := id.Site(fmt.Sprint("anna", i))
		l.Owned(site, "anna")
		for range 100 {
			l.Add(site, "one", Web, "stdout", long)
		}
	}
	if l.held.bytes > waitingMost/4+len(long) {
		t.Errorf("%d bytes of one owner wait", l.held.bytes)
	}
	before := len(l.waiting)
	l.Owned("ben", "ben")
	l.Add("ben", "one", Web, "stdout", "hello")
	if len(l.waiting) != before+1 {
		t.Error("a line of another owner was dropped")
	}
	l.Flush(t.Context())
	if len(l.of) != 0 || l.held != (load{}) {
		t.Errorf("after they were written %v and %v wait", l.of, l.held)
	}
	list, err := l.Read(t.Context(), "ben", Filter{})
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// Of the long lines of a site, the newest must be kept, up to a limit of bytes.
func TestLogsAreBoundedByText(t *testing.T) {
	t.Parallel()
	l := New(dbtest.New(t), slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 16<<10)
	for part := range 4 {
		var batch []entry
		for i := range 400 {
			batch = append(batch, entry{site: "site", Line: Line{N: int64(part*400 + i + 1), Message: long}})
		}
		l.siteLog("site", time.Now())
		if err := l.write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	var n, newest, bytes int64
	if err := l.db.QueryRow(t.Context(), `SELECT count(*), max(n), sum(length(message)) FROM app_logs WHERE site_id = 'site'`).Scan(
		&n,
		&newest,
		&bytes,
	); err != nil {
		t.Fatal(err)
	}
	if bytes > keptText+keptText/8+400*int64(len(long)) || n < 900 || newest != 1600 {
		t.Errorf("%d lines with %d bytes, up to %d", n, bytes, newest)
	}
}

// A log must be readable from its end, from its beginning, and in pages in both directions.
func TestLogPages(t *testing.T) {
	t.Parallel()
	l := New(dbtest.New(t), slog.New(slog.DiscardHandler))
	for i := range 9 {
		l.Add("site", "one", Web, "stdout", fmt.Sprint(i))
	}
	read := func(x Filter) (text string, first, last int64) {
		t.Helper()
		x.Limit, x.Flush = 3, true
		list, err := l.Read(t.Context(), "site", x)
		if err != nil {
			t.Fatal(err)
		}
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
	newest, first, _ := read(Filter{})
	want(newest, "678")
	older, _, _ := read(Filter{Before: first})
	want(older, "345")
	oldest, _, last := read(Filter{After: -1})
	want(oldest, "012")
	next, _, _ := read(Filter{After: last})
	want(next, "345")
}

// Lines that a site prints too quickly must be dropped and counted, and lines of other sites must be kept meanwhile.
func TestLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, slog.New(slog.DiscardHandler))
		for range 100_000 {
			l.Add("noisy", "one", Web, "stdout", "line")
		}
		if n := len(l.waiting); n != lineBurst {
			t.Errorf("%d lines taken at once, want %d", n, lineBurst)
		}
		l.Add("quiet", "one", Web, "stdout", "heard")
		if last := l.waiting[len(l.waiting)-1]; last.Message != "heard" {
			t.Errorf("a quiet site was not heard beside a noisy one")
		}
		if want := lineBurst + 1 + linesPerSec; l.held.lines != want {
			t.Errorf("%d lines are kept, want %d", l.held.lines, want)
		}
		// A long line must count as several, and the memory of all sites together must be bounded.
		long := strings.Repeat("x", 16<<10)
		for i := range 1000 {
			for range 60 { // 1 GB in all, thirty times the limit
				l.Add(id.Site(fmt.Sprint("site", i)), "one", Web, "stdout", long)
			}
		}
		bytes, lines := 0, len(l.waiting)
		for _, e := range l.waiting {
			bytes += len(e.Message)
		}
		for _, s := range l.sites {
			lines += len(s.tail)
			for _, e := range s.tail {
				bytes += len(e.Message)
			}
		}
		if bytes > waitingMost+len(long) || l.held != (load{lines, bytes}) {
			t.Errorf("%d bytes in %d lines wait, which are counted as %v", bytes, lines, l.held)
		}
		l.settleAll(true)
		for i := 1; i < len(l.waiting); i++ {
			if a, b := l.waiting[i-1], l.waiting[i]; a.site == b.site && a.N >= b.N {
				t.Fatalf("line %d follows %d", b.N, a.N)
			}
		}
	})
}

// If a program prints 60,000 lines and crashes, its first and its last lines must be kept, and between them a line must
// give the number of dropped lines. They must be stored before the message about the crash, or when the log is read.
func TestFloodsKeepTheirEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *Logs){
		"a crash":  func(l *Logs) { l.System("site", "one", "The application exited with status 1") },
		"a reader": func(*Logs) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(dbtest.New(t), slog.New(slog.DiscardHandler))
			const printed = 60_000
			for i := range printed {
				l.Add("site", "one", "worker:mail", "stderr", fmt.Sprint(i))
			}
			end(l)
			list, err := l.Read(t.Context(), "site", Filter{Deployment: "one", Limit: 1000, Flush: true})
			if err != nil {
				t.Fatal(err)
			}
			if name == "a crash" {
				last := list[len(list)-1]
				if last.Stream != "system" || !strings.HasPrefix(last.Message, "The application exited") {
					t.Errorf("the log ends with %+v", last)
				}
				list = list[:len(list)-1]
			}
			if len(list) < linesPerSec+2 || list[len(list)-1].Message != fmt.Sprint(printed-1) {
				t.Fatalf("%d lines, the last is %+v", len(list), list[len(list)-1])
			}
			list = list[len(list)-linesPerSec-2:]
			head, note, tail := list[0], list[1], list[2:]
			for i, line := range tail {
				if line.Message != fmt.Sprint(printed-linesPerSec+i) {
					t.Fatalf("line %d of the end is %q", i, line.Message)
				}
			}
			var first, dropped int
			if _, err := fmt.Sscan(head.Message, &first); err != nil || first < lineBurst-1 {
				t.Errorf("the beginning ends with %q", head.Message)
			}
			if _, err := fmt.Sscan(note.Message, &dropped); err != nil || first+1+dropped+linesPerSec != printed || note.Stream != "system" ||
				note.Process != "worker:mail" {
				t.Errorf("between %d and the end: %+v", first, note)
			}
		})
	}
}

// A continuous flood must be stored in parts of one second, each up to the limit per second, and its end within half a
// second even without a reader. A flood with repeated pauses must not be stored faster on average.
func TestFloodsAreStoredInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, slog.New(slog.DiscardHandler))
		seen := 0
		second := func(print int) (stored []string) {
			for range 20 {
				for range print / 20 {
					l.Add("site", "one", Web, "stdout", fmt.Sprint(seen))
					seen++
				}
				time.Sleep(50 * time.Millisecond)
				if time.Now().UnixMilli()%250 == 0 { // as Run does
					l.settleAll(false)
				}
			}
			for _, e := range l.waiting {
				stored = append(stored, e.Message)
				l.hold(e, -1)
			}
			l.waiting = nil
			return stored
		}
		second(lineBurst + 10*linesPerSec)
		for range 10 {
			if n := len(second(4000)); n < linesPerSec/2 || n > 2*linesPerSec {
				t.Errorf("%d lines in a second of a flood", n)
			}
		}
		last := fmt.Sprint(seen - 1)
		if end := second(0); len(end) == 0 || end[len(end)-1] != last {
			t.Errorf("a second after the flood: %q, want %s at the end", end, last)
		}
		if n := len(second(0)); n != 0 {
			t.Errorf("%d more lines afterwards", n)
		}
		total := 0
		for range 60 {
			total += len(second(1000))
			total += len(second(0))
		}
		if most := 120*linesPerSec + 2*lineBurst + 120; total > most {
			t.Errorf("%d lines in two minutes, want at most %d", total, most)
		}
	})
}
