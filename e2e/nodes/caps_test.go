package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/limits"
)

// another adds a node to an installation that isn't running yet.
func (i *installation) another() *world.World {
	i.t.Helper()
	a := i.nodes[0]
	w, err := world.New(binary, i.t.TempDir())
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(w.Close)
	w.Flags = append([]string(nil), a.Flags...)
	secret, err := os.ReadFile(filepath.Join(a.Data, "secrets.key"))
	if err == nil {
		err = os.MkdirAll(w.Data, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(w.Data, "secrets.key"), secret, 0o600)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	i.nodes = append(i.nodes, w)
	return w
}

// capped is a node under load.
type capped struct {
	w       *world.World
	browser *http.Client
	sent    atomic.Int64 // received body bytes, including those of incomplete responses
	refused atomic.Int64 // refusals since the last complete response
}

// load requests a file repeatedly until ctx ends or the node exits.
func (c *capped) load(ctx context.Context, url string) {
	buffer := make([]byte, 64<<10)
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		answer, err := c.browser.Do(request)
		if err != nil {
			select {
			case <-c.w.Ended():
				return
			default:
				continue
			}
		}
		for {
			n, err := answer.Body.Read(buffer)
			if answer.StatusCode == http.StatusOK {
				c.sent.Add(int64(n))
			}
			if err != nil {
				break
			}
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			c.refused.Store(0)
		} else if answer.StatusCode == http.StatusServiceUnavailable {
			c.refused.Add(1)
		}
	}
}

// Three nodes under load share a bandwidth limit, and one is killed. Together they exceed the limit by no more than the
// responses in progress, and they resume by themselves after the limit is raised.
func TestCapOnThreeNodes(t *testing.T) {
	const most, each, workers = 64 << 20, 200_000, 6 // workers per node
	i := install(t)
	i.another()
	for _, w := range i.nodes {
		if w.Flags[0] != "--limits" {
			t.Fatal(w.Flags)
		}
		at := w.Flags[1]
		text, err := os.ReadFile(at)
		if err == nil {
			at = filepath.Join(w.Dir, "capped.toml")
			err = os.WriteFile(at, []byte(string(text)+fmt.Sprintf("\"bandwidth.bytes\" = %d\n", most)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Flags[1] = at
		w.Flags = append(w.Flags, "--billing")
	}
	file := make([]byte, each)
	rand.NewChaCha8([32]byte{26}).Read(file)
	i.commit("one", map[string]string{"index.html": "one", "file.bin": string(file)})
	i.start(i.nodes...)
	i.site(i.nodes[0], "one")
	var nodes []*capped
	for _, w := range i.nodes {
		i.serves(w, "one", "/", "one")
		browser, err := w.Browser()
		if err != nil {
			t.Fatal(err)
		}
		defer browser.CloseIdleConnections()
		nodes = append(nodes, &capped{w: w, browser: browser})
	}
	for n, w := range i.nodes { // until each node has borrowed, because little quota is left
		i.until("a node borrows", func() bool {
			i.visit(w, "one", "/")
			return i.count(`SELECT count(*) FROM usage_loans`) > n
		})
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var all sync.WaitGroup
	for _, c := range nodes {
		for range workers {
			all.Go(func() { c.load(ctx, "https://one.localhost/file.bin") })
		}
	}
	total := func() (n int64) {
		for _, c := range nodes {
			n += c.sent.Load()
		}
		return n
	}
	refusing := func(some ...*capped) func() bool {
		return func() bool {
			for _, c := range some {
				if c.refused.Load() < 10*workers {
					return false
				}
			}
			return true
		}
	}
	i.until("a third is sent", func() bool { return total() > most/3 })
	killed := time.Now()
	nodes[2].w.Kill()
	i.until("the others are refused", refusing(nodes[:2]...))
	sent, bound := total(), int64(most+3*workers*each) // plus one response in progress per worker
	if time.Since(killed) > time.Minute {
		bound += nodes[2].sent.Load() // its loan has expired, and its unreported bytes are lost
	}
	t.Logf("%d bytes were sent of %d, %d of them by the node that was killed", sent, int64(most), nodes[2].sent.Load())
	if sent > bound || sent < most/2 {
		t.Errorf("%d bytes were sent, the limit is %d", sent, int64(most))
	}
	raised := time.Now()
	if out, err := i.nodes[0].CLI("", "billing", "grant", "ada@example.test", string(limits.Bandwidth), fmt.Sprint(4*most), "--reason", "a test"); err != nil {
		t.Fatal(out, err)
	}
	i.until("both go on", func() bool { return nodes[0].refused.Load() == 0 && nodes[1].refused.Load() == 0 })
	t.Logf("resumed after %s", time.Since(raised).Round(100*time.Millisecond))
	i.until("the limit is spent again", refusing(nodes[:2]...))
	if sent := total(); sent > 4*most+bound-most+nodes[2].sent.Load() {
		t.Errorf("%d bytes were sent, the limit is %d", sent, int64(4*most))
	}
	end()
	all.Wait()
	if answer, body := i.visit(i.nodes[0], "one", "/"); answer != http.StatusServiceUnavailable || !strings.Contains(body, "paused") {
		t.Errorf("at the limit: %d %.200s", answer, body)
	}
}
