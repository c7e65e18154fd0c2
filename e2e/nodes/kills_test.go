package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

// ledger is a program that stores each posted line. Each process records its start. A process that writes after a newer
// process has started appends to data/violations.
var ledger = map[string]string{
	"package.json": `{"scripts": {"start": "node server.js"}, "engines": {"node": ">=18"}}`,
	"slipway.toml": "[run]\nstorage = [\"data\"]\nsleep_after_seconds = 600\n",
	"data/.keep":   "",
	"server.js": `
const http = require('http'), fs = require('fs'), me = require('crypto').randomUUID();
fs.writeFileSync('data/' + me, me);
fs.renameSync('data/' + me, 'data/owner');
http.createServer((q, r) => {
  if (q.method === 'POST') {
    if (fs.readFileSync('data/owner', 'utf8') !== me) fs.appendFileSync('data/violations', q.url + '\n');
    const f = fs.openSync('data/lines', 'a');
    fs.writeSync(f, q.url + '\n');
    fs.fsyncSync(f);
    fs.closeSync(f);
  }
  r.end('stored ' + q.url);
}).listen(process.env.PORT);`,
}

// killed is an installation of two nodes that are killed in turn while clients record what was acknowledged.
type killed struct {
	*installation
	dir       string  // storage of all nodes
	databases []*gate // one per node, to the database
	relays    []*gate // one per node, to the node
	stop      chan struct{}

	mu       sync.Mutex // guards the following fields
	down     *world.World
	acks     map[string]int    // kind → number
	unknown  map[string]int    // kind → number of requests without an answer
	deployed []string          // acknowledged deployments
	pushes   map[string]string // acknowledged pushes: commit → deployment
	stored   []string          // acknowledged lines
	backups  []string          // acknowledged backups
}

