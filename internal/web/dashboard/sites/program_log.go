package sites

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/program/applog"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// MaxLogSearch caps a search in bytes. A page has up to programLines lines or programBytes of HTML; around a linked
// line, half of them on each side.
const (
	MaxLogSearch = 200
	programLines = 200
	programBytes = 56 << 10
)

// logRange is a selectable period of a log.
type logRange struct {
	Name, Label string
	back        time.Duration
}

var logRanges = []logRange{
	{"15m", "Last 15 minutes", 15 * time.Minute},
	{"1h", "Last hour", time.Hour},
	{"24h", "Last 24 hours", 24 * time.Hour},
	{"7d", "Last 7 days", 7 * 24 * time.Hour},
}

// programLog is a program's log on a page.
type programLog struct {
	Search, Stream, Level, Only, Range string // the filters
	Requests                           string // visitors' requests to show between the lines: all, failed, or none if empty

	HTML     template.HTML
	Older    string // URL of older lines, or empty
	Newest   string // URL of the newest lines; empty if shown
	Live     string // URL of the stream; empty unless the newest lines are shown
	Last     int64  // number of the last line
	Download string

	base string
}

// Ranges returns the selectable periods.
func (programLog) Ranges() []logRange { return logRanges }

// Narrowed reports whether the log is filtered.
func (l programLog) Narrowed() bool { return l.Search+l.Stream+l.Level+l.Only+l.Range != "" }

// link returns the URL of a page with the same filters and one more parameter.
func (l programLog) link(path, name, value string) string {
	return shell.Link(l.base+path, "q", l.Search, "range", l.Range, "level", l.Level, "stream", l.Stream, "process", l.Only, "requests",
		l.Requests, name, value)
}

// filter returns the filter for the service.
func (l programLog) filter() ProgramFilter {
	f := ProgramFilter{Stream: l.Stream, Level: l.Level, Process: l.Only, Search: l.Search}
	if i := slices.IndexFunc(logRanges, func(r logRange) bool { return r.Name == l.Range }); i >= 0 {
		f.Since = db.Now().Add(-logRanges[i].back)
	}
	return f
}

// logChoice reads the filters from the URL and ignores invalid ones.
func logChoice(q *shell.Request, base string) programLog {
	among := func(name string, values ...string) string {
		if v := q.Query(name); slices.Contains(values, v) {
			return v
		}
		return ""
	}
	l := programLog{
		base:   base,
		Search: shell.Short(MaxLogSearch, shell.Clean(strings.TrimSpace(q.Query("q")))),
		Stream: among("stream", "stdout", "stderr", "system"),
		Level:  among("level", "error", "warn", "info", "debug"),
		Range:  among("range", "15m", "1h", "24h", "7d"),

		Requests: among("requests", "all", "failed"),
	}
	l.Only = q.Query("process")
	if len(l.Only) > 64 || l.Only != shell.Clean(l.Only) {
		l.Only = ""
	}
	return l
}

// programLog loads the newest lines, those before a line, or those around one.
func (d *Pages) programLog(ctx context.Context, q *shell.Request, head SiteHead) (programLog, error) {
	l := logChoice(q, head.Base()+"/logs")
	output := l
	output.Requests = "" // the access log has its own download
	l.Download = output.link("/download", "", "")
	if d.Programs == nil {
		return d.besideOutput(ctx, q, head, l, nil, l.filter().Since, 0)
	}
	before, at := lineNumber(q.Query("before")), lineNumber(q.Query("line"))
	f := l.filter()
	f.Before, f.Limit = before, programLines+1
	var after []ProgramLine
	var err error
	if at > 0 {
		f.Before, f.Limit = at+1, programLines/2+1
		next := l.filter()
		next.After, next.Limit = at, programLines/2
		if after, err = d.Programs.ProgramLog(ctx, head.Site.ID, next); err != nil {
			return l, err
		}
	}
	lines, err := d.Programs.ProgramLog(ctx, head.Site.ID, f)
	if err != nil {
		return l, err
	}
	more := len(lines) == f.Limit
	if more {
		lines = lines[1:]
	}
	parts, cut := l.page(lines)
	from := f.Since
	if more || cut > 0 {
		l.Older = l.link("", "before", strconv.FormatInt(lines[cut].N, 10))
		from = lines[cut].At
	}
	size := 0
	for _, x := range after {
		if size > programBytes {
			break
		}
		parts = append(parts, logEntry{x.At, l.line(x)})
		size += len(parts[len(parts)-1].html)
	}
	if len(lines) > 0 {
		l.Last = lines[len(lines)-1].N
	}
	var to db.Time
	if before == 0 && at == 0 {
		l.Live = l.link("/lines", "", "")
	} else {
		l.Newest = l.link("", "", "")
		if len(parts) > 0 {
			to = parts[len(parts)-1].at + 1
		}
	}
	return d.besideOutput(ctx, q, head, l, parts, from, to)
}

// logEntry is a rendered line.
type logEntry struct {
	at   db.Time
	html string
}

// page renders the last lines that fit on a page and returns the number cut.
func (l programLog) page(lines []ProgramLine) (parts []logEntry, cut int) {
	room := programBytes
	if l.Requests != "" {
		room -= requestBytes
	}
	parts = make([]logEntry, len(lines))
	size := 0
	for i, x := range slices.Backward(lines) {
		parts[i] = logEntry{x.At, l.line(x)}
		size += len(parts[i].html)
		if size > room && i < len(lines)-1 {
			return parts[i+1:], i + 1
		}
	}
	return parts, 0
}

