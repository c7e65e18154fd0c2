package programs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// The processes beside a program work: the release command runs once before the switch; only the live deployment has a
// worker, also after a kill of the service; scheduled and one-off commands run with their own logs; and the metrics
// include them all.
func TestBesideTheProgram(t *testing.T) {
	t.Parallel()
	s := appSite{install(t)}
	branch := "main"
	push := func(version, release string) string {
		t.Helper()
		files := server(version)
		files[script] = strings.Replace(
			files[script],
			"(q, r) => {",
			"(q, r) => {\n  if (q.url !== '/') (q.url === '/bad' ? console.error : console.log)('visit of', q.url)",
			1,
		)
		files[script] = spin + files[script]
		files["slipway.toml"] = "release = \"node release.js\"\n[processes]\nclock = \"node worker-of-e2e-programs.js " + version + "\"\n[[cron]]\nname = \"every\"\nschedule = \"* * * * *\"\ncommand = \"node cron.js\"\n"
		files["release.js"] = release
		files["worker-of-e2e-programs.js"] = "console.log('works for " + version + "'); setInterval(() => {}, 1000)"
		files["cron.js"] = "console.log('scheduled by " + version + "')"
		dir := t.TempDir()
		if err := world.WriteFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Git.Commit("acme/app", branch, dir, version); err != nil {
			t.Fatal(err)
		}
		var out struct{ DeploymentID string }
		s.call("POST", "/sites/"+s.ID+"/deploy", map[string]any{"branch": branch}, &out)
		return out.DeploymentID
	}
	s.call("POST", "/sites/"+s.ID+"/env", map[string]any{
		"key":    "SECRET",
		"value":  "hunter2hunter2",
		"secret": true,
		"target": []string{"runtime"},
	}, nil)
	two := push("two", "console.log('released with', process.env.SECRET)")
	if log := s.result(two); strings.Count(log, "released with [secret]") != 1 || !strings.Contains(log, "$ node release.js") {
		t.Errorf("the log of a release:\n%s", log)
	}
	worker := func(version string) {
		t.Helper()
		s.until("the worker of "+version+" alone", func() (bool, error) {
			all, mine := running("worker-of-e2e-programs.js"), running("worker-of-e2e-programs.js\x00"+version)
			return all == 1 && mine == 1, fmt.Errorf("%d run, %d of them its", all, mine)
		})
	}
	worker("two")
	bad := push("three", "console.log('cannot'); process.exit(4)")
	var d struct{ Status, Error string }
	s.until("its failure", func() (bool, error) {
		err := s.Call(t.Context(), s.key, "GET", "/deployments/"+bad, nil, &d)
		return d.Status == "failed", err
	})
	if !strings.Contains(d.Error, "The release command failed: exit code 4") || !strings.Contains(s.log(bad), "cannot") {
		t.Errorf("the deployment failed with %q", d.Error)
	}
	if text, err := s.visit("GET", "/", ""); err != nil || text != "two got 0" {
		t.Errorf("after it: %q, %v", text, err)
	}
	s.result(push("four", ""))
	worker("four")
	typed := s.typeIntoTerminals()
	s.Kill()
	s.again(func() []string { return append(pidsOf("worker-of-e2e-programs.js"), pidsOf(typed)...) })
	worker("four")

	var op struct{ ID string }
	s.call("POST", "/sites/"+s.ID+"/commands", map[string]any{
		"command": "node -e \"console.log('ran as', process.env.SLIPWAY_SITE_ID, process.env.SECRET); process.exit(3)\"",
	}, &op)
	if o := s.operation(op.ID); o.Status != "failed" || o.Result.ExitCode != 3 || o.Result.Output != "ran as "+s.ID+" [secret]\n" {
		t.Errorf("the command ended as %+v", o)
	}
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"pids": 120}}, nil)
	s.call("POST", "/sites/"+s.ID+"/commands", map[string]any{
		"command": "node -e \"let n = 0; for (let i = 0; i < 160; i++) if (require('child_process').spawn('sleep', ['1']).on('error', () => {}).pid) n++; console.log(n > 0 && n < 120)\"",
	}, &op)
	if o := s.operation(op.ID); o.Result.Output != "true\n" {
		t.Errorf("a command that begins more processes than its site may have: %+v", o)
	}
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"pids": 512}}, nil)
	s.until("its log", func() (bool, error) {
		text := s.runtimeLog("command")
		return strings.Contains(text, "ran as"), errors.New(text)
	})
	s.until("the scheduled command", func() (bool, error) {
		text := s.runtimeLog("cron:every")
		return strings.Contains(
			text,
			"scheduled by four",
		) && strings.Contains(text, "Ended with exit code 0"), fmt.Errorf("it said %q", text)
	})
	s.reads()

	// A branch and an earlier deployment have their own URLs. A request there wakes that deployment, beside the live
	// one, and without its worker.
	branch = "next"
	next := push("next", "")
	s.result(next)
	for id, want := range map[string]string{two: "two got 0", next: "next got 0"} {
		var d struct{ URL, PreviewURL string }
		s.call("GET", "/deployments/"+id, nil, &d)
		for _, at := range []string{d.URL, d.PreviewURL} {
			if at == "" { // production isn't a preview
				continue
			}
			s.until(want+" at "+at, func() (bool, error) {
				a, err := world.Read(s.browser.Get(at))
				return err == nil && a.Status == 200 && string(a.Body) == want, errors.Join(err, fmt.Errorf("%d %.300s", a.Status, a.Body))
			})
		}
	}
	worker("four")
	if text, err := s.visit("GET", "/", ""); err != nil || text != "four got 0" {
		t.Errorf("beside its previews: %q, %v", text, err)
	}
	// A start command in the settings overrides the detected one after a restart, and so do the limits.
	limited := 0
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"command": "node " + script + " as-set", "cpus": 0.2}}, nil)
	s.call("POST", "/sites/"+s.ID+"/restart", nil, &op)
	if o := s.operation(op.ID); o.Status != "success" {
		t.Errorf("the restart: %+v", o)
	}
	s.until("the command of the settings", func() (bool, error) {
		n := running(script + "\x00as-set")
		return n == 1, fmt.Errorf("%d run", n)
	})
	if text, err := s.visit("GET", "/", ""); err != nil || text != "four got 0" {
		t.Errorf("by the command of the settings: %q, %v", text, err)
	}
	for _, pid := range s.processes() {
		if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.Contains(string(line), script+"\x00as-set") {
			s.limited(pid, 0.2)
			limited++
		}
	}
	if limited == 0 {
		t.Error("no process of the program was found, to hold it against its limit")
	}

	// Requests since the kill, which lost the metrics of the last minute.
	var m struct {
		Total struct {
			Requests, Wakes int
			LatencyMs       struct{ P50 float64 }
		}
	}
	s.until("the figures", func() (bool, error) {
		s.call("GET", "/sites/"+s.ID+"/metrics?since=1h", nil, &m)
		return m.Total.Requests >= 2 && m.Total.Wakes >= 1 && m.Total.LatencyMs.P50 > 0, fmt.Errorf("%+v", m.Total)
	})
	s.call("POST", "/sites/"+s.ID+"/stop", nil, nil)
	s.until("no worker of a stopped site", func() (bool, error) {
		n := running("worker-of-e2e-programs.js")
		return n == 0, fmt.Errorf("%d run", n)
	})
}
