package htaccess

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files of TestApplications anew")

const root = "/app/public"

// The .htaccess files of public applications are translated to the golden rules, which answer the listed requests
// correctly. A line of the requests is a path, perhaps after a method, and the result: another path, a status, "hidden"
// for a file that visitors never see, or "untouched" for one that is served without the rules.
func TestApplications(t *testing.T) {
	t.Parallel()
	apps, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(apps) < 30 {
		t.Fatalf("%d applications, %v", len(apps), err)
	}
	for _, name := range apps {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			app, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var folders []Folder
			var problems []string
			var files, requests string
			golden := -1
			for i, f := range app.Files {
				switch {
				case filepath.Base(f.Name) == ".htaccess":
					dir := strings.TrimSuffix(strings.TrimSuffix(f.Name, ".htaccess"), "/")
					folder, list := Translate(dir, string(f.Data))
					folders = append(folders, folder)
					for _, p := range list {
						if p.Fatal {
							t.Errorf("%s line %d: %s", f.Name, p.Line, p.Text)
						}
						problems = append(problems, fmt.Sprintf("%s line %d: %s", f.Name, p.Line, p.Text))
					}
				case f.Name == "files":
					files = string(f.Data)
				case f.Name == "requests":
					requests = string(f.Data)
				case f.Name == "golden":
					golden = i
				}
			}
			got := printed(folders, problems)
			switch {
			case golden >= 0 && string(app.Files[golden].Data) == got:
			case !*update:
				t.Errorf("run go test -update and look at the difference; the rules are\n%s", got)
			case golden < 0:
				app.Files = append(app.Files, txtar.File{Name: "golden", Data: []byte(got)})
			default:
				app.Files[golden].Data = []byte(got)
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(app), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := json.Marshal(folders)
			if err != nil {
				t.Fatal(err)
			}
			var read []Folder
			if err := json.Unmarshal(stored, &read); err != nil {
				t.Fatal(err)
			}
			m, err := Compile(read)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			for line := range strings.Lines(requests) {
				from, want, _ := strings.Cut(strings.TrimSpace(line), " = ")
				asked++
				if got := ask(t, m, strings.Fields(files), from); got != want && (want != "hidden" || !strings.HasPrefix(got, "hidden")) {
					t.Errorf("%s: %s, want %s", from, got, want)
				}
			}
			if asked == 0 {
				t.Error("nothing is asked for")
			}
		})
	}
}

func printed(folders []Folder, problems []string) string {
	var b strings.Builder
	for _, f := range folders {
		rules, aliases := f.Rules, f.Aliases
		f.Rules, f.Aliases = nil, nil
		lines := []any{f}
		for _, r := range rules {
			lines = append(lines, r)
		}
		for _, a := range aliases {
			lines = append(lines, a)
		}
		for _, v := range lines {
			var line strings.Builder
			e := json.NewEncoder(&line)
			e.SetEscapeHTML(false)
			_ = e.Encode(v)
			b.WriteString(line.String())
		}
	}
	for _, p := range problems {
		b.WriteString(p + "\n")
	}
	return b.String()
}

func ask(t *testing.T, m *Map, files []string, from string) string {
	t.Helper()
	method := http.MethodGet
	if before, after, ok := strings.Cut(from, " /"); ok && !strings.HasPrefix(from, "/") && !strings.HasPrefix(from, "http") {
		method, from = before, "/"+after
	}
	if strings.HasPrefix(from, "/") {
		from = "https://site.test" + from
	}
	u, err := url.Parse(strings.NewReplacer(" ", "%20", "<", "%3C", ">", "%3E").Replace(from))
	if err != nil {
		t.Fatal(err)
	}
	if name := strings.TrimPrefix(u.Path, "/"); slices.Contains(files, name) && u.RawQuery == "" && method == http.MethodGet {
		if m.Hides(name) {
			return "hidden"
		}
		if !m.Touches(name, root) {
			if out := m.Route(request(u, method, files)); out.Status != 0 || out.Path != u.Path {
				t.Errorf("%s is said to be untouched, and becomes %+v", from, out)
			}
			if !strings.HasSuffix(name, ".php") {
				return "untouched"
			}
		}
	}
	out := m.Route(request(u, method, files))
	switch {
	case out.Location != "":
		return fmt.Sprint(out.Status, " ", out.Location)
	case out.Status != 0:
		return fmt.Sprint(out.Status)
	case out.Query != "":
		return out.Path + "?" + out.Query
	}
	return out.Path
}

func request(u *url.URL, method string, files []string) Request {
	return Request{
		Method: method, Path: u.Path, Query: u.RawQuery, Asked: u.RequestURI(), Host: u.Host, HTTPS: u.Scheme == "https", Root: root,
		Remote: "192.0.2.1", Header: http.Header{}, Files: tree(files),
	}
}

// tree lists the files below root.
type tree []string

func (f tree) Stat(name string) Kind {
	rel, ok := strings.CutPrefix(name, root)
	rel = strings.Trim(rel, "/")
	switch {
	case !ok:
		return Nothing
	case rel == "":
		return Dir
	case slices.Contains(f, rel):
		return File
	case slices.ContainsFunc(f, func(name string) bool { return strings.HasPrefix(name, rel+"/") }):
		return Dir
	}
	return Nothing
}
