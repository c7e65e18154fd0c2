package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/program/applog"
)

// print makes the site's program print lines.
func (w *world) print(site string, n int, lines ...string) {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		for i, l := range lines {
			if _, err := tx.Exec(w.t.Context(), `INSERT INTO app_logs (site_id, n, at, level, stream, process, deployment_id, message) VALUES ($1, $2, $3, 'info', 'stdout', 'web', '', $4)`,
				site, n+i, db.Now(), l); err != nil {
				return err
			}
		}
		tx.Notify(applog.Topic(id.Site(site)))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// null resets each field of run and build, at any depth, next to fields that are set or kept. It is refused for fields
// without a default.
func TestNullResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	path := "/sites/" + w.site(key, "x")
	run := m{
		"command": "node a.js", "release": "node r.js", "healthCheck": m{"path": "/up", "timeoutSeconds": 5}, "sleepAfterSeconds": 60,
		"memoryMiB": 256, "cpus": 2, "pids": 64, "instances": m{"min": 1, "max": 2}, "storageMiB": 64, "ports": []int{5432}, "requestMiB": 5,
		"responseSeconds": 9, "terminal": true, "drainSeconds": 3,
		"documentRoot": "web", "frontController": "app.php", "passthru": true,
	}
	build := m{"command": "make", "install": "true", "output": "out", "root": "web", "node": "24", "depth": "full"}
	w.must(200, "PATCH", path, key, m{"run": run, "build": build})
	for part, all := range map[string]m{"run": run, "build": build} {
		for name := range all {
			before := w.must(200, "GET", path, key, nil)[part].(m)
			after := w.must(200, "PATCH", path, key, m{part: m{name: nil}})[part].(m)
			if _, there := after[name]; there || len(after) != len(before)-1 {
				t.Errorf("%s.%s is null: %v, was %v", part, name, after, before)
			}
		}
	}
	w.must(200, "PATCH", path, key, m{"run": run})
	got := w.must(200, "PATCH", path, key, m{
		"run": m{"healthCheck": m{"path": nil}, "instances": m{"max": nil}, "pids": 128},
	})["run"].(m)
	if fmt.Sprint(got["healthCheck"], got["instances"], got["pids"], got["cpus"]) != "map[timeoutSeconds:5] map[min:1] 128 2" {
		t.Errorf("parts reset: %v", got)
	}
	for _, depth := range []string{"0", "-1", "10001", "many", "1e3"} {
		wants(t, "depth", w.api("PATCH", path, key, m{"build": m{"depth": depth}}), 400, "build.depth must be a number of commits")
	}
	w.must(200, "PATCH", path, key, m{"build": m{"depth": "10000"}})
	for name, value := range map[string]any{"documentRoot": "../x", "frontController": "index.html", "passthru": "yes"} {
		wants(t, name, w.api("PATCH", path, key, m{"run": m{name: value}}), 400, name)
	}
	wants(t, "no default", w.api("PATCH", path, key, m{"backups": m{"keep": m{"daily": nil}}}), 400, "can't be null")
}

func TestFollowSiteLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	w.print(id, 1, "one", "two")
	resp, s := w.openPath("/sites/"+id+"/logs?limit=1", key)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(resp.StatusCode, resp.Header)
	}
	expect := func(n int, want string) {
		t.Helper()
		number, _, text := nextEvent(t, s)
		var line struct {
			N       int
			Message string
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || number != fmt.Sprint(n) || line.N != n || line.Message != want {
			t.Fatalf("%q %q, %v; want %d %q", number, text, err, n, want)
		}
	}
	expect(2, "two")
	var many []string // more than the stream's first read and one batch
	for i := range 700 {
		many = append(many, fmt.Sprint("line ", i))
	}
	w.print(id, 3, many...)
	for i, text := range many {
		expect(3+i, text)
	}
	_, s = w.openPath("/sites/"+id+"/logs", key, "Last-Event-ID: 700")
	expect(701, "line 698")

	_, other := w.user("b@example.test")
	if resp, _ := w.openPath("/sites/"+id+"/logs", other); resp.StatusCode != 404 {
		t.Errorf("another user's stream: %d", resp.StatusCode)
	}
	for _, bad := range []string{
		"?after=-1", "?after=x", "?stream=stdin", "?since=yesterday", "?level=bad", "?tail=x", "?tail=-1",
		"?tail=1&limit=1", "?tail=1&after=1",
	} {
		if resp, _ := w.openPath("/sites/"+id+"/logs"+bad, key); resp.StatusCode != 400 {
			t.Errorf("%s: %d, want 400", bad, resp.StatusCode)
		}
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE app_logs SET at = at - 7200000, level = 'error' WHERE site_id = $1 AND n < 10`, id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][2]string{
		"tail=2":                          {"line 698", "line 699"},
		"since=90m&after=1&limit=1":       {"line 7", "line 7"},
		"since=3h&after=1&limit=1":        {"two", "two"},
		"level=error&tail=1":              {"line 6", "line 6"},
		"level=error&search=LINE&after=1": {"line 0", "line 6"},
		"level=debug":                     {},
	} {
		list := w.must(200, "GET", "/sites/"+id+"/logs?"+query, key, nil)["logs"].([]any)
		var got [2]string
		if len(list) > 0 {
			got = [2]string{list[0].(m)["message"].(string), list[len(list)-1].(m)["message"].(string)}
		}
		if got != want {
			t.Errorf("%s: from %q to %q, want %q", query, got[0], got[1], want)
		}
	}
}

func TestRestartSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	w.must(409, "POST", "/sites/"+x["site"]+"/restart", key, nil) // no program
	programmed(w, key, x)
	op := w.must(202, "POST", "/sites/"+x["site"]+"/restart", key, nil)
	if op["kind"] != "site.restart" || op["status"] != "pending" || op["siteId"] != x["site"] {
		t.Errorf("restart answers %v", op)
	}
	w.must(409, "POST", "/sites/"+x["site"]+"/restart", key, nil) // one at a time
	w.must(200, "POST", "/sites/"+x["site"]+"/stop", key, nil)
	w.must(409, "POST", "/sites/"+x["site"]+"/restart", key, nil)
}

// The number of instances can be set, and only then is the running number shown. Values that the live deployment
// doesn't support are refused.
func TestInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	programmed(w, key, x)
	path := "/sites/" + x["site"]
	process := func() m { return w.must(200, "GET", path, key, nil)["process"].(m) }
	if _, shown := process()["instances"]; shown {
		t.Error("a site without the setting shows its instances")
	}
	for _, bad := range []m{{"min": 0}, {"max": 11}, {"min": 3, "max": 2}, {"min": "2"}} {
		w.must(400, "PATCH", path, key, m{"run": m{"instances": bad}})
	}
	w.must(200, "PATCH", path, key, m{"run": m{"instances": m{"max": 3}}})
	w.must(400, "PATCH", path, key, m{"run": m{"instances": m{"min": 4}}})
	w.must(400, "PATCH", path, key, m{"run": m{"storage": []string{"data"}}})
	s := w.must(200, "PATCH", path, key, m{"run": m{"instances": m{"min": 2}}})
	if got := fmt.Sprint(s["run"].(m)["instances"]); got != "map[max:3 min:2]" {
		t.Errorf("the setting is %s", got)
	}
	if n := process()["instances"]; n != 0.0 { // the program sleeps
		t.Errorf("%v instances", n)
	}
	plan := `{"runtime":"node","start":{"command":{"argv":["node","x.js"]},"storage":["data"]}}`
	if err := w.db.Admin(t.Context(), "UPDATE deployments SET plan = '"+plan+"' WHERE id = (SELECT live_deployment FROM sites WHERE id = '"+x["site"]+"')"); err != nil {
		t.Fatal(err)
	}
	if f := w.must(400, "PATCH", path, key, m{"run": m{"instances": m{"max": 4}}}); f["error"] != "Invalid run.instances.max" {
		t.Errorf("beside storage: %v", f)
	}
	w.must(200, "PATCH", path, key, m{"run": m{"instances": m{"min": 1, "max": 1}}})
}

func TestRunCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	path := "/sites/" + x["site"] + "/commands"
	w.must(409, "POST", path, key, m{"command": "node -v"}) // no program
	programmed(w, key, x)
	for _, bad := range []m{
		{},
		{"command": ""},
		{"command": " "},
		{"command": "a\x00b"},
		{"command": "x", "timeoutSeconds": 0},
		{"command": "x", "timeoutSeconds": 3601},
		{"command": []string{"x"}},
	} {
		w.must(400, "POST", path, key, bad)
	}
	op := w.must(202, "POST", path, key, m{"command": "node -v", "timeoutSeconds": 60})
	if op["kind"] != "site.command" || op["status"] != "pending" || op["siteId"] != x["site"] {
		t.Errorf("a command answers %v", op)
	}
	w.must(409, "POST", path, key, m{"command": "node -v"}) // one at a time
	_, other := w.user("b@example.test")
	w.must(404, "POST", path, other, m{"command": "node -v"})
	w.must(404, "GET", "/sites/"+x["site"]+"/processes", other, nil)
}

// Scheduled commands are listed with their last results and can be run on request.
func TestCrons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	programmed(w, key, x)
	path := "/sites/" + x["site"] + "/crons"
	if got := w.must(200, "GET", path, key, nil); fmt.Sprint(got["data"]) != "[]" {
		t.Errorf("before there are any: %v", got)
	}
	live := w.must(200, "GET", "/sites/"+x["site"], key, nil)["deploymentId"]
	for _, q := range []string{
		fmt.Sprintf(`INSERT INTO app_tasks (site_id, kind, name, deployment_id, owner_id, schedule, command, next_at, node, lease_until) VALUES ('%s', 'cron', 'tidy', '%s', 'o', '@daily', '{"argv":["node","tidy.js"]}', 1900000000000, '', 0)`, x["site"], live),
		fmt.Sprintf(`INSERT INTO app_tasks (site_id, kind, name, deployment_id, owner_id, schedule, command, next_at, node, lease_until) VALUES ('%s', 'worker', 'mail', '%s', 'o', '', '{"argv":["node","mail.js"]}', 0, '', 0)`, x["site"], live),
	} {
		if err := w.db.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	show := func() string {
		t.Helper()
		list := w.must(200, "GET", path, key, nil)["data"].([]any)
		if len(list) != 1 {
			t.Fatalf("%v", list)
		}
		c := list[0].(map[string]any)
		return fmt.Sprint(c["name"], " ", c["schedule"], " ", c["command"], " ", c["nextAt"], " ", c["lastAt"], " ", c["lastExitCode"])
	}
	if got := show(); got != "tidy @daily node tidy.js 2030-03-17T17:46:40.000Z <nil> <nil>" {
		t.Errorf("%s", got)
	}
	if err := w.db.Admin(t.Context(), `UPDATE app_tasks SET last_at = 1700000000000, last_exit = 3 WHERE name = 'tidy'`); err != nil {
		t.Fatal(err)
	}
	if got := show(); !strings.HasSuffix(got, " 2023-11-14T22:13:20.000Z 3") {
		t.Errorf("%s", got)
	}
	for _, name := range []string{"mail", "none"} {
		w.must(404, "POST", path+"/"+name+"/run", key, nil)
	}
	op := w.must(202, "POST", path+"/tidy/run", key, nil)
	if op["kind"] != "site.command" || op["siteId"] != x["site"] {
		t.Errorf("%v", op)
	}
	w.must(409, "POST", path+"/tidy/run", key, nil) // one at a time
	_, other := w.user("b@example.test")
	w.must(404, "POST", path+"/tidy/run", other, nil)
	w.must(404, "GET", path, other, nil)
}

// The run settings change one by one, within their ranges.
func TestUpdateRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	path := "/sites/" + w.site(key, "x")
	w.must(200, "PATCH", path, key, m{"run": m{"sleepAfterSeconds": 60, "memoryMiB": 256, "release": "node migrate.js"}})
	s := w.must(200, "PATCH", path, key, m{"run": m{"cpus": 2, "release": ""}})
	if run, _ := s["run"].(map[string]any); fmt.Sprint(run) != "map[cpus:2 memoryMiB:256 sleepAfterSeconds:60]" {
		t.Errorf("run is %v", s["run"])
	}
	for _, bad := range []m{
		{"sleepAfterSeconds": -1},
		{"memoryMiB": 1},
		{"cpus": 0},
		{"healthCheck": m{"path": "x"}},
		{"release": "a\x00"},
	} {
		w.must(400, "PATCH", path, key, m{"run": bad})
	}
}
