package builds

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

func worldGet(key, path string) world.Request {
	return world.Request{Method: "GET", Path: path, Key: key}
}

// hostile returns n strings that some program might interpret, such as shell commands, paths or markup. A command in
// them would create a file with the canary's name.
func hostile(n int, canary string) []string {
	r := rand.New(rand.NewPCG(7, 7)) // the same in every run
	touch := "touch " + canary
	cores := []string{
		"$(" + touch + ")",
		"`" + touch + "`",
		"; " + touch + " ;",
		"| " + touch,
		"&& " + touch,
		"|| " + touch,
		"& " + touch + " &",
		"\n" + touch + "\n",
		"\r\n" + touch,
		"';" + touch + ";'",
		"\";" + touch + ";\"",
		"$(" + touch + " 2>&1)",
		"${IFS}" + touch,
		"{" + strings.ReplaceAll(touch, " ", ",") + "}",
		"<(" + touch + ")",
		"> " + canary,
		">> " + canary,
		"2>" + canary,
		"--upload-pack=" + touch,
		"--output=" + canary,
		"-o" + canary,
		"--exec=" + touch,
		"-c core.sshCommand='" + touch + "'",
		"-u" + touch,
		"--config=core.pager=" + touch,
		"--", "-", "--help", "--args 3", "--bind / /", "--ro-bind / /build",
		"ext::sh -c '" + touch + "'",
		"file:///etc",
		"ssh://-oProxyCommand=" + touch + "/x",
		"fd::17",
		"-oProxyCommand=" + touch,
		"git@-oProxyCommand=" + touch + ":x/y",
		"../../../../../../../../" + canary,
		"..\\..\\" + canary,
		"/etc/passwd", "/proc/self/environ", "....//....//etc/passwd", "%2e%2e%2f%2e%2e%2f", "file/../../..",
		".git/config", ".git/hooks/post-checkout", "refs/heads/../../x", "a..b", "@{-1}", "HEAD@{1}", "x.lock", "a//b",
		"~root", "*", "?", "[a-z]", "^{commit}", ":/x", "\x00",
		"a\x00" + touch,
		"\x1b[2J\x1b]0;" + touch + "\a",
		"\u202egnp.exe", "\ufeff", "é́́́", "𝕬𝖇𝖈", "İ", "ß", "\u2028", "\U0010ffff", "日本語", "🏴‍☠️", "ＡＢＣ", "a\u0000b",
		"\t", " ", "", "\x7f", "\\", "\"", "'", "' OR 1=1 --", "\"; DROP TABLE sites; --", "$1", "{{.}}", "{{7*7}}",
		"${7*7}", "<script>alert(1)</script>", "%s%n%x", "%0a", "null", "true", "-1", "1e999", "NaN",
		"[object Object]", "__proto__", "constructor", "PATH=/tmp",
		"LD_PRELOAD=" + canary,
		"NODE_OPTIONS=--require=" + canary,
		"GIT_SSH_COMMAND=" + touch,
		"BASH_ENV=" + canary,
		"IFS=/",
	}
	out := make([]string, 0, n)
	for i := 0; len(out) < n; i++ {
		s := cores[i%len(cores)]
		switch i / len(cores) {
		case 0:
		case 1:
			s = "main" + s
		case 2:
			s += cores[r.IntN(len(cores))]
		case 3:
			s = strings.Repeat(s, 1+r.IntN(300))
		default:
			for range 1 + r.IntN(4) {
				s = cores[r.IntN(len(cores))] + s
			}
			if r.IntN(8) == 0 {
				s += strings.Repeat("A", r.IntN(70_000))
			}
		}
		out = append(out, s)
	}
	return out
}

// calledWith calls a deploy hook and checks that the build gets exactly the same title and body.
func (h *harness) calledWith(s aSite, url, title, body string) {
	h.t.Helper()
	a, err := h.Do(context.Background(), world.Request{Method: "POST", URL: url + "?title=" + neturl.QueryEscape(title), Body: body})
	var out struct{ DeploymentID string }
	if err != nil || a.Status != 200 || a.JSON(&out) != nil {
		h.t.Fatalf("call of the deploy hook: %v %d %s", err, a.Status, a.Body)
	}
	d := h.built(s, out.DeploymentID)
	h.shows(d.URL, "ok "+title+"|"+body+"|")
}

