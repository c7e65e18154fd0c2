package builds

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// sleeper returns a repository whose build never ends. The mark identifies its processes.
func sleeper(mark string) map[string]string {
	return shell("echo started\nsleep 86399" + mark + "\n")
}

// processes returns the pids on the host whose command line contains the text.
func processes(text string) (found []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, pid)
		}
	}
	return found
}

// leftovers lists the files on disk of builds that have ended.
func (h *harness) leftovers() []string {
	var out []string
	for _, pattern := range []string{"builds/work/*", "builds/way-*", "builds/tools/work/*"} {
		found, _ := filepath.Glob(filepath.Join(h.Data, pattern))
		out = append(out, found...)
	}
	return out
}

// clean waits until no files of ended builds are on disk.
func (h *harness) clean(what string) {
	h.t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			h.t.Logf("left behind: %q", left)
		}
	}()
	h.until(patience, what+": clean disk", func() bool { left = h.leftovers(); return len(left) == 0 })
}

// At most --builds builds run at once. A waiting deployment shows its position and the reason, a free slot goes to the
// user with the fewest builds, and canceling a build starts the next one.
func TestQueue(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1")
	bob := h.user("bob@example.test")
	h.commit("acme/sleep", sleeper("1"))
	h.commit("acme/quick", shell("mkdir dist; echo quick > dist/index.html"))

	first := h.site("acme/sleep", nil)
	running := h.first(first)
	h.until(20*time.Second, "running build", func() bool { return strings.Contains(h.log(first, running), "started") })

	second := h.site("acme/quick", map[string]any{"name": "second of ada"})
	waiting := h.first(second)
	h.until(10*time.Second, "waiting build", func() bool { return h.get(second, waiting).running() == "queue" })
	theirs := h.siteOf(bob, "acme/quick", map[string]any{"name": "bob's"})
	bobs := h.first(theirs)
	h.until(10*time.Second, "waiting build", func() bool { return h.get(theirs, bobs).running() == "queue" })

	d, e := h.get(second, waiting), h.get(theirs, bobs)
	// Bob has no running build and has had no turn, so he is next although he came later.
	h.until(10*time.Second, "place of the one that was passed", func() bool {
		d = h.get(
			second,
			waiting,
		)
		return d.Queue != nil && d.Queue.Position == 2
	})
	h.until(10*time.Second, "place of the next one", func() bool {
		e = h.get(
			theirs,
			bobs,
		)
		return e.Queue != nil && e.Queue.Position == 1
	})
	if d.Status != "pending" || d.Queue.Reason != "workers_busy" {
		t.Errorf("the one that waits is %s, %+v", d.Status, d.Queue)
	}
	if e.Status != "pending" {
		t.Errorf("the next one is %s, %+v", e.Status, e.Queue)
	}
	h.until(10*time.Second, "line in the log that it waits", func() bool {
		return strings.Contains(h.log(second, waiting), "Waiting for a free build slot: 1 build may run at once, position 1 in the queue")
	})
	// A second deployment of a site waits until the first has ended.
	behind := h.deploy(first, nil)
	if d := h.get(first, behind); d.Status != "pending" || d.Queue == nil || d.Queue.Reason != "site_busy" {
		t.Errorf("a deployment of a busy site is %s, %+v", d.Status, d.Queue)
	}

	// Cancel the waiting and the running deployment, which frees the slot for the others.
	h.cancel(first, behind)
	if d := h.get(first, behind); d.Status != "canceled" {
		t.Errorf("a waiting one is %s after cancel", d.Status)
	}
	h.cancel(first, running)
	h.until(30*time.Second, "end of the processes", func() bool { return len(processes("sleep\x00863991")) == 0 })
	if d := h.wait(first, running); d.Status != "canceled" {
		t.Errorf("a running one is %s after cancel", d.Status)
	}
	h.built(second, waiting)
	h.built(theirs, bobs)
	if log := h.log(theirs, bobs); !strings.Contains(log, "A build slot is free") {
		t.Errorf("the log does not say that the wait is over:\n%s", log)
	}

	// Ada queues three deployments and Bob one. Bob's must not be last.
	h.deploy(first, nil)
	h.until(20*time.Second, "running build", func() bool { return len(processes("sleep\x00863991")) > 0 })
	var hers []string
	for i := range 3 {
		s := h.site("acme/quick", map[string]any{"name": fmt.Sprint("fair ", i)})
		hers = append(hers, h.first(s))
	}
	last := h.deploy(theirs, nil)
	var list struct{ Data []deployment }
	h.call(h.key, "GET", "/sites/"+first.ID+"/deployments", nil, &list)
	h.cancel(first, list.Data[0].ID)
	bobDone := h.built(theirs, last)
	var before int
	for _, id := range hers {
		x := h.built(aSite{key: h.key}, id)
		if start(x).Before(start(bobDone)) {
			before++
		}
	}
	if before > 2 {
		t.Errorf("%d builds of another user went before", before)
	}
	h.clean("at last")
}

