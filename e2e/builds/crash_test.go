package builds

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// If the program is killed with SIGKILL in any stage of a build, it runs the deployment again after its next start, or
// ends it. No process or file of the interrupted build remains.
func TestKilledInEveryStage(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := newHarness(t, 0, "--builds", "2")
	// A build that can be repeated and takes a moment in each stage. The install command leaves a process that would
	// outlive the build.
	files := map[string]string{
		"slipway.toml": "[build]\ninstall = \"(setsid sleep 863994 &) ; sleep 1\"\ncommand = \"sh ./build.sh\"\noutput = \"dist\"\n",
		"build.sh":     "(setsid sleep 863994 &); sleep 1; mkdir dist; i=0; while [ $i -lt 600 ]; do echo $i > dist/$i.html; i=$((i+1)); done; echo whole > dist/index.html",
	}
	for i := range 400 {
		files[fmt.Sprintf("some/%d/file.txt", i)] = strings.Repeat(strconv.Itoa(i), 100)
	}
	h.commit("acme/again", files)
	for _, stage := range []string{"fetch", "prepare", "install", "build", "publish"} {
		var s aSite
		var id string
		var d deployment
		for try := range 5 { // the stage may end before it is seen
			s = h.site("acme/again", map[string]any{"name": fmt.Sprint("killed in ", stage, " ", try)})
			id = h.first(s)
			h.soon(stage, func() bool { d = h.get(s, id); return d.running() == stage || d.ended() })
			if !d.ended() {
				break
			}
		}
		at := time.Now()
		h.Kill()
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ready again after %.1f s", stage, time.Since(at).Seconds())
		if d.ended() {
			t.Errorf("%s: the deployment had ended before the kill", stage)
		}
		t.Logf("%s: %s", stage, times(h.built(s, id)))
		h.shows(s.URL, "whole")
		h.until(patience, stage+": end of all processes", func() bool { return len(processes("sleep\x00863994")) == 0 })
		h.clean(stage)
	}
	// A deployment that was canceled while the program was down isn't built again and leaves nothing behind.
	h.commit("acme/sleep", sleeper("5"))
	s := h.site("acme/sleep", nil)
	id := h.first(s)
	h.until(20*time.Second, "running build", func() bool { return len(processes("sleep\x00863995")) > 0 })
	h.Kill()
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.cancel(s, id)
	if d := h.wait(s, id); d.Status != "canceled" {
		t.Errorf("the deployment is %s", d.Status)
	}
	h.until(patience, "end of all processes", func() bool { return len(processes("sleep\x00863995")) == 0 })
	h.clean("canceled while nobody ran")
	h.until(patience, "end of all control groups", func() bool { groups, _ := filepath.Glob(h.groups() + "/*/"); return len(groups) == 0 })
}

// The process manager stops the service when the kernel kills one of its processes for lack of memory (systemd's
// default, OOMPolicy=stop) and starts it again. The service must not repeat the build: the deployment has failed.
func TestStoppedByAnOOMKill(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1", "--build-memory", "128")
	h.commit("acme/hungry", map[string]string{
		"slipway.toml": "[build]\ncommand = \"node hungry.cjs\"\noutput = \"dist\"\n",
		"hungry.cjs":   "const all = []; setInterval(() => all.push(Buffer.alloc(16 << 20, 1)), 100)",
	})
	s := h.site("acme/hungry", nil)
	id := h.first(s)
	h.until(30*time.Second, "running build", func() bool { return len(processes("node\x00hungry.cjs")) > 0 })
	h.until(30*time.Second, "killed build", func() bool { return len(processes("node\x00hungry.cjs")) == 0 })
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.failed(s, id, "out of memory")
	if n := strings.Count(h.log(s, id), "info  $ node hungry.cjs"); n != 1 { // another time as an error, in the excerpt
		t.Errorf("the project was built %d times:\n%s", n, h.log(s, id))
	}
	h.nothingLeft(s)
}
