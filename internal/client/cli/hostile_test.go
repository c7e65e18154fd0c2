package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/client/login"
)

// Without a login for it, a linked server gets no key, because the key may belong to another server.
func TestLinkGetsNoKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	e := &Env{Dir: t.TempDir(), Store: store}
	if err := e.writeLink(e.Dir, link{server.URL, "site_1", "harbor"}); err != nil {
		t.Fatal(err)
	}
	_, err = target{Token: "slw_x"}.client(e)
	var f *Failure
	if !errors.As(err, &f) || f.ExitCode() != exitAnswer || !strings.Contains(err.Error(), "--server "+server.URL) {
		t.Errorf("a key for the server of a link: %v", err)
	}
	if _, err := (target{Token: "slw_x", Server: server.URL}).client(e); err != nil {
		t.Errorf("with --server: %v", err)
	}
}

// Flags are read only from known variables, because builds have others such as SLIPWAY_BRANCH.
func TestFlagsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	known := []string{"SLIPWAY_TOKEN", "SLIPWAY_SERVER", "SLIPWAY_SITE", "SLIPWAY_CA_FILE"}
	seen := 0
	var look func(at string, x reflect.Type)
	look = func(at string, x reflect.Type) {
		for i := range x.NumField() {
			f := x.Field(i)
			_, command := f.Tag.Lookup("cmd")
			_, argument := f.Tag.Lookup("arg")
			switch env, ok := f.Tag.Lookup("env"); {
			case argument && env == "-": // which only works for flags
				t.Errorf("%s: help shows $- beside the argument %s", at, f.Name)
			case argument && !ok:
			case f.Anonymous || command:
				look(at+" "+strings.ToLower(f.Name), f.Type)
			case !f.IsExported():
			case !ok || env != "-" && !slices.Contains(known, env):
				t.Errorf("%s: the flag %s is read from the variable %q", at, f.Name, env)
			default:
				seen++
			}
		}
	}
	look("slipway", reflect.TypeFor[Commands]())
	if seen < 50 {
		t.Errorf("%d flags were looked at", seen)
	}
}

