package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"slipway/internal/client/rest"
)

// logLine is a line of a deployment's or an application's log.
type logLine struct {
	Timestamp string
	Level     string
	Process   string
	Message   string
}

// text formats a line for people: time of day, source and text.
func (l logLine) text(e *Env) string {
	at := l.Timestamp
	if t, err := time.Parse(time.RFC3339, at); err == nil && e.TTY {
		at = t.Local().Format("15:04:05")
	}
	text := printable(l.Message)
	switch l.Level {
	case "error":
		text = e.color("31", text)
	case "warn":
		text = e.color("33", text)
	}
	if l.Process != "" {
		at += " " + printable(l.Process)
	}
	return e.color("2", at) + " " + text
}

type logsCommand struct {
	ofSite
	Deployment string `arg:"" optional:"" help:"Deployment whose log is shown, dep_… Default: the application's log."`
	Follow     bool   `env:"-" short:"f" help:"Go on with new lines until interrupted."`
	Since      string `env:"-" help:"Only lines of the application since then: 10m, 2h, or a time as in RFC 3339." placeholder:"TIME"`
	Search     string `env:"-" help:"Only lines of the application with this text." placeholder:"TEXT"`
	Level      string `env:"-" help:"Only lines of the application of this level or a worse one: debug, info, warn or error." enum:",debug,info,warn,error" default:"" placeholder:"LEVEL"`
	Tail       int    `env:"-" default:"100" help:"At most so many lines of the application, 1 to 1,000."`
}

// Run prints a log.
func (l logsCommand) Run(ctx context.Context, e *Env) error {
	var c *rest.Client
	var path string
	if l.Deployment != "" {
		var err error
		if c, err = l.client(e); err != nil {
			return failure(err)
		}
		path = "/deployments/" + url.PathEscape(l.Deployment) + "/logs"
	} else {
		var s site
		var err error
		if c, s, err = l.find(ctx, e); err != nil {
			return failure(err)
		}
		q := url.Values{"tail": {fmt.Sprint(l.Tail)}}
		if l.Since != "" {
			since, err := sinceTime(l.Since, time.Now())
			if err != nil {
				return err
			}
			q.Set("since", since)
		}
		for name, v := range map[string]string{"search": l.Search, "level": l.Level} {
			if v != "" {
				q.Set(name, v)
			}
		}
		path = "/sites/" + s.ID + "/logs?" + q.Encode()
	}
	if l.Follow {
		return failure(c.Stream(ctx, path, func(ev rest.Event) error {
			if ev.Name == "end" {
				return nil
			}
			return l.print(e, ev.Data)
		}))
	}
	for {
		var got struct {
			Logs []json.RawMessage
			Next *int64
		}
		if err := c.Get(ctx, path, &got); err != nil {
			return failure(err)
		}
		for _, line := range got.Logs {
			if err := l.print(e, line); err != nil {
				return err
			}
		}
		if got.Next == nil || l.Deployment == "" {
			return nil
		}
		path = fmt.Sprintf("/deployments/%s/logs?after=%d", url.PathEscape(l.Deployment), *got.Next)
	}
}

func (l logsCommand) print(e *Env, raw json.RawMessage) error {
	if l.JSON { // one object per line (NDJSON)
		_, err := fmt.Fprintf(e.Out, "%s\n", raw)
		return err
	}
	var line logLine
	if err := json.Unmarshal(raw, &line); err != nil {
		return fmt.Errorf("the log has a line that is no JSON: %w", err)
	}
	_, err := fmt.Fprintln(e.Out, line.text(e))
	return err
}

// sinceTime parses a duration before now, or a time.
func sinceTime(s string, now time.Time) (string, error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d).UTC().Format(time.RFC3339), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return "", fmt.Errorf("--since %q is neither a span such as 10m nor a time such as 2026-11-25T10:00:00Z", s)
	}
	return t.UTC().Format(time.RFC3339), nil
}