// start returns when a deployment left the queue: the start of its prepare stage.
func start(d deployment) time.Time {
	for _, s := range d.Stages {
		if s.Name == "prepare" {
			return s.StartedAt
		}
	}
	return time.Time{}
}

// No more than --builds builds run at once, also with many sites.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "2")
	// The builds take longer than the fetches of the other sites, which take seconds on a busy machine.
	h.commit("acme/slow", shell("sleep 6.2468; mkdir dist; echo done > dist/index.html"))
	var sites []aSite
	var ids []string
	for i := range 6 {
		s := h.site("acme/slow", map[string]any{"name": fmt.Sprint("slow ", i)})
		sites, ids = append(sites, s), append(ids, "")
	}
	most := 0
	for i := range sites {
		ids[i] = h.first(sites[i])
	}
	h.waits(world.Watch, 150*time.Millisecond, patience, "end of all", func() bool {
		n := 0
		for _, pid := range processes("sleep\x006.2468") {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(comm)) == "sleep" {
				n++
			}
		}
		most = max(most, n)
		return !slices.ContainsFunc(ids, func(id string) bool { return !h.get(sites[0], id).ended() })
	})
	if most != 2 {
		t.Errorf("at most %d builds ran at once, want 2", most)
	}
	for i, id := range ids {
		h.built(sites[i], id)
	}
}

// Canceling ends a build's processes within two seconds in every stage, and the next deployment in the queue starts.
func TestCancelInEveryStage(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := newHarness(t, 0, "--builds", "1")
	h.commit("acme/next", shell("mkdir dist; echo next > dist/index.html"))
	many := "mkdir dist; i=0; while [ $i -lt 6000 ]; do echo $i > dist/$i.html; i=$((i+1)); done"
	for _, stage := range []string{"fetch", "prepare", "install", "build", "publish"} {
		files := sleeper("2")
		if stage == "install" {
			files = map[string]string{"slipway.toml": "[build]\ninstall = \"sleep 863992\"\ncommand = \"true\"\noutput = \"dist\"\n"}
		}
		if stage == "publish" {
			files = shell(many)
		}
		for i := range 3000 { // makes the checkout take a moment
			if stage == "prepare" || stage == "fetch" {
				files[fmt.Sprintf("some/%d/file.txt", i)] = strings.Repeat(strconv.Itoa(i), 200)
			}
		}
		h.commit("acme/"+stage, files)
		s := h.site("acme/"+stage, nil)
		id := h.first(s)
		var d deployment
		for try := range 5 { // a stage may end before it is seen, or before it is canceled
			h.soon(stage, func() bool {
				d = h.get(s, id)
				return d.running() == stage && (stage != "build" || len(processes("sleep\x00863992")) > 0) || d.ended()
			})
			next := h.site("acme/next", map[string]any{"name": fmt.Sprint("after ", stage, " ", try)})
			if _, err := h.Do(t.Context(), world.Request{Method: "POST", Path: "/deployments/" + id + "/cancel", Key: s.key}); err != nil {
				t.Fatal(err)
			}
			d = h.wait(s, id)
			h.until(patience, stage+": end of all processes", func() bool { return len(processes("sleep\x00863992")) == 0 })
			h.built(next, h.first(next))
			h.clean(stage)
			if d.Status != "success" {
				break
			}
			id = h.deploy(s, nil)
		}
		if d.Status != "canceled" {
			t.Errorf("%s: the deployment is %s: %s\n%s", stage, d.Status, d.Error, h.log(s, id))
		}
	}
	// A canceled deployment can be deployed again.
	var list struct{ Data []deployment }
	var sites struct{ Data []aSite }
	h.call(h.key, "GET", "/sites?limit=100", nil, &sites)
	for _, s := range sites.Data {
		s.key = h.key
		h.call(h.key, "GET", "/sites/"+s.ID+"/deployments", nil, &list)
		if d := list.Data[0]; d.Status == "canceled" && d.stage("publish") == "failed" {
			var out struct{ DeploymentID string }
			h.call(h.key, "POST", "/deployments/"+d.ID+"/retry", nil, &out)
			h.built(s, out.DeploymentID)
			return
		}
	}
	t.Error("no deployment was canceled while it published")
}