// Programs started by dev and env run don't inherit the key.
func TestChildrenGetNoKey(t *testing.T) {
	t.Setenv("SLIPWAY_TOKEN", "slw_canary")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data": []}`) }))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := &Env{In: strings.NewReader(""), Out: &out, Err: &out, Dir: t.TempDir(), Store: store}
	c, err := target{Token: "slw_canary", Server: server.URL}.client(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.with(t.Context(), c, site{ID: "site_1"}, []string{"env"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "PATH=") || strings.Contains(out.String(), "canary") {
		t.Errorf("the child has %s", out.String())
	}
}

// hostile returns a server with these answers, by method and path, and an Env signed in to it in a folder with these
// files. A content that begins with "-> " is a symbolic link.
func hostile(t *testing.T, answers map[string]string, files map[string]string) (e *Env, said *bytes.Buffer, asked func() string) {
	t.Helper()
	var mu sync.Mutex
	var log []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		line := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1")
		log = append(log, line)
		text, ok := answers[line]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "caches"))
	store := login.At(filepath.Join(home, "config", "slipway", "auth.json"))
	if err := store.Put(server.URL, login.Account{Key: "slw_x"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, "clone")
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(strings.ReplaceAll(text, "$SERVER", server.URL)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said = &bytes.Buffer{}
	asked = func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(log, "\n")
	}
	return &Env{In: strings.NewReader(""), Out: said, Err: said, Dir: dir, Store: store}, said, asked
}

const harbor = `{"id": "site_1", "name": "Harbor", "slug": "harbor", "source": "upload", "url": "https://harbor.example"}`

// The command line's writes don't follow a repository's symbolic links to other places.
func TestWritesFollowNoLink(t *testing.T) {
	answers := map[string]string{
		"POST /sites": `{"data": ` + harbor + `}`, "GET /sites/site_1": harbor,
		"GET /sites/site_1/env": `{"data": [{"key": "COMMAND", "value": "touch /tmp/x", "target": ["build"]}]}`,
	}
	init := func(e *Env) error { return initCommand{}.Run(t.Context(), e) }
	deploy := func(e *Env) error { return deployCommand{DryRun: true}.Run(t.Context(), e) }
	both := func(e *Env) error { return cmp.Or(init(e), deploy(e)) }
	pull := func(file string, force bool) func(e *Env) error {
		return func(e *Env) error {
			p := pullEnv{File: file, Force: force}
			p.Site = "site_1"
			return p.Run(t.Context(), e)
		}
	}
	install := func(agent string) func(e *Env) error {
		return func(e *Env) error { return installMCP{Client: agent}.Run(t.Context(), e) }
	}
	for name, tt := range map[string]struct {
		files map[string]string
		run   func(e *Env) error
		works bool // otherwise it ends with an error
	}{
		"cache":                  {map[string]string{".slipway/cache.new": "-> ../../victim/file", ".slipway/cache": "-> ../../victim/file"}, both, true},
		"ignore file":            {map[string]string{".slipway/.gitignore": "-> ../../victim/file"}, both, true},
		"link":                   {map[string]string{".slipway/project.json": "-> ../../victim/file"}, init, false},
		"new file":               {map[string]string{".slipway/.gitignore": "-> ../../victim/new"}, both, true},
		"folder":                 {map[string]string{".slipway": "-> ../victim"}, init, false},
		"folder of Git":          {map[string]string{".slipway": "-> .git", ".git/HEAD": "x"}, init, false},
		"variables":              {map[string]string{".env": "-> ../victim/pulled"}, pull(".env", false), false},
		"variables by force":     {map[string]string{".env": "-> ../victim/file"}, pull(".env", true), true},
		"variables in folder":    {map[string]string{"config": "-> ../victim"}, pull("config/.env", true), false},
		"Git's ignore file":      {map[string]string{".gitignore": "-> ../victim/file"}, pull(".env", false), false},
		"agent's settings":       {map[string]string{".mcp.json": "-> ../victim/settings"}, install("claude-code"), false},
		"agent's folder":         {map[string]string{".vscode": "-> ../victim"}, install("vscode"), false},
		"another agent's folder": {map[string]string{".cursor": "-> ../victim"}, install("cursor"), false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["index.html"] = "echo gotcha"
			e, said, _ := hostile(t, answers, tt.files)
			victim := filepath.Join(filepath.Dir(e.Dir), "victim")
			before := map[string]string{"file": "mine", "pulled": envHead, "settings": "{}", "mcp.json": "{}"}
			for name, text := range before {
				if err := os.MkdirAll(victim, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(victim, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if name == "Git's ignore file" {
				if out, err := exec.Command("git", "init", "-q", e.Dir).CombinedOutput(); err != nil {
					t.Fatalf("%v %s", err, out)
				}
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(e.Dir, "index.html"), old, old); err != nil {
				t.Fatal(err)
			}
			if err := tt.run(e); (err == nil) != tt.works {
				t.Errorf("it ends with %v\n%s", err, said)
			}
			entries, err := os.ReadDir(victim)
			if err != nil || len(entries) != len(before) {
				t.Errorf("beside the folder are %v, %v", entries, err)
			}
			for name, text := range before {
				if got, err := os.ReadFile(filepath.Join(victim, name)); err != nil || string(got) != text {
					t.Errorf("%s is %q, %v", name, got, err)
				}
			}
			if tt.works && name != "variables by force" {
				if text, err := os.ReadFile(filepath.Join(e.Dir, ".slipway", ".gitignore")); err != nil || string(text) != "*\n" {
					t.Errorf("the link is kept out of commits by %q, %v", text, err)
				}
			}
		})
	}
}

// A link file that came with a repository is used only after a person confirms it for this folder and site. Without a
// terminal, the error says what to type.
func TestForeignLink(t *testing.T) {
	project := `{"server": "$SERVER", "siteId": "site_1", "slug": "a-toy"}`
	answers := map[string]string{"GET /sites/site_1": harbor, "GET /sites/site_2": strings.ReplaceAll(harbor, "site_1", "site_2")}
	e, said, asked := hostile(t, answers, map[string]string{linkFile: project, "sub/index.html": "x"})
	status := func() (string, error) {
		said.Reset()
		err := getSite{}.Run(t.Context(), e)
		return said.String(), err
	}
	refused := func(when string) {
		t.Helper()
		var f *Failure
		if out, err := status(); !errors.As(err, &f) || f.ExitCode() != exitAnswer || !strings.Contains(err.Error(), "slipway link SITE") {
			t.Errorf("%s: %v\n%s", when, err, out)
		}
	}
	refused("a committed link")
	e.Dir = filepath.Join(e.Dir, "sub")
	refused("a committed link above the folder")
	if asked() != "" {
		t.Errorf("the server was asked for %s", asked())
	}
	g := getSite{}
	g.Site = "site_2"
	if err := g.Run(t.Context(), e); err != nil {
		t.Errorf("with --site: %v", err)
	}
	e.Ask, e.In = true, strings.NewReader("n\n")
	refused("an answer of no")
	if !strings.Contains(said.String(), "Harbor (https://harbor.example)") || strings.Contains(said.String(), "a-toy") {
		t.Errorf("the person is asked %s", said)
	}
	e.In = strings.NewReader("y\n")
	if out, err := status(); err != nil || !strings.Contains(out, "site_1") {
		t.Errorf("after yes: %v\n%s", err, out)
	}
	e.Ask = false
	if out, err := status(); err != nil || !strings.Contains(out, "site_1") {
		t.Errorf("the second time: %v\n%s", err, out)
	}
	top := filepath.Dir(e.Dir)
	text, err := os.ReadFile(filepath.Join(top, linkFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, linkFile), bytes.ReplaceAll(text, []byte("site_1"), []byte("site_2")), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("a link that changed to another site")
	if err := os.WriteFile(filepath.Join(top, linkFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(top+"-2", os.DirFS(top)); err != nil {
		t.Fatal(err)
	}
	e.Dir = top + "-2"
	refused("a copy of the folder")
	e.Dir = top
	if err := (unlinkCommand{}).Run(e); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, linkFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("a link that was removed here")
}

// A link file to a server without a login is refused without a question, because it would send a key there.
func TestForeignServer(t *testing.T) {
	e, said, asked := hostile(t, nil, map[string]string{linkFile: `{"server": "$SERVER", "siteId": "site_1", "slug": "harbor"}`})
	e.Store = login.At(filepath.Join(t.TempDir(), "auth.json"))
	e.Ask, e.In = true, strings.NewReader("y\n")
	g := getSite{}
	g.Token = "slw_canary"
	if err := g.Run(t.Context(), e); err == nil || !strings.Contains(err.Error(), "was not written on this machine") || asked() != "" {
		t.Errorf("it ends with %v\n%s%s", err, said, asked())
	}
	var w whoamiCommand
	w.Token = "slw_canary"
	if err := w.Run(t.Context(), e); !errors.Is(err, login.ErrSignedOut) || asked() != "" {
		t.Errorf("whoami ends with %v, asked for %s", err, asked())
	}
}

// Control characters in a server's errors, values and addresses never reach the terminal, in any command.
func TestOutputDrivesNoTerminal(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := &output{file: w, screen: true}
	e := &Env{Err: o}
	e.say("%s%s", "\x1b]0;title\x07\x1b[2J\r", e.color("31", "red"))
	if _, err := fmt.Fprint(&output{file: w}, "\x1b[2J"); err != nil { // in a pipe, bytes are unchanged
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if want := `\u001b]0;title\u0007\u001b[2J\u000dred` + "\n\x1b[2J"; err != nil || string(got) != want {
		t.Errorf("written is %q, %v, want %q", got, err, want)
	}
	if raw(o) != io.Writer(w) {
		t.Error("programs that are run here get no terminal")
	}
}

// Completions contain only plain words, whatever the sites' names, because a shell inserts them into the command line.
func TestCompletionIsPlainWords(t *testing.T) {
	var rows []string
	for _, slug := range []string{"harbor", "$(touch x)", "a b", "a;b", "--yes", "a\\nb", "", "`x`"} {
		rows = append(rows, fmt.Sprintf(`{"slug": "%s", "name": "N\u001b[2J\nx"}`, slug))
	}
	e, _, _ := hostile(t, map[string]string{"GET /sites": `{"data": [` + strings.Join(rows, ",") + `]}`}, map[string]string{"x": "x"})
	for _, from := range []string{"the server", "the cache"} {
		if list := e.siteNames(t.Context()); len(list) != 1 || list[0].Text != "harbor" || strings.ContainsAny(list[0].About, "\x1b\n") {
			t.Errorf("from %s: %q", from, list)
		}
	}
}

// Only web addresses are opened, because the system may run a program for other URLs.
func TestWebAddress(t *testing.T) {
	for in, works := range map[string]bool{
		"https://harbor.example": true, "http://harbor.localhost:8081/": true, "https://harbor.example/a%20b?c=d": true,
		"file:///etc/passwd": false, "javascript:alert(1)": false, "--help": false, "": false, "https:harbor.example": false, "https://": false,
		"https://a:b@harbor.example": false, "\\\\host\\share": false, "https://harbor.example\nx": false, "smb://host/share": false,
	} {
		if got, err := webAddress(in); (err == nil) != works || works && got != in {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	var o openCommand
	o.Site = "site_1"
	e, said, _ := hostile(t, map[string]string{"GET /sites/site_1": `{"id": "site_1", "url": "file:///bin/sh"}`}, map[string]string{"x": "x"})
	if err := o.Run(t.Context(), e); err == nil || said.Len() > 0 {
		t.Errorf("open ends with %v and prints %s", err, said)
	}
}

// A link file that can't be read counts as no link, and its folder can be linked again.
func TestOddLinks(t *testing.T) {
	answers := map[string]string{"POST /sites": `{"data": ` + harbor + `}`, "GET /sites/site_1": harbor}
	for name, files := range map[string]map[string]string{
		"no JSON": {linkFile: "x"}, "too large": {linkFile: `{"slug": "` + strings.Repeat("x", maxLink) + `"}`}, "a file for a folder": {".slipway": "x"},
	} {
		e, said, _ := hostile(t, answers, files)
		var f *Failure
		if err := (getSite{}).Run(t.Context(), e); !errors.As(err, &f) || f.ExitCode() != exitAnswer || !strings.Contains(err.Error(), "which site?") {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
		err := initCommand{}.Run(t.Context(), e)
		if err == nil {
			err = getSite{}.Run(t.Context(), e)
		}
		if (err == nil) != (name != "a file for a folder") {
			t.Errorf("%s: init ends with %v\n%s", name, err, said)
		}
	}
}