// Hostile strings in any field get a well-formed response and no command in them runs: no file with the canary's name
// is created.
func TestHostileStrings(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := newHarness(t, 0, "--builds", "2")
	h.commit("acme/site", shell(`mkdir dist; printf 'ok %s|%s|' "$SLIPWAY_HOOK_TITLE" "$SLIPWAY_HOOK_BODY" > dist/index.html`))
	s := h.site("acme/site", nil)
	h.built(s, h.first(s))
	var hook struct{ URL string }
	h.call(h.key, "POST", "/sites/"+s.ID+"/hooks", map[string]any{"name": "ci"}, &hook)
	h.calledWith(s, hook.URL, "a title; touch $(pwd)/x", "{\"body\": \"$(touch x) `touch x` 'quoted' \\\\ \u2028\"}\nits second line")
	h.calledWith(s, hook.URL, "", "")
	var loose struct{ ID, URL string }
	h.call(h.key, "POST", "/sites/"+s.ID+"/hooks", map[string]any{"name": "any", "anyBranch": true}, &loose)

	canary := "slipway-canary-" + fmt.Sprint(os.Getpid())
	env := func(key, value string) world.Request {
		return world.Request{
			Method: "POST",
			Path:   "/sites/" + s.ID + "/env",
			Body:   map[string]any{"key": key, "value": value, "target": []string{"build"}},
		}
	}
	build := func(field string) func(string) world.Request {
		return func(v string) world.Request {
			return world.Request{Method: "PATCH", Path: "/sites/" + s.ID, Body: map[string]any{"build": map[string]any{field: v}}}
		}
	}
	fields := []struct {
		name string
		send func(v string) world.Request
	}{
		{"branch of a site", func(v string) world.Request {
			return world.Request{Method: "PATCH", Path: "/sites/" + s.ID, Body: map[string]any{"branch": v}}
		}},
		{"branch of a deployment", func(v string) world.Request {
			return world.Request{Method: "POST", Path: "/sites/" + s.ID + "/deploy", Body: map[string]any{"branch": v}}
		}},
		{"title", func(v string) world.Request {
			return world.Request{Method: "POST", Path: "/sites/" + s.ID + "/deploy", Body: map[string]any{"title": v}}
		}},
		{"repository", func(v string) world.Request {
			return world.Request{Method: "POST", Path: "/sites", Body: map[string]any{"name": "x", "type": "static", "repository": v}}
		}},
		{"repository's path", func(v string) world.Request {
			return world.Request{
				Method: "POST",
				Path:   "/sites",
				Body:   map[string]any{"name": "x", "type": "static", "repository": "git.test/acme/" + v},
			}
		}},
		{"name", func(v string) world.Request {
			return world.Request{
				Method: "POST",
				Path:   "/sites",
				Body:   map[string]any{"name": v, "type": "static", "repository": "git.test/acme/site", "branch": "nowhere"},
			}
		}},
		{"root", build("root")},
		{"output", build("output")},
		{"node", build("node")},
		{"install", build("install")},
		{"command", build("command")},
		{"env key", func(v string) world.Request { return env(v, "x") }},
		{"env value", func(v string) world.Request { return env("SOME_KEY", v) }},
		{"env value of NODE_OPTIONS", func(v string) world.Request { return env("NODE_OPTIONS", v) }},
		{"env value of PATH", func(v string) world.Request { return env("PATH", v) }},
		{"hook's branch", func(v string) world.Request {
			return world.Request{Method: "POST", URL: loose.URL + "?branch=" + neturl.QueryEscape(v)}
		}},
		{"hook's title", func(v string) world.Request {
			return world.Request{
				Method: "POST",
				URL:    hook.URL + "?trigger_title=" + neturl.QueryEscape(v) + "&clear_cache=" + neturl.QueryEscape(v),
			}
		}},
		{"hook's name", func(v string) world.Request {
			return world.Request{Method: "PATCH", Path: "/hooks/" + loose.ID, Body: map[string]any{"name": v, "branch": v}}
		}},
		{"framework", func(v string) world.Request {
			return world.Request{Method: "PATCH", Path: "/sites/" + s.ID, Body: map[string]any{"framework": v}}
		}},
	}
	accepted := map[string]int{}
	for i, v := range hostile(2000, filepath.Join(os.TempDir(), canary)) {
		for k := range 2 { // each string in two fields, so that all fields get equally many
			f := fields[(i*2+k+i/len(fields))%len(fields)]
			r := f.send(v)
			if len(r.URL) > 50_000 { // HTTP servers don't read URLs this long
				r = f.send(v[:10_000])
			}
			if r.URL == "" {
				r.Key = h.key
			}
			a, err := h.Do(t.Context(), r)
			if err != nil {
				t.Fatalf("%s %.80q: %v", f.name, v, err)
			}
			var body map[string]any
			if err := json.Unmarshal(a.Body, &body); err != nil || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
				t.Errorf("%s %.80q: answer %d is not JSON: %.200q", f.name, v, a.Status, a.Body)
			}
			if a.Status/100 != 2 && a.Status/100 != 4 {
				t.Errorf("%s %.80q: answer %d: %.300s", f.name, v, a.Status, a.Body)
			}
			if message, ok := body["error"].(string); a.Status/100 == 4 && (!ok || message == "") {
				t.Errorf("%s %.80q: answer %d without an error: %.300s", f.name, v, a.Status, a.Body)
			}
			if a.Status/100 == 2 {
				accepted[f.name]++
			}
		}
		// From time to time, deploy the site with the values that were accepted.
		if i%100 == 99 {
			a, err := h.Do(t.Context(), world.Request{Method: "POST", Path: "/sites/" + s.ID + "/deploy", Key: h.key})
			var out struct{ DeploymentID string }
			if err != nil || a.Status == 200 && a.JSON(&out) != nil {
				t.Fatalf("%v: %.200s", err, a.Body)
			}
			if out.DeploymentID != "" { // otherwise the queue is full
				h.wait(s, out.DeploymentID)
			}
		}
	}
	t.Logf("accepted: %v", accepted)
	// The waiting deployments must end too.
	h.until(time.Minute, "end of every deployment", func() bool {
		var list struct{ Data []deployment }
		h.call(h.key, "GET", "/sites/"+s.ID+"/deployments?limit=100", nil, &list)
		for _, d := range list.Data {
			if d.Status == "pending" {
				h.Do(t.Context(), world.Request{Method: "POST", Path: "/deployments/" + d.ID + "/cancel", Key: h.key})
			}
			if !d.ended() {
				return false
			}
			if strings.Contains(d.Error, "Internal error") {
				t.Fatalf("deployment of branch %s: %s", d.ID, d.Error)
			}
		}
		return true
	})
	for _, root := range []string{os.TempDir(), h.Dir, "/etc", "/root", "/var/tmp", "/home", "."} {
		filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
			if err == nil && strings.Contains(filepath.Base(name), canary) {
				t.Errorf("a canary appeared: %s", name)
			}
			if err == nil && e.IsDir() && root == os.TempDir() && name != root { // the test's own folder is walked separately
				return fs.SkipDir
			}
			return nil
		})
	}
}
