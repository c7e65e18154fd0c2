// Command licenses collects the licenses of what is linked into Slipway's programs and embedded in its pages, in
// packaging/licenses.gz: a list, and the texts.
//
// Without -update, it fails if that file is out of date. It always fails if a module has no license, a text doesn't
// exactly match a known one, or a license isn't allowed.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"slipway/packaging"
)

func main() {
	update := flag.Bool("update", false, "write packaging/licenses.gz")
	flag.Parse()
	if err := run(*update); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

const file = "packaging/licenses.gz"

func run(update bool) error {
	all, err := collect(programs)
	if err != nil {
		return err
	}
	text, err := render(all)
	if err != nil {
		return err
	}
	if update {
		return write(text)
	}
	if packaging.Licenses() != text {
		return errors.New(file + " is out of date: go run ./scripts/licenses -update")
	}
	return nil
}

func write(text string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err = z.Write([]byte(text)); err == nil {
		err = z.Close()
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// program is a shipped program.
type program struct {
	folder   string // of its module
	packages []string
	systems  []string // GOOS/GOARCH
}

var (
	linux = []string{"linux/amd64", "linux/arm64"}
	// slipway comes first, because most installations have only its programs.
	slipway  = program{".", []string{"./cmd/slipway", "./cmd/slipway-init"}, append([]string{"darwin/arm64", "windows/amd64"}, linux...)}
	programs = []program{
		slipway,
		{"terraform", []string{"."}, append([]string{"darwin/arm64", "windows/amd64"}, linux...)},
		{"cluster", []string{"./cmd/slipway-cluster", "./cmd/slipway-program", "./cmd/slipway-build"}, linux},
	}
)

// part is a shipped component: a module, or files in this repository.
type part struct {
	name  string
	files []string // with its license texts
}

// embedded lists components that aren't modules.
var embedded = []part{
	{"Slipway", []string{"LICENSE", "NOTICE"}},
	{"Inter (typeface of the dashboard)", []string{"internal/web/dashboard/assets/inter-license.txt"}},
	{"xterm.js (terminal of the dashboard)", []string{"internal/web/dashboard/assets/xterm-license.txt"}},
	{"Podman (seccomp profile of the image)", []string{"packaging/image/seccomp.LICENSE"}},
}

// collect returns all components of programs, sorted by name.
func collect(programs []program) ([]part, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	found := map[string]map[string]bool{"Go (runtime and standard library)": {filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE"): true}}
	for _, p := range programs {
		for _, system := range p.systems {
			if err := p.modules(system, found); err != nil {
				return nil, err
			}
		}
	}
	all := slices.Clone(embedded)
	for name, files := range found {
		one := part{name: name}
		for file := range files {
			one.files = append(one.files, file)
		}
		slices.Sort(one.files)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) })
	return all, nil
}

// legal matches the names of license and notice files.
var legal = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense|notice|patents)([-.][a-z0-9_-]+)*?(\.(txt|md|libyaml))?$`)

// modules adds the modules of a program's packages, with the legal files in each package's folder and its parents.
func (p program) modules(system string, found map[string]map[string]bool) error {
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.Command("go", append([]string{
		"-C", p.folder, "list", "-deps",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}\t{{.Dir}}",
	}, p.packages...)...)
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages of %s for %s: %w", p.folder, system, err)
	}
	for line := range strings.Lines(string(out)) {
		at := strings.Split(strings.TrimSpace(line), "\t")
		if len(at) != 3 || at[0] == "slipway" {
			continue
		}
		if found[at[0]] == nil {
			found[at[0]] = map[string]bool{}
		}
		for dir := at[2]; strings.HasPrefix(dir, at[1]); dir = filepath.Dir(dir) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if legal.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" && e.Type().IsRegular() {
					found[at[0]][filepath.Join(dir, e.Name())] = true
				}
			}
		}
	}
	return nil
}

// render returns the list and the texts, each once.
func render(all []part) (string, error) {
	var list, texts strings.Builder
	var errs []error
	type entry struct {
		text  string
		parts []string
	}
	var entries []*entry
	for _, p := range all {
		var ids []string
		for _, file := range p.files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(raw), "\r\n", "\n"))
			id, err := identify(filepath.Base(file), text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", p.name, file, err))
			}
			for one := range strings.SplitSeq(id, " AND ") {
				if one != "" && !slices.Contains(ids, one) {
					ids = append(ids, one)
				}
			}
			i := slices.IndexFunc(entries, func(e *entry) bool { return e.text == text })
			if i < 0 {
				i, entries = len(entries), append(entries, &entry{text: text})
			}
			if !slices.Contains(entries[i].parts, p.name) {
				entries[i].parts = append(entries[i].parts, p.name)
			}
		}
		if len(ids) == 0 {
			errs = append(errs, fmt.Errorf("%s: it has no license: %w", p.name, fs.ErrNotExist))
		}
		fmt.Fprintf(&list, "%-28s  %s\n", strings.Join(ids, " AND "), p.name)
	}
	for _, e := range entries {
		fmt.Fprintf(&texts, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(e.parts, "\n"), e.text)
	}
	return list.String() + texts.String(), errors.Join(errs...)
}
