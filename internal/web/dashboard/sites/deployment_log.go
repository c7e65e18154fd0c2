package sites

import (
	"bufio"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/web/dashboard/ansi"
	"slipway/internal/web/dashboard/shell"
)

// Limits of a log: lines on a page (more are streamed or on further pages), lines per event, and lines per read of a
// download.
const (
	logPageLines = 200
	logPageBytes = 48 << 10
	logBatch     = 200
	logRead      = 5000
)

// logView is the log on a page, before the stream continues.
type logView struct {
	HTML  template.HTML // one element per line
	After int64         // number of the line before the first
	Last  int64         // number of the last line
	More  bool          // whether more lines exist
}

// logView renders the lines after the one in the URL.
func (d *Pages) logView(ctx context.Context, q *shell.Request, x DeploymentRow) (logView, error) {
	v := logView{After: lineNumber(q.Query("after"))}
	v.Last = v.After
	lines, _, err := d.Deployments.Logs(ctx, q.Caller.Owner, x.ID, v.After, logPageLines+1)
	if err != nil {
		return v, err
	}
	var b strings.Builder
	for i, l := range lines {
		if i == logPageLines || i > 0 && b.Len() > logPageBytes {
			v.More = true
			break
		}
		writeLine(&b, l)
		v.Last = l.N
	}
	v.HTML = template.HTML(b.String()) // writeLine escapes
	return v, nil
}

func lineNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func writeLine(b *strings.Builder, l journal.Line) {
	class := ""
	switch l.Level {
	case "warn", "error", "debug":
		class = " " + l.Level
	}
	fmt.Fprintf(b, `<div class="ln%s" id="L%d"><a href="#L%d" title="%s · %s">%d</a><span>`, class, l.N, l.N,
		l.At.Time().Format("15:04:05.000"), template.HTMLEscapeString(l.Stage), l.N)
	if l.Raw != "" {
		ansi.Write(b, l.Raw)
	} else {
		ansi.WritePlain(b, l.Message)
	}
	b.WriteString("</span></div>")
}

// logLive streams new lines, several per event. An event's ID is the number of its last line, so that a reconnecting
// browser continues there.
func (d *Pages) logLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	after := lineNumber(q.Query("after"))
	if last := q.LastEvent(); last != "" {
		after = lineNumber(last)
	}
	return shell.Stream(func(e *shell.Events) error { return d.followLog(e, q, x.ID, after) }), nil
}

func (d *Pages) followLog(e *shell.Events, q *shell.Request, id deployment.ID, after int64) error {
	wake, stop := d.Deployments.Listen(id)
	defer stop()
	return shell.Tail(e, wake, func() (shell.Progress, error) {
		lines, status, err := d.Deployments.Logs(e.Ctx, q.Caller.Owner, id, after, logBatch)
		if err != nil {
			return shell.Unchanged, err
		}
		if len(lines) > 0 {
			var b strings.Builder
			for _, l := range lines {
				writeLine(&b, l)
				after = l.N
			}
			if err := e.Send("lines", strconv.FormatInt(after, 10), b.String()); err != nil {
				return shell.Unchanged, err
			}
		}
		switch {
		case len(lines) == logBatch:
			return shell.Unfinished, nil
		case status.Ended():
			return shell.Ended, e.Send("end", "", string(status))
		case len(lines) > 0:
			return shell.Sent, nil
		}
		return shell.Unchanged, nil
	})
}

// logDownload downloads the whole log as text.
func (d *Pages) logDownload(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	lines, _, err := d.Deployments.Logs(ctx, q.Caller.Owner, x.ID, 0, logRead)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		d.WhileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="`+string(x.ID)+`.log"`)
			out := bufio.NewWriter(w)
			for len(lines) > 0 {
				_ = conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // test writers have no deadline
				for _, l := range lines {
					fmt.Fprintf(out, "%s %-5s %-8s %s\n", l.At, l.Level, l.Stage, l.Message)
				}
				if err := out.Flush(); err != nil {
					return err
				}
				if lines, _, err = d.Deployments.Logs(ctx, q.Caller.Owner, x.ID, lines[len(lines)-1].N, logRead); err != nil {
					return err
				}
			}
			return nil
		})
	}), nil
}

// logError redirects to a log's first error, for browsers without scripts.
func (d *Pages) logError(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	_, x, err := d.deployment(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	for after := int64(0); ; {
		lines, _, err := d.Deployments.Logs(ctx, q.Caller.Owner, x.ID, after, logRead)
		if err != nil {
			return shell.Answer{}, err
		}
		if len(lines) == 0 {
			return shell.GoTo(x.Path(), "No errors in this log"), nil
		}
		for _, l := range lines {
			if l.Level == "error" {
				return shell.GoTo(fmt.Sprintf("%s?after=%d#L%d", x.Path(), max(0, l.N-20), l.N), ""), nil
			}
			after = l.N
		}
	}
}