// One of two nodes is killed at random moments, again and again, during deployments, pushes, uploads to shared storage,
// and backups. No acknowledged change is lost or done twice, and no two programs write to the same storage. The other
// node serves static sites. In the second round, the killed node stays down until the other node has taken over its
// programs. SLIPWAY_KILLS is the number of faults; after two kills, k.fault chooses them.
func TestKillsOfNodes(t *testing.T) {
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("SLIPWAY_KILLS")); err == nil {
		rounds = n
	}
	i, dir := mounted(t)
	k := &killed{
		installation: i, dir: dir, stop: make(chan struct{}),
		acks: map[string]int{}, unknown: map[string]int{}, pushes: map[string]string{},
	}
	for _, w := range i.nodes {
		at := slices.Index(w.Flags, "--database") + 1
		g, address := newGate(t, w.Flags[at])
		relay := between(t, "tcp", w.Flags[slices.Index(w.Flags, "--node-listen")+1], "127.0.0.1:0")
		w.Flags[at], w.Flags = address, append(w.Flags, "--node-address", relay.listener.Addr().String())
		k.databases, k.relays = append(k.databases, g), append(k.relays, relay)
	}
	i.start(i.nodes...)
	i.commit("shop", ledger)
	i.commit("plain", map[string]string{"index.html": "plain"})
	i.commit("pushed", map[string]string{"index.html": "push 0."})
	shop, plain, pushed := i.site(i.nodes[0], "shop"), i.site(i.nodes[1], "plain"), i.site(i.nodes[0], "pushed")
	i.until("the sites are deployed", func() bool {
		return i.count(`SELECT count(DISTINCT site_id) FROM deployments WHERE status = 'success'`) == 3
	})
	i.serves(i.nodes[0], "shop", "/", "stored")
	hooks := i.nodes[0].Hooks
	err := i.nodes[0].Call(t.Context(), i.key, "POST", "/webhooks", map[string]any{
		"url": hooks.URL + "/kills", "secret": "sixteen characters", "events": []string{"deployment.completed", "deployment.failed"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var push struct{ URL, Secret string }
	if err := i.nodes[0].Call(t.Context(), i.key, "POST", "/sites/"+pushed+"/git/hook", nil, &push); err != nil {
		t.Fatal(err)
	}

	var clients sync.WaitGroup
	clients.Go(func() { k.deploys(plain) })
	clients.Go(func() { k.pushesTo(pushed, push.URL, push.Secret) })
	clients.Go(func() { k.uploads() })
	clients.Go(func() { k.takesBackups(shop) })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // which node dies
	begun := time.Now()
	kinds := map[string]int{}
	for round := range rounds {
		before, more := k.total(), 1+random.IntN(6) // wait until the clients have done this much work
		i.until("clients work", func() bool { return k.total() >= before+more || t.Failed() })
		if round > 1 {
			kind := k.fault(random, shop)
			t.Logf("round %d after %s: %s", round, time.Since(begun).Round(time.Second), kind)
			kinds[kind]++
			if t.Failed() {
				break
			}
			continue
		}
		kinds["kill"]++
		dies := i.nodes[random.IntN(2)]
		if round%2 == 1 {
			dies, _ = i.stays(shop)
		}
		k.kill(dies)
		lives := k.alive()
		if status, body := i.visit(lives, "plain", "/"); status != 200 || body != "plain" {
			t.Errorf("round %d: a static site at the node that lives: %d %s", round, status, body)
		}
		if round%2 == 1 {
			k.takenOver()
		}
		i.start(dies)
		k.up()
		if t.Failed() {
			break
		}
	}
	took := time.Since(begun)
	i.until("there is something of everything", func() bool {
		return k.of("deployment") > 0 && k.of("push") > 0 && k.of("upload") > 0 && k.of("backup") > 0 || t.Failed()
	})
	close(k.stop)
	clients.Wait()
	k.verify(shop, pushed)
	t.Logf("%d faults in %s: %v; acknowledged %v, without an answer %v", rounds, took.Round(time.Second), kinds, k.acks, k.unknown)
}

// fault causes a random fault for a while and returns its name.
func (k *killed) fault(random *rand.Rand, shop string) (kind string) {
	n := random.IntN(2)
	w, short := k.nodes[n], time.Duration(100+random.IntN(5000))*time.Millisecond
	during := func(what string, to way, gates ...*gate) string {
		for _, g := range gates {
			g.set(to)
		}
		select {
		case <-time.After(short): // duration of the fault
		case <-k.t.Context().Done():
		}
		for _, g := range gates {
			g.set(all)
		}
		return what
	}
	switch random.IntN(10) {
	case 0:
		k.kill(w)
		k.start(w)
		k.up()
		return "kill"
	case 1:
		home, _ := k.stays(shop)
		k.kill(home)
		k.takenOver()
		k.start(home)
		k.up()
		return "kill until another node has taken over"
	case 2:
		k.halt(w, func() { <-time.After(short) })
		return "stop"
	case 3:
		home, _ := k.stays(shop)
		k.halt(home, k.takenOver)
		return "stop until another node has taken over"
	case 4:
		return during("cut from the database", none, k.databases[n])
	case 5:
		return during("silence of the database", silence, k.databases[n])
	case 6:
		short /= 5
		return during("answers of the database lost", forth, k.databases[n])
	case 7:
		return during("database away from both", none, k.databases...)
	case 8:
		short *= 3
		return during("silence between the nodes", silence, k.relays...)
	default:
		return during("cut between the nodes", none, k.relays...)
	}
}

// halt stops a node with SIGSTOP until wait returns.
func (k *killed) halt(w *world.World, wait func()) {
	k.mu.Lock()
	k.down = w
	k.mu.Unlock()
	if err := syscall.Kill(w.PID(), syscall.SIGSTOP); err != nil {
		k.t.Error(err)
	}
	wait()
	if err := syscall.Kill(w.PID(), syscall.SIGCONT); err != nil {
		k.t.Error(err)
	}
	k.up()
}

// up records that both nodes run.
func (k *killed) up() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = nil
}

// takenOver waits until the storage program responds on the other node.
func (k *killed) takenOver() {
	before := k.of("upload")
	k.until("the other node has taken over what stores", func() bool { return k.of("upload") > before || k.t.Failed() })
}

func (k *killed) kill(w *world.World) {
	k.mu.Lock()
	k.down = w
	k.mu.Unlock()
	w.Kill()
}

// alive returns a random node that runs.
func (k *killed) alive() *world.World {
	k.mu.Lock()
	defer k.mu.Unlock()
	up := slices.DeleteFunc(slices.Clone(k.nodes), func(w *world.World) bool { return w == k.down })
	return up[rand.IntN(len(up))] //nolint:gosec // any
}

func (k *killed) ack(kind string, note func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acks[kind]++
	note()
}

func (k *killed) of(kind string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.acks[kind]
}

func (k *killed) total() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range k.acks {
		n += x
	}
	return n
}

