package programs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// What runs beside a program, told to the real one: the release command before the switch,
// once; a worker of the live deployment alone, on a kill of the service too; a scheduled and
// a one-off command, each with its own log; and the figures of it all.
func TestBesideTheProgram(t *testing.T) {
	t.Parallel()
	s := appSite{install(t)}
	push := func(version, release string) string {
		t.Helper()
		files := server(version)
		files["slipway.toml"] = "release = \"node release.js\"\n[processes]\nclock = \"node worker-of-e2e-programs.js " + version + "\"\n[[cron]]\nname = \"every\"\nschedule = \"* * * * *\"\ncommand = \"node cron.js\"\n"
		files["release.js"] = release
		files["worker-of-e2e-programs.js"] = "console.log('works for " + version + "'); setInterval(() => {}, 1000)"
		files["cron.js"] = "console.log('scheduled by " + version + "')"
		dir := t.TempDir()
		if err := world.WriteFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Git.Commit("acme/app", "main", dir, version); err != nil {
			t.Fatal(err)
		}
		var out struct{ DeploymentID string }
		s.call("POST", "/sites/"+s.ID+"/deploy", nil, &out)
		return out.DeploymentID
	}
	s.call("POST", "/sites/"+s.ID+"/env", map[string]any{"key": "SECRET", "value": "hunter2hunter2", "secret": true, "target": []string{"runtime"}}, nil)
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
		t.Errorf("it failed with %q", d.Error)
	}
	if text, err := s.visit("GET", "/", ""); err != nil || text != "two got 0" {
		t.Errorf("after it: %q, %v", text, err)
	}
	s.result(push("four", ""))
	worker("four")
	typed := s.typeIntoTerminals()
	s.Kill()
	s.until("no worker, and nothing of a terminal", func() (bool, error) {
		n := running("worker-of-e2e-programs.js") + running(typed)
		return n == 0, fmt.Errorf("%d run", n)
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker("four")

	var op struct{ ID string }
	s.call("POST", "/sites/"+s.ID+"/commands", map[string]any{"command": "node -e \"console.log('ran as', process.env.SLIPWAY_SITE_ID, process.env.SECRET); process.exit(3)\""}, &op)
	if o := s.operation(op.ID); o.Status != "failed" || o.Result.ExitCode != 3 || o.Result.Output != "ran as "+s.ID+" [secret]\n" {
		t.Errorf("the command ended as %+v", o)
	}
	s.until("its log", func() (bool, error) {
		text := s.runtimeLog("command")
		return strings.Contains(text, "ran as"), errors.New(text)
	})
	s.until("the scheduled command", func() (bool, error) {
		text := s.runtimeLog("cron:every")
		return strings.Contains(text, "scheduled by four") && strings.Contains(text, "Ended with exit code 0"), fmt.Errorf("it said %q", text)
	})
	// Two visits since the kill, which took the figures of the last minute with it.
	for range 2 {
		if text, err := s.visit("GET", "/", ""); err != nil || text != "four got 0" {
			t.Errorf("at last: %q, %v", text, err)
		}
	}
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
