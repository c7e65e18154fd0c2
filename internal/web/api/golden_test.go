package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden answers")

// shown lists the headers that golden responses include if present.
var shown = []string{"Content-Type", "Allow", "WWW-Authenticate", "Retry-After", "Idempotent-Replayed", "X-RateLimit-Limit"}

// TestGolden sends the files named "… request" of each testdata/*.txtar in order and compares each response with the "…
// answer" file that follows. IDs, times and secrets are numbered in order of appearance, and requests can use these
// names. "Key: a" sends the key of user a (all scopes); b is another user.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			keys := map[string]string{}
			for _, name := range []string{"a", "b"} {
				_, keys[name] = w.user(name + "@example.test")
			}
			var out []txtar.File
			names := renaming{real: map[string]string{}, count: map[string]int{}, shown: map[string]string{}}
			for i := 0; i < len(ar.Files); i++ {
				f := ar.Files[i]
				name, ok := strings.CutSuffix(f.Name, " request")
				if !ok {
					continue
				}
				got := names.hide(tell(t, w, keys, names.reveal(string(f.Data))))
				out = append(out, f, txtar.File{Name: name + " answer", Data: []byte(got)})
				want := ""
				if i+1 < len(ar.Files) && ar.Files[i+1].Name == name+" answer" {
					want = string(ar.Files[i+1].Data)
				}
				if got != want && !*update {
					t.Errorf("%s:\n--- got\n%s--- want\n%s", name, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(&txtar.Archive{Comment: ar.Comment, Files: out}), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// tell sends "METHOD /path", headers and, after an empty line, a body.
func tell(t *testing.T, w *world, keys map[string]string, text string) string {
	t.Helper()
	head, body, hasBody := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	key := ""
	var headers []string
	for _, l := range lines[1:] {
		if k, ok := strings.CutPrefix(l, "Key: "); ok {
			key = keys[k]
			continue
		}
		headers = append(headers, l)
	}
	var b any
	if hasBody {
		b = strings.TrimSpace(body)
	}
	a := w.send(method, path, key, b, headers...)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d %s\n", a.status, http.StatusText(a.status))
	for _, h := range shown {
		if v := a.header.Get(h); v != "" {
			fmt.Fprintf(&out, "%s: %s\n", h, v)
		}
	}
	if a.body != "" {
		out.WriteByte('\n')
		if err := json.Indent(&out, []byte(strings.TrimSpace(a.body)), "", "  "); err != nil {
			out.WriteString(a.body)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// renaming gives stable names to values that differ between runs.
type renaming struct {
	real  map[string]string // by name
	shown map[string]string // by real
	count map[string]int
}

var changing = regexp.MustCompile(
	`\b(site|dep|dom|hook|dhk|env|key|usr|req|evt|dlv|bkp)_[a-z2-7]{20,}|slw_[0-9A-Za-z]{6,}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|[a-z2-7]{12}--|slipway-[a-z2-7]{32}`,
)

func (r renaming) hide(s string) string {
	return changing.ReplaceAllStringFunc(s, func(v string) string {
		kind, _, ok := strings.Cut(v, "_")
		switch {
		case strings.HasSuffix(v, "--"):
			return "<label>--"
		case strings.HasPrefix(v, "slipway-"):
			return "<token>"
		case !ok:
			return "<time>"
		case kind == "req":
			return "<req>"
		}
		if r.shown[v] == "" {
			r.count[kind]++
			name := fmt.Sprintf("<%s%d>", kind, r.count[kind])
			r.shown[v], r.real[name] = name, v
		}
		return r.shown[v]
	})
}

func (r renaming) reveal(s string) string {
	for name, v := range r.real {
		s = strings.ReplaceAll(s, name, v)
	}
	return s
}
