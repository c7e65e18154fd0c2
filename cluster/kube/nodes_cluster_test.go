//go:build cluster

package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"slipway/e2e/world"
)

// hostProgram responds with its pod's name.
const hostProgram = `require('http').createServer((q, r) => setTimeout(() => r.end('from ' + require('os').hostname()), 20)).listen(process.env.PORT)`

// visitors sends requests to a site and records the results.
type visitors struct {
	good, failed atomic.Int64
	stop         chan struct{}
	all          sync.WaitGroup

	mu   sync.Mutex // guards the following fields
	why  []string
	last time.Time // time of the last good response
}

func visit(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %.200s", resp.StatusCode, text)
	}
	return err
}

// ask starts four clients that together send up to 200 requests per second.
func ask(t *testing.T, w *world.World, url string) *visitors {
	t.Helper()
	v := &visitors{stop: make(chan struct{})}
	for range 4 {
		c, err := w.Browser()
		if err != nil {
			t.Fatal(err)
		}
		v.all.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-v.stop:
					return
				case <-tick.C:
				}
				err := visit(c, url)
				v.mu.Lock()
				if err != nil {
					v.failed.Add(1)
					v.why = append(v.why, fmt.Sprintf("%v: %v", time.Now().Format(time.TimeOnly), err))
				} else {
					v.good.Add(1)
					v.last = time.Now()
				}
				v.mu.Unlock()
			}
		})
	}
	return v
}

// end stops the requests and returns the errors.
func (v *visitors) end() []string {
	close(v.stop)
	v.all.Wait()
	return v.why
}

// shortOfMemory is the signal that makes the second node report memory pressure, and, sent again, end it
// (scripts/cluster).
const shortOfMemory = syscall.SIGUSR1

// underPressure reports whether a node has a taint for memory pressure, and so accepts no pods.
func underPressure(t *testing.T, c kubernetes.Interface, node string) bool {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), node, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(n.Spec.Taints, func(x core.Taint) bool { return x.Key == core.TaintNodeMemoryPressure })
}

// processOf returns the pid of one of the cluster's programs.
func processOf(t *testing.T, name string) (pid int) {
	t.Helper()
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, file := range names {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
			return pid
		}
	}
	t.Fatalf("no %s runs", name)
	return 0
}

