// Package programs owns the end-to-end tests of applications with the real program: a new release replaces the old one
// without a failed request, and no process outlives a kill.
package programs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

var binary string

func TestMain(m *testing.M) {
	// These tests spend half of their time waiting for programs and for the next minute, so run more of them in
	// parallel.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	syscall.Umask(0o077) // like some service managers: the program must set the mode of files that other users read
	os.Exit(world.Main(m, &binary))
}

// script is the file that these tests' sites run. Its name identifies their processes.
const script = "app-of-e2e-programs.js"

// server returns a Node.js server without dependencies.
func server(version string) map[string]string {
	return map[string]string{
		"package.json": `{"name": "app", "private": true, "scripts": {"start": "node ` + script + `"}}`,
		script: `const http = require('http')
http.createServer((q, r) => {
  let n = 0
  q.on('data', b => { n += b.length })
  q.on('end', () => setTimeout(() => r.end('` + version + ` got ' + n), q.url === '/slow' ? 300 : 0))
}).listen(process.env.PORT)`,
	}
}

// installation is an installation with a user and a site that runs a program.
type installation struct {
	*world.World
	t        *testing.T
	key      string
	ID, URL  string
	browser  *http.Client
	versions []string // ids of deployments
}

func install(t *testing.T, change ...func(*world.World)) *installation {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(w)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	h := &installation{World: w, t: t}
	if h.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.commit("one")
	var made struct{ Data struct{ ID, URL string } }
	h.call("POST", "/sites", map[string]any{"name": "app", "type": "static", "repository": "git.test/acme/app", "branch": "main"}, &made)
	h.ID, h.URL = made.Data.ID, made.Data.URL
	if h.browser, err = w.Browser(); err != nil {
		t.Fatal(err)
	}
	var list struct{ Data []struct{ ID string } }
	h.until("the first deployment", func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/sites/"+h.ID+"/deployments", nil, &list)
		return len(list.Data) > 0, err
	})
	h.ended(list.Data[0].ID)
	h.shows("one got 0")
	return h
}

func (h *installation) call(method, path string, body, out any) {
	h.t.Helper()
	if err := h.Call(context.Background(), h.key, method, path, body, out); err != nil {
		h.t.Fatal(err)
	}
}

func (h *installation) commit(version string) {
	h.t.Helper()
	dir := h.t.TempDir()
	if err := world.WriteFiles(dir, server(version)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Git.Commit("acme/app", "main", dir, version); err != nil {
		h.t.Fatal(err)
	}
}

// until polls look until it is true, for up to six minutes.
func (h *installation) until(what string, look func() (bool, error)) {
	h.t.Helper()
	ctx, cancel := context.WithTimeoutCause(h.t.Context(), 6*time.Minute, fmt.Errorf("waited in vain for %s", what))
	defer cancel()
	if err := world.Until(ctx, 50*time.Millisecond, look); err != nil {
		h.t.Fatal(err)
	}
}

// ended waits until a deployment has succeeded.
func (h *installation) ended(id string) {
	h.t.Helper()
	h.until("deployment "+id, func() (bool, error) {
		var d struct{ Status, Error string }
		err := h.Call(h.t.Context(), h.key, "GET", "/deployments/"+id, nil, &d)
		if d.Status == "failed" || d.Status == "canceled" {
			h.t.Fatalf("deployment %s: %s %s", id, d.Status, d.Error)
		}
		return d.Status == "success", err
	})
	h.versions = append(h.versions, id)
}

func (h *installation) deploy(version string) {
	h.t.Helper()
	h.commit(version)
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	h.ended(out.DeploymentID)
}

// visit sends one request to the site and returns its text, or an error if the response is wrong.
func (h *installation) visit(method, path, body string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, h.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	a, err := world.Read(h.browser.Do(req))
	if err != nil {
		return "", err
	}
	if text := string(a.Body); a.Status == 200 && strings.HasSuffix(text, fmt.Sprintf(" got %d", len(body))) {
		return text, nil
	}
	return "", fmt.Errorf("%s %s: %d %.200s", method, path, a.Status, a.Body)
}

// processes returns the pids of the installation's processes that run script.
func (h *installation) processes() []string { return h.Processes(script) }

// again restarts the service after a kill, and checks that none of the old processes remain. They end with the service,
// or, if programs run elsewhere, when it is back.
func (h *installation) again(left func() (pids []string)) {
	h.t.Helper()
	if h.Elsewhere() {
		before := left()
		if err := h.Start(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		h.until("the end of what ran before the kill", func() (bool, error) {
			now := left()
			before = slices.DeleteFunc(before, func(pid string) bool { return !slices.Contains(now, pid) })
			return len(before) == 0, fmt.Errorf("processes %v run", before)
		})
		return
	}
	h.until("the end of all programs", func() (bool, error) {
		now := left()
		return len(now) == 0, fmt.Errorf("processes %v run", now)
	})
	if err := h.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// While visitors send requests, up to 200 per second, another deployment replaces the live one a hundred times or the
// program is restarted. No request fails.
func TestSwitchesDropNothing(t *testing.T) {
	t.Parallel()
	h := install(t)
	for _, v := range []string{"two", "three"} {
		h.deploy(v)
	}
	var failed, good, held atomic.Int64
	stop := make(chan struct{})
	var visitors sync.WaitGroup
	began := time.Now()
	every, most := 20*time.Millisecond, 50 // more requests would only slow down the switches and other tests
	if h.Elsewhere() {
		every, most = 5*time.Millisecond, 400
	}
	visitors.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		underWay := make(chan struct{}, most)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			select {
			case underWay <- struct{}{}:
			default: // skip a request while so many are waiting
				held.Add(1)
				continue
			}
			visitors.Go(func() {
				defer func() { <-underWay }()
				method, path, body := "GET", "/", ""
				switch n % 3 {
				case 1:
					method, body = "POST", strings.Repeat("x", n%5000)
				case 2:
					path = "/slow"
				}
				if _, err := h.visit(method, path, body); err == nil {
					good.Add(1)
				} else if failed.Add(1) < 20 {
					t.Errorf("request %d: %v", n, err)
				}
			})
		}
	})
	for i := range 100 {
		switch {
		case i%20 == 19:
			h.deploy(fmt.Sprint("deployed", i))
		case i%20 == 9:
			var op struct{ ID string }
			h.call("POST", "/sites/"+h.ID+"/restart", nil, &op)
			h.until("the restart", func() (bool, error) {
				var o struct{ Status, Error string }
				err := h.Call(t.Context(), h.key, "GET", "/operations/"+op.ID, nil, &o)
				if o.Status == "failed" {
					t.Fatal(o.Error)
				}
				return o.Status == "success", err
			})
		default:
			// Use the version's newest deployment, because releases of old ones are deleted in time.
			var out struct{ DeploymentID string }
			h.call("POST", "/sites/"+h.ID+"/rollback", map[string]any{"deploymentId": h.versions[i%2]}, &out)
			h.versions[i%2] = out.DeploymentID
			h.until("the rollback", func() (bool, error) {
				text, err := h.visit("GET", "/", "")
				return strings.HasPrefix(text, []string{"one", "two"}[i%2]+" got"), err
			})
		}
		if failed.Load() > 0 {
			break
		}
	}
	close(stop)
	visitors.Wait()
	t.Logf(
		"%d requests were answered, %.0f a second, %d failed, %d were not sent", good.Load(),
		float64(good.Load())/time.Since(began).Seconds(), failed.Load(), held.Load(),
	)
	if failed.Load() > 0 { // responses don't contain the reason
		t.Logf("the site's log:\n%s", appSite{h}.runtimeLog(""))
	}
	if good.Load() < 100 {
		t.Errorf("only %d requests were answered", good.Load())
	}
}

