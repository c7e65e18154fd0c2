package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

var (
	seed  = flag.Uint64("seed", 0, "of the crash test; 0 chooses one and prints it")
	kills = flag.Int("kills", 30, "how often the crash test kills the program")
)

const (
	crashClients = 8
	crashSecret  = "the crash test's secret"
	crashEvents  = "/all" // path of the receiver for all events

	crashEndpoints = 50 // number of webhooks for crashNames, with the paths /each/0, /each/1 …
)

// crashNames lists the events that all crashEndpoints must get.
var crashNames = []string{"site.created", "site.deleted", "deployment.completed"}

// Acknowledged changes survive SIGKILL at any moment. Clients work while the program is killed again and again. At the
// end, the test compares the clients' ledger with the API, the delivered events and the database. The comments on the
// verify methods state the invariants I1 to I8.
func TestKill(t *testing.T) {
	world.Long(t)
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed: -seed=%d", *seed)
	k := newKilling(t)
	clients, quiet := k.startClients(t)
	random := rand.New(rand.NewPCG(*seed, 0))
	for n := range *kills {
		k.life(t, n, random)
	}
	quiet() // after the last kill, the program completes all work
	clients.Wait()
	k.verify(t)
}

// killing holds the state of the test.
type killing struct {
	world   *world.World
	browser *http.Client
	key     string
	commits map[string]string // repository → commit
	ledger  ledger

	mu sync.Mutex    // guards up
	up chan struct{} // closed while the program is ready

	killed int // number of kills
}

func newKilling(t *testing.T) *killing {
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	commits := map[string]string{}
	for _, name := range repositories {
		dir := filepath.Join(w.Dir, "content", name)
		if err := world.WriteFiles(dir, map[string]string{
			"index.html": "<h1>" + name + "</h1>",
			"about.html": "about " + name,
			"a/b.txt":    name,
		}); err != nil {
			t.Fatal(err)
		}
		if commits[name], err = w.Git.Commit("acme/"+name, "main", dir, "the content of "+name); err != nil {
			t.Fatal(err)
		}
	}
	// Half of the repositories are fetched over HTTP, half from a directory.
	w.Flags = append(w.Flags, "--git-host", "files.test=file://"+filepath.Dir(filepath.Dir(w.Git.Path("acme/one"))))
	k := &killing{world: w, up: make(chan struct{}), commits: commits}
	if k.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	k.start(t)
	if k.browser, err = w.Browser(); err != nil {
		t.Fatal(err)
	}
	k.ledger.init()
	err = w.Call(t.Context(), k.key, "POST", "/webhooks", map[string]any{
		"url": w.Hooks.URL + crashEvents, "secret": crashSecret,
		"events": []string{"site.created", "site.deleted", "deployment.started", "deployment.completed", "deployment.failed"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range crashEndpoints {
		err := w.Call(t.Context(), k.key, "POST", "/webhooks", map[string]any{
			"url":    fmt.Sprintf("%s/each/%d", w.Hooks.URL, n),
			"secret": crashSecret,
			"events": crashNames,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// life lets the program run for 20 to 800 ms and kills it. One in five runs is killed before the program is ready.
func (k *killing) life(t *testing.T, n int, random *rand.Rand) {
	if random.IntN(5) == 0 {
		k.die()
		if err := k.world.Launch(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // kill it at a random moment
		k.world.Kill()
		k.killed++
		k.start(t)
	}
	time.Sleep(time.Duration(20+random.IntN(780)) * time.Millisecond)
	select {
	case <-k.world.Ended():
		t.Fatalf("life %d: the program ended by itself\n%s", n, k.world.Log(4000))
	default:
	}
	k.die()
	k.start(t)
}

// die kills the program.
func (k *killing) die() {
	k.mu.Lock()
	select {
	case <-k.up:
		k.up = make(chan struct{})
	default:
	}
	k.mu.Unlock()
	k.world.Kill()
	k.killed++
}

// start starts the program and checks that it serves the live sites within 2 s (I8).
func (k *killing) start(t *testing.T) {
	t.Helper()
	started := time.Now()
	ctx, cancel := deadline()
	defer cancel()
	if err := k.world.Start(ctx); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	close(k.up)
	k.mu.Unlock()
	for _, s := range k.ledger.live(5) {
		for {
			a, err := k.world.Site(ctx, k.browser, world.Request{Method: "GET", URL: s.url + "/"})
			if err == nil && a.Status == 200 && strings.Contains(string(a.Body), "<h1>"+s.repository+"</h1>") || k.ledger.leaving(s.id) {
				break
			}
			if took := time.Since(started); took > world.Patience(30*time.Second) { // make bench measures the start more exactly
				t.Errorf("I8: %s doesn't serve %s after its restart: %v %d %.200s", s.url, took, err, a.Status, a.Body)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// whenUp returns when the program is ready, or ctx ends.
func (k *killing) whenUp(ctx context.Context) {
	k.mu.Lock()
	up := k.up
	k.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
	}
}

// startClients starts clients that work until quiet is called.
func (k *killing) startClients(t *testing.T) (clients *sync.WaitGroup, quiet func()) {
	clients = &sync.WaitGroup{}
	stop := make(chan struct{})
	for i := range crashClients {
		c := &crashClient{k: k, t: t, name: fmt.Sprintf("c%d", i), random: rand.New(rand.NewPCG(*seed, uint64(i+1)))}
		clients.Go(func() { c.work(stop) })
	}
	return clients, func() { close(stop) }
}
