package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"slipway/internal/platform/text"
)

// printable makes untrusted text safe for a terminal.
func printable(s string) string { return text.Printable(s) }

// table prints rows: aligned with a header on a terminal, else tab-separated.
func (e *Env) table(header []string, rows [][]string) {
	var out io.Writer = e.Out
	if e.TTY {
		w := tabwriter.NewWriter(e.Out, 0, 0, 2, ' ', 0)
		defer w.Flush()
		out = w
		for i, h := range header {
			header[i] = strings.ToUpper(h)
		}
		fmt.Fprintln(out, strings.Join(header, "\t"))
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
}

// json prints an API response, indented on a terminal.
func (e *Env) json(v json.RawMessage) error {
	var b bytes.Buffer
	var err error
	if e.TTY {
		err = json.Indent(&b, v, "", "  ")
	} else {
		err = json.Compact(&b, v)
	}
	if err != nil {
		return fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err = e.Out.Write(b.Bytes())
	return err
}

// list prints a list as JSON.
func (e *Env) list(rows []json.RawMessage) error {
	if rows == nil {
		rows = []json.RawMessage{}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return e.json(b)
}

// decoded parses the items of a list.
func decoded[T any](all []json.RawMessage) ([]T, error) {
	list := make([]T, len(all))
	for i, raw := range all {
		if err := json.Unmarshal(raw, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// show prints a list: unchanged with --json, else one row per item.
func show[T any](e *Env, asJSON bool, all []json.RawMessage, header []string, row func(T) []string) error {
	if asJSON {
		return e.list(all)
	}
	list, err := decoded[T](all)
	if err != nil {
		return err
	}
	rows := make([][]string, len(list))
	for i, x := range list {
		rows[i] = row(x)
	}
	e.table(header, rows)
	return nil
}

// ago formats a time relative to now on a terminal; elsewhere it returns it unchanged.
func (e *Env) ago(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if !e.TTY || err != nil {
		return stamp
	}
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int(time.Since(t) / u.d); n > 0 {
			s := ""
			if n > 1 {
				s = "s"
			}
			return fmt.Sprintf("%d %s%s ago", n, u.name, s)
		}
	}
	return "just now"
}

// color colors a word on a terminal, unless NO_COLOR or TERM=dumb is set (https://no-color.org).
func (e *Env) color(code, word string) string {
	if !e.TTY || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return word
	}
	return "\x1b[" + code + "m" + word + "\x1b[0m"
}