// Deleting a site ends its build. A hook call replaces the site's waiting deployment. A stage that exceeds the time
// limit ends. clearCache makes the next build install again.
func TestEnds(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1", "--build-time", "3s")
	h.commit("acme/sleep", sleeper("3")) // its process only sleeps, so that the limit is reached even on a busy machine
	s := h.site("acme/sleep", nil)
	id := h.first(s)
	d := h.failed(s, id, "did not finish")
	if !strings.Contains(d.Error, "timed out") || !strings.Contains(d.Error, "3s") {
		t.Errorf("the reason does not name the limit: %s", d.Error)
	}
	if err := h.Stop(t.Context()); err != nil { // the rest of the test runs without the short limit
		t.Fatal(err)
	}
	h.Flags = h.Flags[:len(h.Flags)-2]
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	doomed := h.site("acme/sleep", map[string]any{"name": "doomed"})
	h.until(20*time.Second, "running build", func() bool { return len(processes("sleep\x00863993")) > 0 })
	h.call(h.key, "DELETE", "/sites/"+doomed.ID, nil, nil)
	h.until(patience, "end of the deleted site's build", func() bool { return len(processes("sleep\x00863993")) == 0 })
	h.until(5*time.Second, "clean-up after the deleted site", func() bool {
		caches, _ := filepath.Glob(filepath.Join(h.Data, "builds/caches", doomed.ID))
		return len(h.leftovers())+len(caches) == 0
	})

	// Two hook calls during a build: the first one's deployment is folded or superseded.
	h.commit("acme/hooked", shell("mkdir dist; echo ok > dist/index.html"))
	hooked := h.site("acme/hooked", nil)
	h.built(hooked, h.first(hooked))
	var hook struct{ URL string }
	h.call(h.key, "POST", "/sites/"+hooked.ID+"/hooks", map[string]any{"name": "ci"}, &hook)
	call := func(query string) (id string) {
		var out struct{ DeploymentID string }
		a, err := h.Do(t.Context(), world.Request{Method: "POST", URL: hook.URL + query})
		if err == nil {
			err = a.Err()
		}
		if err == nil {
			err = a.JSON(&out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.DeploymentID
	}
	h.commit("acme/hooked", shell("while [ ! -e gate ]; do echo closed; sleep 0.1; done; mkdir dist; echo ok > dist/index.html"))
	busy := call("?title=one")
	h.until(10*time.Second, "running build", func() bool { return strings.Contains(h.log(hooked, busy), "closed") })
	old, newer := call("?title=two"), call("?title=three")
	if d := h.wait(hooked, old); d.Status != "canceled" {
		t.Errorf("a hook's waiting deployment is %s after a newer call", d.Status)
	}
	h.commit("acme/hooked", shell("mkdir dist; echo newer > dist/index.html"))
	h.open()
	h.built(hooked, busy)
	h.built(hooked, newer)
	h.shows(hooked.URL, "newer")
}

// open lets a build continue that waits for a file gate beside its program.
func (h *harness) open() {
	h.t.Helper()
	opened := 0
	err := filepath.WalkDir(filepath.Join(h.Data, "builds/work"), func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || err == nil && e.Name() != "build.sh" {
			return nil // the program deletes files here at the same time
		}
		if err == nil {
			opened++
			err = os.WriteFile(filepath.Join(filepath.Dir(path), "gate"), nil, 0o644)
		}
		return err
	})
	if err != nil || opened == 0 {
		h.t.Fatalf("%d builds wait at the gate: %v", opened, err)
	}
}