// next waits until a client's next operation, and returns false at the end.
func (k *killed) next() bool {
	select {
	case <-k.stop:
		return false
	case <-time.After(300 * time.Millisecond): // limits the load
		return !k.t.Failed()
	}
}

// sends repeats a request, at any running node, until a response arrives. ok is false if its status is in refused.
func (k *killed) sends(kind string, r world.Request, out any, refused ...int) (ok bool) {
	at := r.URL
	for end := time.Now().Add(3 * time.Minute); ; {
		w := k.alive()
		if at != "" {
			r.URL = strings.Replace(at, k.nodes[0].Listen, w.Listen, 1)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		a, err := w.Do(ctx, r)
		cancel()
		switch {
		case err == nil && a.Status/100 == 2:
			if err := a.JSON(out); err != nil {
				k.t.Errorf("%s: %v", kind, err)
				return false
			}
			return true
		case err == nil && slices.Contains(refused, a.Status):
			return false
		case err == nil && a.Status <= 500:
			k.t.Errorf("%s: %v", kind, a.Err())
			return false
		case time.Now().After(end):
			k.t.Errorf("%s was never answered: %v %v", kind, err, a.Err())
			return false
		}
		k.mu.Lock()
		k.unknown[kind]++
		k.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond): // between blind retries
		case <-k.t.Context().Done():
			return false
		}
	}
}

func (k *killed) deploys(site string) {
	for n := 0; k.next(); n++ {
		var out struct{ DeploymentID string }
		r := world.Request{
			Method: "POST", Path: "/sites/" + site + "/deploy", Key: k.key, Header: http.Header{"Idempotency-Key": {fmt.Sprint("deploy-", n)}},
		}
		if k.sends("deployment", r, &out, http.StatusConflict) {
			k.ack("deployment", func() { k.deployed = append(k.deployed, out.DeploymentID) })
		}
	}
}

func (k *killed) pushesTo(site, url, secret string) {
	for n := 1; k.next(); n++ {
		dir := filepath.Join(k.t.TempDir(), "pushed")
		err := world.WriteFiles(dir, map[string]string{"index.html": fmt.Sprintf("push %d.", n)})
		var commit string
		if err == nil {
			commit, err = k.nodes[0].Git.Commit("acme/pushed", "main", dir, fmt.Sprint("push ", n))
		}
		if err != nil {
			k.t.Error(err)
			return
		}
		body, err := json.Marshal(map[string]any{
			"ref": "refs/heads/main", "before": strings.Repeat("b", 40), "after": commit,
			"repository":  map[string]string{"full_name": "acme/pushed", "clone_url": "https://git.test/acme/pushed.git", "default_branch": "main"},
			"head_commit": map[string]string{"id": commit, "message": "pushed"}, "commits": []any{},
		})
		if err != nil {
			k.t.Error(err)
			return
		}
		var out struct{ DeploymentID, Reason string }
		if !k.sends("push", world.Request{Method: "POST", URL: url, Body: body, Header: http.Header{
			"X-Github-Event": {"push"}, "X-Github-Delivery": {fmt.Sprint("push-", n)}, "X-Hub-Signature-256": {world.Signature(secret, body)},
		}}, &out) {
			return
		}
		if out.DeploymentID == "" && out.Reason != "This delivery was handled before" {
			k.t.Errorf("a push deploys nothing: %+v", out)
		}
		k.ack("push", func() { k.pushes[commit] = out.DeploymentID })
	}
}

// uploads posts lines to the program with storage. Each is sent once, and one without a response may or may not be
// stored.
func (k *killed) uploads() {
	for n := 0; k.next(); n++ {
		w := k.alive()
		browser, err := w.Browser()
		if err != nil {
			k.t.Error(err)
			return
		}
		line := fmt.Sprint("/line-", n)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		a, err := w.Site(ctx, browser, world.Request{Method: http.MethodPost, URL: "https://shop.localhost" + line})
		cancel()
		browser.CloseIdleConnections()
		if err == nil && a.Status == 200 && string(a.Body) == "stored "+line {
			k.ack("upload", func() { k.stored = append(k.stored, line) })
			continue
		}
		k.mu.Lock()
		k.unknown["upload"]++
		k.mu.Unlock()
	}
}

