package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Guide is a page of docs with terminal blocks: commands, each after "$ ", and their output.
type Guide struct {
	Name    string                            // name of the file, without .md
	Key     string                            // API key of an existing user. Optional: by default, Email gets one.
	Email   string                            // the user, who has an account and the API key $KEY
	Files   map[string]string                 // in the home directory
	Setup   []string                          // commands that run before the first of the page
	Replace []string                          // pairs of the page's text and what replaces it in commands and output. Optional.
	React   func(shown string) (typed string) // returns what to type when a command shows this. Optional.
}

// SignIn is the command with which a guide's user signs in.
const SignIn = `printf %s "$KEY" | slipway login --token https://slipway.example`

// TerminalBlock matches a terminal block of a guide.
var TerminalBlock = regexp.MustCompile("(?ms)^```terminal\n(.*?)^```$")

// GuidePath returns the file of a guide.
func GuidePath(name string) string { return filepath.Join(Root(), "docs", name+".md") }

// RunGuide runs a guide's commands in order, at a terminal in an empty directory, and compares the output with the
// guide's. With update, it writes the output into the guide instead.
func (w *World) RunGuide(ctx context.Context, g Guide, home string, update bool) error {
	text, err := os.ReadFile(GuidePath(g.Name))
	if err != nil {
		return err
	}
	key := g.Key
	if key == "" {
		if key, err = w.User(g.Email); err != nil {
			return err
		}
	}
	files := map[string]string{}
	for name, content := range g.Files {
		files[name] = strings.ReplaceAll(content, "$KEY", key)
	}
	if err := WriteFiles(home, files); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(w.HTTPS)
	if err != nil {
		return err
	}
	there := append(g.Replace, "https://slipway.example", "http://"+w.Listen, "$KEY", key)
	back := []string{"http://" + w.Listen, "https://slipway.example", ".localhost:" + port, ".slipway.example", ".localhost", ".slipway.example", home, "/home/ada", key, "slw_…"}
	for i := 0; i < len(g.Replace); i += 2 {
		back = append(back, g.Replace[i+1], g.Replace[i])
	}
	terminal := w.Terminal(home)
	command := func(line string) (shown string, status int, err error) {
		terminal.React = w.reaction(g)
		ctx, cancel := context.WithTimeout(ctx, Patience(2*time.Minute))
		defer cancel()
		shown, status, err = terminal.Run(ctx, strings.NewReplacer(there...).Replace(line))
		shown = strings.NewReplacer(back...).Replace(shown)
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", line, err, shown)
		}
		return shown, status, err
	}
	for _, line := range g.Setup {
		if shown, status, err := command(line); err != nil || status != 0 {
			return errors.Join(err, fmt.Errorf("%s ended with status %d:\n%s", line, status, shown))
		}
	}
	var wrong error
	updated := TerminalBlock.ReplaceAllFunc(text, func(block []byte) []byte {
		documented := string(TerminalBlock.FindSubmatch(block)[1])
		var all strings.Builder
		for _, line := range commandsOf(documented) {
			shown, status, err := command(line)
			if failed := strings.Contains(shown, "slipway: "); err == nil && failed != (status != 0) {
				err = fmt.Errorf("%s ended with status %d:\n%s", line, status, shown)
			}
			if err != nil {
				wrong = errors.Join(wrong, err)
				return block
			}
			all.WriteString("$ " + line + "\n" + shown)
			if shown != "" && !strings.HasSuffix(shown, "\n") {
				all.WriteByte('\n')
			}
		}
		if masked(documented) == masked(all.String()) {
			return block
		}
		if !update {
			wrong = errors.Join(wrong, fmt.Errorf("the terminal shows something else than the guide (-update-docs writes it into the guide)\n"+
				"--- terminal\n%s\n--- guide\n%s", all.String(), documented))
		}
		return []byte("```terminal\n" + all.String() + "```")
	})
	if wrong == nil && update && !bytes.Equal(text, updated) {
		return os.WriteFile(GuidePath(g.Name), updated, 0o644)
	}
	return wrong
}

// commandsOf returns the commands of a block: the lines after "$ ", with continuations after a backslash.
func commandsOf(block string) (list []string) {
	open := false
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		rest, starts := strings.CutPrefix(line, "$ ")
		switch {
		case open:
			list[len(list)-1] += "\n" + line
		case starts:
			list = append(list, rest)
		default:
			continue
		}
		open = strings.HasSuffix(line, "\\")
	}
	return list
}

// Patterns of text that differs between runs, with their replacements for the comparison.
var (
	differing = []struct {
		what *regexp.Regexp
		mask string
	}{
		{regexp.MustCompile(`\bwhsec_[0-9A-Za-z+/=]+`), "SECRET"},
		{regexp.MustCompile(`\bslipway-login=[0-9A-Za-z_-]+`), "LOGIN"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "DATE"},
		{regexp.MustCompile(`\d\d:\d\d:\d\d`), "TIME"},
		{regexp.MustCompile(`(\d+ (second|minute|hour|day)s? ago|just now)`), "AGO"},
		{regexp.MustCompile(`AGO +AGO`), "AGO"}, // a backup may not be verified yet when it is listed
		{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "DURATION"},
		{regexp.MustCompile(`\b\d+(\.\d+)? (bytes|KiB|MiB)`), "SIZE"},
		{regexp.MustCompile(`\b\d+(\.\d+)+\b`), "VERSION"},
		{regexp.MustCompile(`\bslipway-[0-9a-z]{16,}\b`), "PROOF"},
		{regexp.MustCompile(`\b([a-z]{2,6})_[0-9A-Za-z]{8,}`), "${1}_ID"},
		{regexp.MustCompile(`\b[0-9a-f]{7,64}\b`), "HASH"},
		{regexp.MustCompile(`\b[BCDFGHJKLMNPQRSTVWXZ]{4}-?[BCDFGHJKLMNPQRSTVWXZ]{4}\b`), "CODE"},
		{regexp.MustCompile(`\b[a-z2-7]{12}--`), "ID--"}, // of a deployment's host name
		{regexp.MustCompile(` +\n`), "\n"},
		{regexp.MustCompile(`  +`), "  "}, // columns are as wide as their content
	}
)

func masked(text string) string {
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.mask)
	}
	return text
}

var deviceCode = regexp.MustCompile(`Open (\S+)\nand enter the code (\S+)\.`)

// reaction returns what the guide's user does when a command shows a text.
func (w *World) reaction(g Guide) func(shown string) string {
	allowed := false
	return func(shown string) string {
		if found := deviceCode.FindStringSubmatch(shown); found != nil && !allowed {
			allowed = true
			person, err := w.Person(g.Email)
			if err == nil {
				err = person.Device(found[1], found[2], "allow")
			}
			if err != nil {
				return "\x03" // Ctrl-C: the access wasn't allowed
			}
		}
		if g.React != nil {
			return g.React(shown)
		}
		return ""
	}
}