// If the service is stopped while a deployment starts its program, the deployment completes after the next start
// instead of failing.
func TestStoppedDuringAStart(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	dir := t.TempDir()
	files := server("two")
	files[script] = "setTimeout(() => {" + files[script] + "}, 4000)"
	err := world.WriteFiles(dir, files)
	if err == nil {
		_, err = h.Git.Commit("acme/app", "main", dir, "listens late")
	}
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	h.until("the program runs", func() (bool, error) {
		var d struct {
			Status string
			Stages []struct{ Name, Status string }
		}
		err := h.Call(t.Context(), h.key, "GET", "/deployments/"+out.DeploymentID, nil, &d)
		if d.Status == "failed" || d.Status == "success" {
			t.Fatalf("the deployment has ended: %+v", d)
		}
		for _, s := range d.Stages {
			if s.Name == "start" && s.Status == "running" {
				return true, nil
			}
		}
		return false, fmt.Errorf("%+v: %w", d, err)
	})
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ended(out.DeploymentID)
	if text, err := h.visit("GET", "/", ""); err != nil || text != "two got 0" {
		t.Errorf("%q, %v", text, err)
	}
}

// However often the service is killed during traffic, it leaves no program behind, and serves the live release after
// each start.
func TestKilledDuringTraffic(t *testing.T) {
	t.Parallel()
	h := install(t)
	h.deploy("two")
	if len(h.processes()) == 0 {
		t.Fatal("its program is not found among the processes")
	}
	for i := range 20 {
		stop := make(chan struct{})
		var visitors sync.WaitGroup
		for range 4 {
			visitors.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = h.visit("GET", "/slow", "") // requests may fail during a kill
					}
				}
			})
		}
		if i%2 == 1 { // kill it during a switch
			h.call("POST", "/sites/"+h.ID+"/rollback", map[string]any{"deploymentId": h.versions[(i/2)%2]}, nil)
		}
		h.Kill()
		close(stop)
		visitors.Wait()
		h.again(h.processes)
		want := "two"
		if i%2 == 1 {
			want = []string{"one", "two"}[(i/2)%2]
		} else if i > 0 {
			want = []string{"one", "two"}[((i-1)/2)%2]
		}
		h.until(fmt.Sprintf("version %s after kill %d", want, i+1), func() (bool, error) { // a rollback may not be complete yet
			text, err := h.visit("GET", "/", "")
			if err != nil {
				t.Fatalf("after kill %d: %v", i+1, err)
			}
			return strings.HasPrefix(text, want+" got"), errors.New(text)
		})
	}
	if err := h.World.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.until("the end of all programs after an orderly end", func() (bool, error) {
		left := h.processes()
		return len(left) == 0, fmt.Errorf("processes %v run", left)
	})
}
