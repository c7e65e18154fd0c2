// Package manual owns what is generated from the commands: the manual page slipway(1) and the completion of words in
// shells.
package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Status is an exit status with its meaning.
type Status struct {
	Code  int
	Means string
}

// Page writes the manual page of all commands in the order of the help text.
func Page(w io.Writer, app *kong.Application, statuses []Status) error {
	var b strings.Builder
	name := strings.ToUpper(app.Name)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Slipway\" \"User Commands\"\n.SH NAME\n%s \\- %s\n", name, app.Name,
		roff(strings.TrimSuffix(app.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ arguments ]\n.RI [ flags ]\n", app.Name)
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n",
		roff("Each flag is also an environment variable, SLIPWAY_ and its name in capitals, unless it says otherwise, "+
			"and a key of the file that --config names; in that order."))
	b.WriteString(".SH FLAGS OF EVERY COMMAND\n")
	manualFlags(&b, app.Flags)
	group := ""
	for _, n := range leaves(app.Node) {
		if g := groupOf(n); g != group {
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roff(g)))
			group = g
		}
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(strings.TrimSpace(app.Name+" "+usage(n))), roff(n.Help))
		for _, p := range n.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(p.Name), roff(p.Help))
		}
		manualFlags(&b, n.Flags)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, s := range statuses {
		fmt.Fprintf(&b, ".TP\n%d\n%s\n", s.Code, roff(s.Means))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func manualFlags(b *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		fmt.Fprint(b, ".TP\n")
		if f.Short != 0 {
			fmt.Fprintf(b, ".BR \\-%c \", \" ", f.Short)
		} else {
			fmt.Fprint(b, ".BR ")
		}
		fmt.Fprintf(b, "\\-\\-%s", roff(f.Name))
		if !f.IsBool() {
			fmt.Fprintf(b, " \" %s\"", roff(f.FormatPlaceHolder()))
		}
		fmt.Fprintf(b, "\n%s\n", roff(f.Help))
	}
}

// leaves returns the commands without subcommands.
func leaves(n *kong.Node) (list []*kong.Node) {
	for _, c := range n.Children {
		switch {
		case c.Hidden:
		case len(c.Children) > 0:
			list = append(list, leaves(c)...)
		default:
			list = append(list, c)
		}
	}
	return list
}

// groupOf returns the group of a command or of its parent.
func groupOf(n *kong.Node) string {
	for ; n != nil; n = n.Parent {
		if n.Group != nil {
			return n.Group.Title
		}
	}
	return "Commands"
}

// usage returns a command's synopsis without flags.
func usage(n *kong.Node) string {
	words := ""
	for at := n; at.Parent != nil; at = at.Parent {
		words = at.Name + " " + words
	}
	for _, p := range n.Positional {
		words += p.Summary() + " "
	}
	return strings.TrimSpace(words)
}

// roff wraps text at 78 characters and escapes it for roff.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "\n", " ").Replace(s)
	var b strings.Builder
	width := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i > 0 && width+len(word) > 78:
			b.WriteByte('\n')
			width = 0
		case i > 0:
			b.WriteByte(' ')
			width++
		}
		if width == 0 && (word[0] == '.' || word[0] == '\'') {
			b.WriteString(`\&`)
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}
