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
	crashEvents  = "/all" // where the receiver hears of everything

	crashEndpoints = 50 // where it hears of crashNames, one webhook each: /each/0 and so on
)

// crashNames are the events that every one of the crashEndpoints must get.
var crashNames = []string{"site.created", "site.deleted", "deployment.completed"}

// What was acknowledged is still there after SIGKILL at any moment: clients work, the program dies
// again and again, and when all is quiet the ledger of what was answered is compared with
// what is there, with what was delivered and with the database file. verify says what
// must hold, by the numbers of the plan: I1 to I8.
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
	quiet() // the life that the last kill was followed by brings everything to its end
	clients.Wait()
	k.verify(t)
}

// killing is one run of the test.
type killing struct {
	world   *world.World
	browser *http.Client
	key     string
	commits map[string]string // of the repositories
	ledger  ledger

	mu sync.Mutex    // guards up
	up chan struct{} // closed while the program is ready

	killed int // how often the program was killed
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
	// Half of the repositories come over HTTP, half from a directory.
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

// life lets the program live for 20 to 800 ms and kills it; one life in five ends before
// the program was ready.
func (k *killing) life(t *testing.T, n int, random *rand.Rand) {
	if random.IntN(5) == 0 {
		k.die()
		if err := k.world.Launch(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // the moment is the point
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

// start starts the program, and holds it to serving what was live within 2 s (I8).
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
			if took := time.Since(started); took > world.Patience(30*time.Second) { // how fast it starts, make bench tells
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

// startClients lets clients work until quiet is called.
func (k *killing) startClients(t *testing.T) (clients *sync.WaitGroup, quiet func()) {
	clients = &sync.WaitGroup{}
	stop := make(chan struct{})
	for i := range crashClients {
		c := &crashClient{k: k, t: t, name: fmt.Sprintf("c%d", i), random: rand.New(rand.NewPCG(*seed, uint64(i+1)))}
		clients.Go(func() { c.work(stop) })
	}
	return clients, func() { close(stop) }
}
