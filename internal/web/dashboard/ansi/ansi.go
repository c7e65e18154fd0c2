// Package ansi owns the HTML of log lines with terminal colors: spans with classes of site.css.
package ansi

import (
	"html/template"
	"strconv"
	"strings"

	"slipway/internal/build/buildlog"
	"slipway/internal/web/dashboard/shell"
)

// class returns a style's classes in site.css.
func class(k buildlog.Style) string {
	fore, back := k.Fore, k.Back
	if k.Inverse {
		fore, back = back, fore
		if fore == 0 && back == 0 {
			return "inv" // swap the page's colors
		}
	}
	var out []string
	if fore > 0 {
		out = append(out, "f"+strconv.Itoa(fore-1))
	}
	if back > 0 {
		out = append(out, "b"+strconv.Itoa(back-1))
	}
	for _, x := range []struct {
		on   bool
		name string
	}{{k.Bold, "bo"}, {k.Faint, "fa"}, {k.Italic, "it"}, {k.Under, "un"}, {k.Struck, "st"}} {
		if x.on {
			out = append(out, x.name)
		}
	}
	return strings.Join(out, " ")
}

// Write writes a line with spans for its terminal colors.
func Write(b *strings.Builder, raw string) {
	for style, text := range buildlog.Spans(raw) {
		text = template.HTMLEscapeString(text)
		if c := class(style); c != "" {
			text = `<span class="` + c + `">` + text + `</span>`
		}
		b.WriteString(text)
	}
}

// WritePlain writes escaped text without control characters other than tab.
func WritePlain(b *strings.Builder, text string) {
	b.WriteString(template.HTMLEscapeString(shell.Clean(text)))
}