// takesBackups creates backups of the program's site, one after the other.
func (k *killed) takesBackups(site string) {
	for n := 0; k.next(); n++ {
		var out struct{ ID string }
		r := world.Request{
			Method: "POST", Path: "/sites/" + site + "/backups", Key: k.key, Header: http.Header{"Idempotency-Key": {fmt.Sprint("backup-", n)}},
		}
		if k.sends("backup", r, &out, http.StatusConflict, http.StatusTooManyRequests) {
			k.ack("backup", func() { k.backups = append(k.backups, out.ID) })
		}
	}
}

// verify checks that every acknowledged change exists exactly once.
func (k *killed) verify(shop, pushed string) {
	t := k.t
	t.Helper()
	for commit := range k.pushes {
		if n := k.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND commit_hash = $2`, pushed, commit); n != 1 {
			t.Errorf("a push has %d deployments", n)
		}
	}
	last := world.Request{Method: "POST", Path: "/sites/" + pushed + "/deploy", Key: k.key} // both nodes are up, so this must succeed
	k.sends("deployment", last, &struct{}{})
	k.until("all deployments and backups have ended", func() bool {
		return k.count(`SELECT count(*) FROM jobs WHERE kind = 'deploy.run'`) == 0 &&
			k.count(`SELECT count(*) FROM backups WHERE status NOT IN ('completed', 'failed')`) == 0
	})
	for _, id := range k.deployed {
		k.ended(id)
	}
	for _, id := range k.pushes {
		if id != "" {
			k.ended(id)
		}
	}
	if n := len(k.pushes); n > 0 {
		for _, w := range k.nodes {
			k.serves(w, "pushed", "/", fmt.Sprintf("push %d.", n))
		}
	}
	for _, id := range k.backups {
		if n := k.count(`SELECT count(*) FROM backups WHERE id = $1`, id); n != 1 {
			t.Errorf("backup %s is gone", id)
		}
	}

	text, err := os.ReadFile(filepath.Join(k.dir, shop, "data", "lines"))
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		times[strings.TrimSpace(line)]++
	}
	for _, line := range k.stored {
		if times[line] == 0 {
			t.Errorf("%s was stored and is gone", line)
		}
	}
	for line, n := range times {
		if n > 1 {
			t.Errorf("%s was stored %d times", line, n)
		}
	}
	if text, err := os.ReadFile(filepath.Join(k.dir, shop, "data", "violations")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program wrote after another one had begun: %s, %v", text, err)
	}

	// Each deployment that ended has one event. Repeated deliveries carry the same event.
	finished := slices.DeleteFunc(slices.Clone(k.deployed), func(id string) bool {
		return k.count(`SELECT count(*) FROM deployments WHERE id = $1 AND status = 'canceled'`, id) == 1
	})
	told := map[string]map[string]bool{}
	heard := func() {
		for _, d := range k.nodes[0].Hooks.All() {
			var data struct{ Deployment struct{ ID string } }
			if err := json.Unmarshal(d.Data, &data); err != nil {
				t.Error(err)
			}
			if told[data.Deployment.ID] == nil {
				told[data.Deployment.ID] = map[string]bool{}
			}
			told[data.Deployment.ID][d.Header.Get("Webhook-Id")] = true
		}
	}
	k.until("all deployments are told of", func() bool {
		heard()
		return !slices.ContainsFunc(finished, func(id string) bool { return len(told[id]) == 0 })
	})
	for id, events := range told {
		if len(events) > 1 {
			t.Errorf("the end of deployment %s is told of by %d events", id, len(events))
		}
	}
	t.Logf("%d backups completed, %d failed", k.count(`SELECT count(*) FROM backups WHERE status = 'completed'`),
		k.count(`SELECT count(*) FROM backups WHERE status = 'failed'`))
}

// ended checks that a deployment succeeded, was superseded by a newer one, or failed because its node was killed too
// often.
func (k *killed) ended(id string) {
	k.t.Helper()
	var d struct{ Status, Error string }
	err := k.nodes[0].Call(k.t.Context(), k.key, "GET", "/deployments/"+id, nil, &d)
	if err != nil || d.Status != "success" && !strings.HasPrefix(d.Error, "Superseded") && !strings.Contains(d.Error, "stopped unexpectedly") {
		k.t.Errorf("deployment %s: %v %+v", id, err, d)
	}
}
