package e2e

import (
	"bytes"
	"flag"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
)

var updateDocs = flag.Bool("update-docs", false, "write what the terminal shows into the guides, where it shows something else than they do")

// guidePage is a guide with blocks of a terminal, and what there is before the first of them.
type guidePage struct {
	name  string // in docs, without .md
	email string
	files map[string]string // in the home directory
	setup []string          // commands that aren't shown
	react func(w *world.World, shown string) string
}

// guidePages share an installation: their sites have different names.
var guidePages = []guidePage{
	{
		name: "cli-sign-in", email: "ada@example.com",
		files: map[string]string{"key.txt": "$KEY\n"},
	},
	{
		name: "cli-deploy", email: "bea@example.com",
		files: map[string]string{
			"harbor/index.html": "<h1>Harbor</h1>\n", "harbor/style.css": "h1 { color: navy }\n", "harbor/.env": "SECRET=1\n",
			"harbor/.gitignore": "*.log\n", "harbor/debug.log": "x\n",
		},
		setup: []string{signIn, "cd harbor"},
	},
}

// signIn signs a page's user in.
const signIn = `echo "$KEY" | slipway login --token https://slipway.example`

// terminalBlock is a block of a guide with commands and what the terminal shows.
var terminalBlock = regexp.MustCompile("(?ms)^```terminal\n(.*?)^```$")

// Guides show what the terminal shows: the commands of their blocks are run in order, at a terminal, against an installation.
// Run it with -update-docs to write what they show now.
func TestDocumentedTerminal(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range guidePages {
		known[p.name] = true
		t.Run(p.name, func(t *testing.T) { p.run(t, w) })
	}
	all, err := filepath.Glob(filepath.Join(world.Root(), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); terminalBlock.Match(text) && !known[name] {
			t.Errorf("%s shows a terminal, and no test runs its commands: add it to guidePages", name)
		}
	}
}

// run runs the commands of a page.
func (p guidePage) run(t *testing.T, w *world.World) {
	file := filepath.Join(world.Root(), "docs", p.name+".md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.User(p.email)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	files := map[string]string{}
	for name, content := range p.files {
		files[name] = strings.ReplaceAll(content, "$KEY", key)
	}
	if err := world.WriteFiles(home, files); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("https://slipway.example", "http://"+w.Listen, "$KEY", key)
	_, port, err := net.SplitHostPort(w.HTTPS)
	if err != nil {
		t.Fatal(err)
	}
	back := strings.NewReplacer("http://"+w.Listen, "https://slipway.example", ".localhost:"+port, ".slipway.example", home, "/home/ada", key, "slw_…")
	terminal := w.Terminal(home)
	command := func(line string) (shown string, status int) {
		t.Helper()
		terminal.React = p.reaction(t, w)
		ctx, cancel := deadline()
		defer cancel()
		shown, status, err := terminal.Run(ctx, names.Replace(line))
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, shown)
		}
		return back.Replace(shown), status
	}
	for _, line := range p.setup {
		if shown, status := command(line); status != 0 {
			t.Fatalf("%s ended with status %d:\n%s", line, status, shown)
		}
	}
	blocks := 0
	updated := terminalBlock.ReplaceAllFunc(text, func(block []byte) []byte {
		blocks++
		documented := string(terminalBlock.FindSubmatch(block)[1])
		var all strings.Builder
		for _, line := range commandsOf(documented) {
			shown, status := command(line)
			if failed := strings.Contains(shown, "slipway: "); failed != (status != 0) {
				t.Errorf("%s ended with status %d:\n%s", line, status, shown)
			}
			all.WriteString("$ " + line + "\n" + shown)
		}
		if masked(documented) == masked(all.String()) {
			return block
		}
		if !*updateDocs {
			t.Errorf("the terminal shows something else than the guide (to change the guide: -update-docs).\n--- terminal\n%s\n--- guide\n%s", all.String(), documented)
		}
		return []byte("```terminal\n" + all.String() + "```")
	})
	if blocks == 0 {
		t.Error("it shows no terminal")
	}
	if *updateDocs && !bytes.Equal(text, updated) {
		if err := os.WriteFile(file, updated, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// commandsOf returns those of a block: what follows "$ ", with the next line where one ends with a backslash.
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

// What differs from one run to the next, and what stands for it when a guide is compared.
var (
	differing = []struct {
		what *regexp.Regexp
		mask string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "DATE"},
		{regexp.MustCompile(`\d\d:\d\d:\d\d`), "TIME"},
		{regexp.MustCompile(`(\d+ (second|minute|hour|day)s? ago|just now)`), "AGO"},
		{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "DURATION"},
		{regexp.MustCompile(`\b([a-z]{2,6})_[0-9A-Za-z]{8,}`), "${1}_ID"},
		{regexp.MustCompile(`\b[0-9a-f]{7,64}\b`), "HASH"},
		{regexp.MustCompile(`\b[BCDFGHJKLMNPQRSTVWXZ]{4}-?[BCDFGHJKLMNPQRSTVWXZ]{4}\b`), "CODE"},
		{regexp.MustCompile(`\b[a-z2-7]{12}--`), "ID--"}, // of a deployment's address
		{regexp.MustCompile(` +\n`), "\n"},
		{regexp.MustCompile(`  +`), "  "}, // columns are as wide as what is in them
	}
)

func masked(text string) string {
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.mask)
	}
	return text
}

var deviceCode = regexp.MustCompile(`Open (\S+)\nand enter the code (\S+)\.`)

// reaction is what a person does about what a command shows, once for each.
func (p guidePage) reaction(t *testing.T, w *world.World) func(shown string) string {
	allowed := false
	return func(shown string) string {
		if found := deviceCode.FindStringSubmatch(shown); found != nil && !allowed {
			allowed = true
			person, err := w.Person(p.email)
			if err == nil {
				err = person.Device(found[1], found[2], "allow")
			}
			if err != nil {
				t.Error(err)
			}
		}
		if p.react != nil {
			return p.react(w, shown)
		}
		return ""
	}
}
