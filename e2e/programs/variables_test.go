package programs

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
	"slipway/internal/platform/dotenv"
)

// values are variables' values with characters that some parser may treat as special.
var values = []string{
	"plain", "", " blanks around ", "\ttab", "$HOME", "${HOME}", "$(id)", "`id`", "$$", "a # b", "#", "it's", `"quoted"`, `'both" kinds'`,
	`back\slash`, `\n`, `ends in \`, "two\nlines", "ends in a line\n", "\nbegins with one", "a\n\n# b\nC=d", "carriage\rreturn", "a=b=c",
	"%PATH%", "%s%d", "!x", "*", "~",
	"äöü 日本 😀", "\u2028", `{"a": "b$c"}`, "-----BEGIN KEY-----\nMIIB+/=\n-----END KEY-----\n", "a;b|c&d<e>f", strings.Repeat("x", 2000),
}

// show is a script that prints the variables whose names have these prefixes, and where it runs, one per line.
const show = "for (const k in process.env) if (/^(API|FORM|FILE|PUSH)_/.test(k)) " +
	"console.log('shown ' + process.argv[2] + ' ' + k + ' ' + Buffer.from(process.env[k]).toString('base64') + '.')"

// Variables keep their exact values, whether they are set with the API, the dashboard's form, its file import or env
// push, and wherever they are read: in builds, release commands, programs, one-off and scheduled commands, previews,
// the API and env pull.
func TestVariablesArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	s := appSite{install(t)}
	want := map[string]string{}
	file := func(prefix string) string {
		var vars []dotenv.Var
		for i, v := range values {
			vars = append(vars, dotenv.Var{Key: fmt.Sprint(prefix, i), Value: v})
			want[fmt.Sprint(prefix, i)] = v
		}
		return dotenv.Format(vars)
	}
	for i, v := range values {
		key := fmt.Sprint("API_", i)
		s.call("POST", "/sites/"+s.ID+"/env", map[string]any{"key": key, "value": v}, nil)
		want[key] = v
	}
	browser := s.signIn()
	post := func(path string, form url.Values) {
		t.Helper()
		a, err := world.Read(browser.PostForm("http://"+s.Listen+"/sites/"+s.ID+path, form))
		if err != nil || a.Status != 303 {
			t.Fatalf("%s %q: %d %.300s %v", path, form, a.Status, a.Body, err)
		}
	}
	for i, v := range values {
		key := fmt.Sprint("FORM_", i)
		post("/env", url.Values{"key": {key}, "value": {v}, "target": {"build", "runtime"}})
		want[key] = v
	}
	post("/env/import", url.Values{"text": {file("FILE_")}, "secrets": {"none"}, "step": {"apply"}})
	home := t.TempDir()
	cli := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), s.Binary, args...)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "SLIPWAY_TOKEN="+s.key, "SLIPWAY_SERVER=http://"+s.Listen)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "pushed"), []byte(file("PUSH_")), 0o600); err != nil {
		t.Fatal(err)
	}
	cli("env", "push", "--site", s.ID, "pushed")
	same := func(where string, got map[string]string) {
		t.Helper()
		for key, v := range want {
			if have, there := got[key]; !there || have != v {
				t.Errorf("%s: %s is %.80q (there: %v), want %.80q", where, key, have, there, v)
			}
		}
		for key := range got {
			if _, ours := want[key]; !ours {
				t.Errorf("%s: %s came from nowhere", where, key)
			}
		}
	}
	var list struct{ Data []struct{ Key, Value string } }
	got := map[string]string{}
	for page := 1; page == 1 || len(list.Data) > 0; page++ {
		list.Data = nil
		s.call("GET", fmt.Sprint("/sites/", s.ID, "/env?limit=100&page=", page), nil, &list)
		for _, v := range list.Data {
			got[v.Key] = v.Value
		}
		if len(list.Data) < 100 {
			break
		}
	}
	same("the API's answer", got)
	cli("env", "pull", "--site", s.ID, "pulled")
	text, err := os.ReadFile(filepath.Join(home, "pulled"))
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := dotenv.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	clear(got)
	for _, p := range pairs {
		got[p.Key] = p.Value
	}
	same("env pull", got)

	files := map[string]string{
		"show.js":      show,
		"package.json": `{"name": "app", "private": true, "scripts": {"start": "node ` + script + `", "build": "node show.js build"}}`,
		script: "const http = require('http')\nlet said = ''\nconst log = console.log\nconsole.log = x => { said += x + '\\n' }\n" +
			"process.argv[2] = 'start'\n" + show + "\nconsole.log = log\nhttp.createServer((q, r) => r.end(said)).listen(process.env.PORT)\n",
		"slipway.toml": "release = \"node show.js release\"\n[[cron]]\nname = \"every\"\nschedule = \"0 0 1 1 *\"\n" +
			"command = \"node show.js cron\"\n",
	}
	line := regexp.MustCompile(`shown ([a-z]+) ([A-Z]+_[0-9]+) ([A-Za-z0-9+/=]*)\.`)
	shown := func(stage, text string) map[string]string {
		t.Helper()
		got := map[string]string{}
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			b, err := base64.StdEncoding.DecodeString(m[3])
			if err != nil {
				t.Fatalf("%s: %q: %v", stage, m[0], err)
			}
			if m[1] == stage {
				got[m[2]] = string(b)
			}
		}
		return got
	}
	dir := t.TempDir()
	if err := world.WriteFiles(dir, files); err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{"main", "next"} {
		if _, err := s.Git.Commit("acme/app", branch, dir, "shows "+branch); err != nil {
			t.Fatal(err)
		}
		var out struct{ DeploymentID string }
		s.call("POST", "/sites/"+s.ID+"/deploy", map[string]any{"branch": branch}, &out)
		log := s.result(out.DeploymentID)
		same("a build of "+branch, shown("build", log))
		if branch == "main" {
			same("a release command", shown("release", log))
		}
		var d struct{ URL string }
		s.call("GET", "/deployments/"+out.DeploymentID, nil, &d)
		at := map[bool]string{true: s.URL, false: d.URL}[branch == "main"]
		var body string
		s.until("the program of "+branch, func() (bool, error) {
			a, err := world.Read(s.browser.Get(at))
			body = string(a.Body)
			return err == nil && a.Status == 200 && strings.HasPrefix(body, "shown "), errors.Join(err, fmt.Errorf("%d %.300s", a.Status, a.Body))
		})
		same("a program of "+branch, shown("start", body))
	}
	var op struct{ ID string }
	s.call("POST", "/sites/"+s.ID+"/commands", map[string]any{"command": "node show.js command"}, &op)
	same("a command", shown("command", s.operation(op.ID).Result.Output))
	s.call("POST", "/sites/"+s.ID+"/crons/every/run", nil, &op)
	same("a scheduled command", shown("cron", s.operation(op.ID).Result.Output))
}
