package programs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"slipway/e2e/world"
)

// instanceScript responds slowly with an ID of its instance, and closes each connection. On SIGTERM it blocks for a
// moment, so that connections wait to be accepted, then closes its listener, which resets them. It exits 9 s after its
// last response, later than a request waits for a retry.
const instanceScript = `const http = require('http')
const me = require('crypto').randomUUID()
let ending = false
const s = http.createServer((q, r) => setTimeout(() => {
  if (q.url === '/end') { ending = true; const busy = Date.now() + 300; while (Date.now() < busy); s.close(() => setTimeout(() => process.exit(1), 9000)) }
  r.setHeader('Connection', 'close')
  r.end(me + ' got 0')
}, q.url === '/slow' ? 300 : 0))
s.listen(process.env.PORT)`

// Under 40 concurrent requests, a site with up to three instances gets all three. While one of them exits, a restart
// replaces all, and a new deployment takes over with as many instances, no request fails.
func TestInstances(t *testing.T) {
	t.Parallel()
	h := install(t)
	most := func(n int) {
		h.call("PATCH", "/sites/"+h.ID, map[string]any{"run": map[string]any{"instances": map[string]any{"max": n}}}, nil)
	}
	most(3)
	deploy := func() {
		t.Helper()
		dir := t.TempDir()
		files := server("")
		files[script] = instanceScript
		if err := world.WriteFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Git.Commit("acme/app", "main", dir, "instances"); err != nil {
			t.Fatal(err)
		}
		var out struct{ DeploymentID string }
		h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
		h.ended(out.DeploymentID)
	}
	deploy()
	var mu sync.Mutex // guards seen and good
	seen, good := map[string]bool{}, 0
	stop := make(chan struct{})
	var visitors sync.WaitGroup
	for range 40 {
		visitors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				text, err := h.visit("GET", "/slow", "")
				mu.Lock()
				if err != nil {
					t.Errorf("a request failed, after %d that were answered: %v", good, err)
					mu.Unlock()
					return
				}
				seen[strings.TrimSuffix(text, " got 0")] = true
				good++
				mu.Unlock()
			}
		})
	}
	ends := sync.OnceFunc(func() { close(stop); visitors.Wait() })
	defer ends()
	running := func() (int, error) {
		var s struct{ Process struct{ Instances int } }
		err := h.Call(t.Context(), h.key, "GET", "/sites/"+h.ID, nil, &s)
		return s.Process.Instances, err
	}
	answer := func(what string, n int) {
		t.Helper()
		h.until(what, func() (bool, error) {
			if t.Failed() {
				t.Fatalf("the site's log:\n%s", appSite{h}.runtimeLog(""))
			}
			run, err := running()
			mu.Lock()
			defer mu.Unlock()
			return len(seen) >= n && run == 3, errors.Join(err, fmt.Errorf("%d instances, %d have answered", run, len(seen)))
		})
	}
	forget := func() {
		mu.Lock()
		defer mu.Unlock()
		clear(seen)
	}
	answer("three instances", 3)
	if _, err := h.visit("GET", "/end", ""); err != nil {
		t.Error(err)
	}
	answer("a fourth in the place of the one that ended", 4)
	forget()
	var op struct{ ID string }
	h.call("POST", "/sites/"+h.ID+"/restart", nil, &op)
	h.until("the restart", func() (bool, error) {
		var o struct{ Status, Error string }
		err := h.Call(t.Context(), h.key, "GET", "/operations/"+op.ID, nil, &o)
		if o.Status == "failed" {
			t.Fatal(o.Error)
		}
		return o.Status == "success", errors.Join(err, errors.New(o.Status))
	})
	answer("three others after the restart", 3)
	deploy()
	forget()
	answer("three of the next deployment", 3)
	ends()
	most(1) // it also applies to the running instances
	h.until("the end of the others", func() (bool, error) {
		run, err := running()
		return run == 1, errors.Join(err, fmt.Errorf("%d instances", run))
	})
	t.Logf("%d requests were answered", good)
}
