// Command check runs everything that must be green, says what it runs and how long each
// step took, and ends with 1 if anything was not.
//
// A step that fails shows its whole output and the others still run, so that one run
// tells everything there is to mend.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"slipway/scripts/internal/machine"
)

// step is one thing that must be green: a command without output, or with any.
type step struct {
	name    string
	argv    []string
	env     []string // beside this process's own
	without []string // instead of argv where that ends with unavailable …
	lost    string   // … and what is not run then
	silent  bool     // any output is a failure
	shown   bool     // output appears as it comes
}

// pictures is the sheet of what the browser tests saw, for people to look at.
var pictures = filepath.Join(cmp.Or(os.Getenv("SLIPWAY_SHOTS"), "bin/shots"), "index.html")

const unavailable = 77 // exit status of withpostgres where there is no PostgreSQL

func main() {
	paint := machine.Colors(os.Stdout)
	if err := machine.Install("git", "bubblewrap", "curl", "nodejs", "npm", "chromium", "php-cli", "python3", "mariadb-server", "php-fpm", "php-gd", "php-mysql", "php", "wordpress", "wordpress-theme-twentytwentythree"); err != nil {
		fmt.Println(err)
	}
	if err := machine.Install("php-fpm", "php-curl", "php-mbstring", "composer"); err != nil { // what PHP sites run on
		fmt.Println(err)
	}
	os.Remove(pictures) // of an earlier run: no word of it if this one makes none
	root, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	started := time.Now()
	var failed, missing []string
	for _, s := range steps(root) {
		fmt.Printf("%s %s  %s\n", paint("36", "▸"), paint("1", s.name), paint("2", short(s.argv)))
		at := time.Now()
		err := s.run(s.argv)
		if s.without != nil && exitCode(err) == unavailable {
			missing = append(missing, s.lost)
			fmt.Printf("  %s\n", paint("33;1", "NOT RUN, what it needs is not there: "+s.lost))
			err = s.run(s.without)
		}
		switch {
		case err == nil:
			fmt.Printf("  %s %s\n", paint("32", "ok"), paint("2", took(at)))
		default:
			failed = append(failed, s.name)
			fmt.Printf("  %s %s (%v)\n", paint("31;1", "FAILED"), paint("2", took(at)), err)
		}
	}
	fmt.Println()
	for _, name := range missing {
		fmt.Printf("%s %s was not run\n", paint("33;1", "NOTE"), name)
	}
	if _, err := os.Stat(pictures); err == nil {
		fmt.Printf("What the pages look like: %s\n", paint("36", pictures))
	}
	if len(failed) > 0 {
		fmt.Printf("%s in %s: %s\n", paint("31;1", "not green"), took(started), strings.Join(failed, ", "))
		os.Exit(1)
	}
	fmt.Printf("%s in %s\n", paint("32;1", "green"), took(started))
}

// tags are of tests that need more than Go: a browser, and linters from the npm registry.
const tags = "-tags=browser,lint"

func steps(root string) []step {
	bin := func(name string) string { return filepath.Join(root, "bin", name) }
	// Tests of one package run side by side, too: more packages at once would be no faster, and meet their limits of time.
	tests := []string{"go", "test", "-count=1", "-timeout=20m", "-vet=off", tags, fmt.Sprintf("-p=%d", runtime.NumCPU()), "-exec=" + bin("ondatabases"), "./..."}
	return []step{
		{name: "formatting", argv: []string{"gofmt", "-l", "."}, silent: true},
		{name: "modules", argv: []string{"go", "mod", "tidy", "-diff"}},
		{name: "go vet", argv: []string{"go", "vet", tags, "./..."}},
		{name: "staticcheck", argv: []string{"go", "tool", "-modfile=tools/go.mod", "staticcheck", tags, "./..."}},
		{name: "tools", argv: []string{"go", "build", "-o", "bin/", "./scripts/withpostgres", "./scripts/ondatabases"}}, // go run would hide its exit status
		{name: "program", argv: []string{"go", "build", "-o", "bin/e2e/", "./cmd/slipway", "./scripts/try"}},
		// Everything once, and what needs a database once more on PostgreSQL.
		{name: "tests", argv: append([]string{bin("withpostgres")}, tests...), without: tests, lost: "services on PostgreSQL", shown: true,
			env: []string{"CGO_ENABLED=0", "SLIPWAY_E2E_BUILT=" + bin("e2e"), "SLIPWAY_TEST_BOTH=" + strings.Join(folders("slipway/internal/dbtest"), string(filepath.ListSeparator))}},
	}
}

// folders returns those of the packages whose tests import the one named.
func folders(imported string) []string {
	out, err := exec.Command("go", "list", tags, "-f", "{{.Dir}} {{.TestImports}} {{.XTestImports}}", "./internal/...").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go list:", err)
		return nil
	}
	return importing(string(out), imported)
}

// importing reads lines of a folder and what its tests import, in brackets.
func importing(list, imported string) (found []string) {
	for line := range strings.Lines(list) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " [")
		imports = "[" + imports
		if strings.Contains(strings.NewReplacer("[", " ", "]", " ").Replace(imports)+" ", " "+imported+" ") {
			found = append(found, path)
		}
	}
	return found
}

func (s step) run(argv []string) error {
	var kept bytes.Buffer
	out := io.Writer(&kept)
	if s.shown {
		out = &indented{to: os.Stdout}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if err == nil && s.silent && kept.Len() > 0 {
		err = errors.New("these are not as they must be")
	}
	if err != nil {
		(&indented{to: os.Stdout}).Write(kept.Bytes())
	}
	return err
}

// indented puts two spaces before each line, and leaves out packages without tests.
type indented struct {
	to   io.Writer
	line []byte
}

func (w *indented) Write(p []byte) (int, error) {
	w.line = append(w.line, p...)
	for {
		i := bytes.IndexByte(w.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		if line := w.line[:i+1]; !bytes.Contains(line, []byte("[no test files]")) {
			fmt.Fprintf(w.to, "  %s", line)
		}
		w.line = w.line[i+1:]
	}
}

// exitCode is a command's exit status, or -1 where it has none.
func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}

func took(since time.Time) string { return time.Since(since).Round(100 * time.Millisecond).String() }

// short keeps a long command on one line.
func short(argv []string) string {
	s := strings.Join(argv, " ")
	if len(s) > 90 {
		s = s[:87] + "…"
	}
	return s
}