// schedulable allows or forbids placing pods on a node.
func schedulable(t *testing.T, c kubernetes.Interface, node string, yes bool) {
	t.Helper()
	patch := []byte(`{"spec":{"unschedulable":` + strconv.FormatBool(!yes) + `}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, meta.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A site survives faults of a cluster's two nodes. Draining a node under load fails no request, because each program is
// replaced before it is stopped. The site also survives an unresponsive API server and memory pressure, and after a
// power failure of its node it answers from the other node.
func TestNodes(t *testing.T) {
	second, err := strconv.Atoi(os.Getenv("SLIPWAY_CLUSTER_SECOND"))
	if err != nil {
		t.Fatal("the cluster has no second node")
	}
	c, dir := client(t), os.Getenv("SLIPWAY_CLUSTER_BUILT")
	until(t, "the second node is ready", func() bool { return ready(t, c, "n2") })
	// Other tests' pods tolerate no taint, so until now none was placed on this node.
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "n2", types.MergePatchType, []byte(`{"spec":{"taints":null}}`), meta.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	const namespace = "nodes"
	for _, line := range serving(t, c, namespace) {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
	w, err := world.New(filepath.Join(dir, "slipway"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("nodes@example.com")
	if err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(w.Dir, "app")
	if err := world.WriteFiles(app, map[string]string{"package.json": `{"scripts":{"start":"node server.js"}}`, "server.js": hostProgram}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("nodes/app", "main", app, "app"); err != nil {
		t.Fatal(err)
	}
	var site struct{ Data struct{ ID, URL string } }
	err = w.Call(t.Context(), key, "POST", "/sites", map[string]any{
		"name": "app", "type": "static", "repository": "git.test/nodes/app", "branch": "main",
	}, &site)
	if err != nil {
		t.Fatal(err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the site answers", func() bool { return visit(browser, site.Data.URL) == nil })

	// where returns the site's running pods on a node.
	where := func(node string) (names []string) {
		list, err := c.CoreV1().Pods(namespace).List(t.Context(), meta.ListOptions{
			LabelSelector: labelSite + "=" + site.Data.ID, FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil && p.Status.Phase == core.PodRunning {
				names = append(names, p.Name)
			}
		}
		return names
	}
	load := ask(t, w, site.Data.URL)
	from, to := "n1", "n2"
	for range 4 { // drain one node, then the other
		schedulable(t, c, to, true)
		schedulable(t, c, from, false)
		for _, name := range where(from) {
			if err := c.CoreV1().Pods(namespace).EvictV1(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the program runs on the other node alone", func() bool {
			list, err := c.CoreV1().Pods(namespace).List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + from})
			return err == nil && len(list.Items) == 0 && len(where(to)) == 1
		})
		from, to = to, from
	}
	why := load.end()
	t.Logf("four drains: %d requests were answered, %d failed", load.good.Load(), load.failed.Load())
	for _, x := range why {
		t.Error(x)
	}

	// While the API server hangs, the program answers, and a restart waits.
	load = ask(t, w, site.Data.URL)
	server := processOf(t, "kube-apiserver")
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goesOn := sync.OnceFunc(func() { _ = syscall.Kill(server, syscall.SIGCONT) })
	defer goesOn()
	var restart struct{ ID string }
	if err := w.Call(t.Context(), key, "POST", "/sites/"+site.Data.ID+"/restart", nil, &restart); err != nil {
		t.Fatal(err)
	}
	away := time.Now()
	until(t, "visitors have asked for longer than a dead node takes to be noticed", func() bool { return time.Since(away) > 20*time.Second })
	operation := func() string {
		var o struct{ Status, Error string }
		if err := w.Call(t.Context(), key, "GET", "/operations/"+restart.ID, nil, &o); err != nil {
			t.Fatal(err)
		}
		if o.Status == "failed" {
			t.Errorf("the restart: %s", o.Error)
		}
		return o.Status
	}
	if s := operation(); s == "success" {
		t.Error("a restart succeeded without an API server")
	}
	goesOn()
	until(t, "the restart is done", func() bool { s := operation(); return s != "pending" && s != "running" })
	why = load.end()
	t.Logf("the API server was away for 20 s: %d requests were answered, %d failed", load.good.Load(), len(why))
	for _, x := range why {
		t.Error(x)
	}

	toSecond := func() {
		schedulable(t, c, "n2", true)
		schedulable(t, c, "n1", false)
		for _, name := range where("n1") {
			if err := c.CoreV1().Pods(namespace).EvictV1(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the program runs on the second node", func() bool { return len(where("n2")) == 1 && len(where("n1")) == 0 })
		schedulable(t, c, "n1", true)
	}

	// Move the program to the second node, which then comes under memory pressure.
	toSecond()
	if err := syscall.Kill(second, shortOfMemory); err != nil {
		t.Fatal(err)
	}
	short := time.Now()
	until(t, "the second node is short of memory", func() bool { return underPressure(t, c, "n2") })
	until(t, "the program runs on the node that has memory", func() bool {
		return visit(browser, site.Data.URL) == nil && len(where("n1")) == 1
	})
	t.Logf("after its node had too little memory the site answered again within %v", time.Since(short).Round(100*time.Millisecond))
	var log struct{ Logs []map[string]any }
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the site's log: %+v", log)
		}
	})
	until(t, "the site's log says why", func() bool {
		err := w.Call(t.Context(), key, "GET", "/sites/"+site.Data.ID+"/logs?limit=1000", nil, &log)
		return err == nil && strings.Contains(fmt.Sprint(log.Logs), "The node was low on resource: memory")
	})
	if err := syscall.Kill(second, shortOfMemory); err != nil { // end the memory pressure
		t.Fatal(err)
	}
	until(t, "the second node takes pods again", func() bool { return !underPressure(t, c, "n2") })

	// The second node loses its power.
	toSecond()
	load = ask(t, w, site.Data.URL)
	until(t, "it is asked", func() bool { return load.good.Load() > 100 })
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before other tests' pods are placed on it
		_ = c.CoreV1().Nodes().Delete(context.Background(), "n2", meta.DeleteOptions{})
	})
	killed := time.Now()
	t.Log("killed", killed.Format(time.TimeOnly))
	until(t, "the site answers from the first node", func() bool {
		return len(where("n1")) == 1 && visit(browser, site.Data.URL) == nil
	})
	again := time.Since(killed).Round(100 * time.Millisecond)
	why = load.end()
	if len(why) > 50 { // requests in progress, and the clients' next attempts
		t.Errorf("%d requests failed", len(why))
		why = why[:10]
	}
	t.Logf("after the end of its node the site answered again within %v; %d requests were answered, %d failed", again, load.good.Load(), len(why))
	for _, x := range why { // the failed requests in progress
		t.Log(x)
	}
	if again > time.Minute {
		t.Errorf("the site answered again only after %v", again)
	}
}
