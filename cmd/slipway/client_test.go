package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Developers' machines are Macs and run Windows, too: there the program is the command line alone, without the server and its database.
// Its packages are type-checked for them. With an empty cache, compiling 240 packages for two more systems would hold up all tests;
// `make test-all` does.
func TestClientBuildsElsewhere(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"darwin/arm64", "windows/amd64"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			goos, arch, _ := strings.Cut(system, "/")
			run := func(args ...string) []byte {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
				}
				return out
			}
			out := run("list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard", ".")
			checked := imports{"unsafe": types.Unsafe}
			for list := json.NewDecoder(bytes.NewReader(out)); ; {
				var p listed
				if err := list.Decode(&p); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				for _, part := range []string{"server", "platform/db", "platform/sandbox", "tenant", "operator", "program"} {
					if strings.HasPrefix(p.ImportPath, "slipway/internal/"+part) {
						t.Errorf("it is built of %s", p.ImportPath)
					}
				}
				if err := checked.add(p, arch); err != nil {
					t.Fatal(err)
				}
			}
			if checked["slipway/cmd/slipway"] == nil {
				t.Error("the program itself was not checked")
			}
			if !testing.Short() {
				run("build", "-o", os.DevNull, ".")
			}
		})
	}
}

// An error is one line of bounded length, in which a server's words drive no terminal.
func TestSentences(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"one\n  two":            "one two",
		"\x1b]0;x\x07\r\x1b[2J": `\u001b]0;x\u0007 \u001b[2J`,
	} {
		if got := sentence(errors.New(in)); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := sentence(errors.New(strings.Repeat("x", 1<<20))); len(got) > maxComplaint+3 {
		t.Errorf("a sentence has %d bytes", len(got))
	}
}

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // what the standard library vendors
	Standard        bool
}

// imports are packages whose types are known.
type imports map[string]*types.Package

// add checks a package whose imports were added before. Of the standard library, bodies of functions are taken to be well.
func (i imports) add(p listed, arch string) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{
		IgnoreFuncBodies: p.Standard, Sizes: types.SizesFor("gc", arch),
		Importer: from(func(path string) (*types.Package, error) {
			if mapped := p.ImportMap[path]; mapped != "" {
				path = mapped
			}
			if i[path] == nil {
				return nil, fmt.Errorf("%s is not there", path)
			}
			return i[path], nil
		}),
	}
	checked, err := config.Check(p.ImportPath, set, files, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", p.ImportPath, err)
	}
	i[p.ImportPath] = checked
	return nil
}

type from func(path string) (*types.Package, error)

func (f from) Import(path string) (*types.Package, error) { return f(path) }