// processColors is the number of colors for processes' badges.
const processColors = 6

// line renders a line: its time with a link to it, level, process, and text with search matches marked.
func (l programLog) line(x ProgramLine) string {
	var b strings.Builder
	class, level := "", x.Level
	switch level {
	case "warn", "error", "debug":
		class = " " + level
	default:
		level = "info"
	}
	n := strconv.FormatInt(x.N, 10)
	at := x.At.Time()
	fmt.Fprintf(&b, `<div class="ln app%s" id="P%s"><a href="?line=%s#P%s"><time datetime="%s" data-clock><span>%s</span> %s</time></a><span>`,
		class, n, n, n, x.At, at.Format("2 Jan"), at.Format("15:04:05"))
	fmt.Fprintf(&b, `<span class="log-level">%s</span> `, level)
	if x.Process != "" {
		h := fnv.New32a()
		h.Write([]byte(x.Process))
		fmt.Fprintf(&b, `<span class="proc p%d">%s</span> `, h.Sum32()%processColors, template.HTMLEscapeString(shell.Clean(x.Process)))
	}
	writeMarked(&b, x.Message, l.Search)
	b.WriteString("</span></div>")
	return b.String()
}

// writeMarked writes text with matches of want marked, ignoring case. It doesn't mark matches whose other case has a
// different length in bytes.
func writeMarked(b *strings.Builder, text, want string) {
	text = shell.Clean(text)
	low, want := strings.ToLower(text), strings.ToLower(want)
	if want == "" || len(low) != len(text) {
		b.WriteString(template.HTMLEscapeString(text))
		return
	}
	for {
		i := strings.Index(low, want)
		if i < 0 {
			b.WriteString(template.HTMLEscapeString(text))
			return
		}
		b.WriteString(template.HTMLEscapeString(text[:i]) + "<mark>" + template.HTMLEscapeString(text[i:i+len(want)]) + "</mark>")
		text, low = text[i+len(want):], low[i+len(want):]
	}
}

// programFollow streams new lines that match the filters. An event's ID is the number of its last line, so that a
// reconnecting browser continues there.
func (d *Pages) programFollow(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "logs")
	if err != nil {
		return shell.Answer{}, err
	}
	l := logChoice(q, head.Base()+"/logs")
	after := lineNumber(q.Query("after"))
	place := traffic.ParsePlace(q.Query("place"))
	if last := q.LastEvent(); last != "" {
		n, rest, _ := strings.Cut(last, "/")
		after = lineNumber(n)
		if rest != "" {
			place = traffic.ParsePlace(rest)
		}
	}
	return shell.Stream(func(e *shell.Events) error {
		return d.followProgram(e, q, l, head.Site.ID, after, &requestTail{place: place})
	}), nil
}

func (d *Pages) followProgram(e *shell.Events, q *shell.Request, l programLog, id site.ID, after int64, tail *requestTail) error {
	if d.Programs == nil && l.Requests == "" {
		return e.Send("end", "", "")
	}
	wake, stop := d.DB.Listen(applog.Topic(id))
	defer stop()
	return shell.Tail(e, wake, func() (shell.Progress, error) {
		f := l.filter()
		f.After, f.Limit = after, logBatch
		if after == 0 {
			f.After = -1
		}
		var lines []ProgramLine
		var err error
		if d.Programs != nil {
			if lines, err = d.Programs.ProgramLog(e.Ctx, id, f); err != nil {
				return shell.Unchanged, err
			}
		}
		if len(lines) > 0 {
			var b strings.Builder
			for _, x := range lines {
				b.WriteString(l.line(x))
				after = x.N
			}
			if err := e.Send("lines", logPlace(after, tail.place), b.String()); err != nil {
				return shell.Unchanged, err
			}
		}
		if len(lines) == logBatch {
			return shell.Unfinished, nil
		}
		if requests, err := d.followRequests(e, q, l, id, after, tail); err != nil || !requests && len(lines) == 0 {
			return shell.Unchanged, err
		}
		return shell.Sent, nil
	})
}

// programDownload downloads all lines that match the filters as text, oldest first.
func (d *Pages) programDownload(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "logs")
	if err != nil {
		return shell.Answer{}, err
	}
	f := logChoice(q, "").filter()
	f.After, f.Limit = -1, 1000
	var lines []ProgramLine
	if d.Programs != nil {
		if lines, err = d.Programs.ProgramLog(ctx, head.Site.ID, f); err != nil {
			return shell.Answer{}, err
		}
	}
	return shell.Raw(func(w http.ResponseWriter) {
		d.WhileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="`+url.PathEscape(head.Site.Slug)+`.log"`)
			out := bufio.NewWriter(w)
			for len(lines) > 0 {
				_ = conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // test writers have no deadline
				for _, x := range lines {
					fmt.Fprintf(out, "%s %-5s %-6s %s %s\n", x.At, x.Level, x.Stream, x.Process, shell.Clean(x.Message))
				}
				if err := out.Flush(); err != nil {
					return err
				}
				if len(lines) < f.Limit {
					return nil
				}
				f.After = lines[len(lines)-1].N
				if lines, err = d.Programs.ProgramLog(ctx, head.Site.ID, f); err != nil {
					return err
				}
			}
			return nil
		})
	}), nil
}
