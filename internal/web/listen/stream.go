package listen

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/text"
)

// follow handles deliveries until the stream ends. after is the number of the last one handled. more reports whether
// any arrived.
func (l *Listener) follow(ctx context.Context, id string, after *int64) (more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{"Accept": {"text/event-stream"}}
	if *after > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(*after, 10))
	}
	resp, err := l.ask(ctx, "GET", "/webhook-listeners/"+url.PathEscape(id)+"/deliveries", nil, header)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return false, fmt.Errorf("the response is %q instead of a stream of events", printable(kind))
	}
	silence := time.AfterFunc(silentTime, cancel)
	defer silence.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		silence.Reset(silentTime)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue // comments, IDs and blank lines
		}
		var d offered
		if err := json.Unmarshal([]byte(data), &d); err != nil || d.N == 0 {
			return more, fmt.Errorf("an event of the stream can't be read")
		}
		silence.Stop() // the target may be slow
		l.handle(ctx, d)
		if ctx.Err() != nil {
			return more, nil
		}
		silence.Reset(silentTime)
		*after, more = d.N, true
	}
	return more, lines.Err()
}

// outcome is the result of forwarding a delivery.
type outcome struct {
	Status     int    `json:"status,omitempty"`
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"durationMs"`
}

// handle verifies, forwards and prints a delivery.
func (l *Listener) handle(ctx context.Context, d offered) {
	if !l.genuine(d) {
		fmt.Fprintf(l.c.Err, "Delivery %s has a wrong signature; ignored\n", printable(d.ID))
		return
	}
	var to *outcome
	if l.target != "" {
		o := l.forward(ctx, d)
		if ctx.Err() != nil {
			return // it will be delivered again
		}
		to = &o
	}
	if l.c.JSON {
		line, _ := json.Marshal(struct {
			ID      string            `json:"id"`
			EventID string            `json:"eventId"`
			Event   string            `json:"event"`
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body"`
			Forward *outcome          `json:"forward,omitempty"`
		}{d.ID, d.EventID, d.Event, d.Headers, d.Body, to})
		fmt.Fprintln(l.c.Out, printable(string(line)))
		return
	}
	line := time.Now().Format("15:04:05") + "  " + d.Event + "  " + d.EventID
	switch {
	case to == nil:
	case to.Error != "":
		line += "  → " + to.Error
	default:
		line += fmt.Sprintf("  → %d in %d ms", to.Status, to.DurationMS)
	}
	fmt.Fprintf(l.c.Out, "%s\n%s\n", printable(line), printable(d.Body))
}

// forward sends a delivery to the target as the service would, and returns the result.
func (l *Listener) forward(ctx context.Context, d offered) (o outcome) {
	began := time.Now()
	defer func() { o.DurationMS = time.Since(began).Milliseconds() }()
	req, err := http.NewRequestWithContext(ctx, "POST", l.target, strings.NewReader(d.Body))
	if err != nil {
		return outcome{Error: err.Error()}
	}
	for name, v := range d.Headers {
		req.Header.Set(name, v)
	}
	resp, err := l.local.Do(req)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, maxLine)
	return outcome{Status: resp.StatusCode}
}

// printable makes untrusted text safe for a terminal.
func printable(s string) string { return text.Printable(s) }
