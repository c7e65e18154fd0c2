// Package ansi owns how the terminal colors of a log line look on a page: as spans with the classes of site.css.
package ansi

import (
	"html/template"
	"strconv"
	"strings"

	"slipway/internal/build/buildlog"
	"slipway/internal/web/dashboard/shell"
)

// class returns a style's class names in site.css.
func class(k buildlog.Style) string {
	fore, back := k.Fore, k.Back
	if k.Inverse {
		fore, back = back, fore
		if fore == 0 && back == 0 {
			return "inv" // the page's own colors, swapped
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

// Write writes a line with its terminal colors as spans with classes.
func Write(b *strings.Builder, raw string) {
	for style, text := range buildlog.Spans(raw) {
		text = template.HTMLEscapeString(text)
		if c := class(style); c != "" {
			text = `<span class="` + c + `">` + text + `</span>`
		}
		b.WriteString(text)
	}
}

// WritePlain writes text without any markup of its own: control characters but tab go.
func WritePlain(b *strings.Builder, text string) {
	b.WriteString(template.HTMLEscapeString(shell.Clean(text)))
}
