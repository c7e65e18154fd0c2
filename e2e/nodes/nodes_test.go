// Package nodes owns the end-to-end tests of installations with several nodes: real processes that share PostgreSQL, an
// S3 bucket and the secrets key.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

var binary string

func TestMain(m *testing.M) { os.Exit(world.MainOnPostgres(m, &binary)) }

// installation holds two nodes.
type installation struct {
	t       *testing.T
	s3      *s3test.Server
	address string // of the bucket
	db      *db.DB // a direct connection to the database
	nodes   []*world.World
	key     string
}

func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, s3: s3test.New(t)}
	i.address = i.s3.Bucket(t)
	url := dbtest.Empty(t)
	if !strings.HasPrefix(url, "postgres") {
		t.Fatalf("the database is %s, want PostgreSQL", url)
	}
	for range 2 {
		w, err := world.New(binary, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		w.Flags = append(w.Flags, "--database", url, "--blobs", i.address)
		i.nodes = append(i.nodes, w)
	}
	a, b := i.nodes[0], i.nodes[1]
	for n, flag := range b.Flags { // both nodes use the first one's Git host and webhook receiver
		if strings.HasPrefix(flag, "git.test=") {
			b.Flags[n] = "git.test=" + a.Git.URL
		}
		if flag == b.Hooks.CA {
			b.Flags[n] = a.Hooks.CA
		}
		if flag == "--mariadb" { // if programs run elsewhere
			b.Flags[n+1] = a.Flags[slices.Index(a.Flags, flag)+1]
		}
	}
	var err error
	if i.key, err = a.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(a.Data, "secrets.key"))
	if err == nil {
		err = os.MkdirAll(b.Data, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.Data, "secrets.key"), secret, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	i.db = dbtest.Open(t, url)
	t.Cleanup(func() {
		if t.Failed() {
			for n, w := range i.nodes {
				t.Logf("node %d:\n%s", n, w.Log(4000))
			}
		}
	})
	return i
}

func (i *installation) start(nodes ...*world.World) {
	i.t.Helper()
	for _, w := range nodes { // concurrently: the nodes take turns at migrating
		if err := w.Launch(); err != nil {
			i.t.Fatal(err)
		}
	}
	for _, w := range nodes {
		if err := w.Ready(i.t.Context()); err != nil {
			i.t.Fatal(err)
		}
	}
}

func (i *installation) commit(name string, files map[string]string) {
	i.t.Helper()
	dir := filepath.Join(i.t.TempDir(), name)
	if err := world.WriteFiles(dir, files); err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.nodes[0].Git.Commit("acme/"+name, "main", dir, "content"); err != nil {
		i.t.Fatal(err)
	}
}

// site creates a site from a repository through a node and returns its ID.
func (i *installation) site(w *world.World, name string) string {
	i.t.Helper()
	var made struct{ Data struct{ ID string } }
	err := w.Call(i.t.Context(), i.key, "POST", "/sites", map[string]any{
		"name":       name,
		"type":       "static",
		"repository": "git.test/acme/" + name,
	}, &made)
	if err != nil {
		i.t.Fatal(err)
	}
	return made.Data.ID
}

func (i *installation) until(what string, ok func() bool) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 2*time.Minute)
	defer cancel()
	if err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		i.t.Fatalf("%s: %v", what, err)
	}
}

// visit fetches a page of a site from a node.
func (i *installation) visit(w *world.World, site, path string) (int, string) {
	i.t.Helper()
	browser, err := w.Browser()
	if err != nil {
		i.t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	a, err := w.Site(i.t.Context(), browser, world.Request{Method: http.MethodGet, URL: "https://" + site + ".localhost" + path})
	if err != nil {
		return 0, err.Error()
	}
	return a.Status, string(a.Body)
}

func (i *installation) serves(w *world.World, site, path, want string) {
	i.t.Helper()
	i.until(site+path+" says "+want, func() bool {
		status, body := i.visit(w, site, path)
		return status == 200 && strings.Contains(body, want)
	})
}

func (i *installation) count(q string, args ...any) (n int) {
	i.t.Helper()
	if err := i.db.QueryRow(i.t.Context(), q, args...).Scan(&n); err != nil {
		i.t.Fatal(err)
	}
	return n
}

func (i *installation) exec(q string, args ...any) {
	i.t.Helper()
	err := i.db.Write(i.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(i.t.Context(), q, args...)
		return err
	})
	if err != nil {
		i.t.Fatal(err)
	}
}

// A deployment made through one node is served by the other from the bucket. Unreferenced files are collected. While
// the bucket is down, cached copies are served. No secret is logged.
func TestNodesShareOnlyTheBucket(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a, b)
	i.commit("one", map[string]string{"index.html": "one, first", "big.txt": strings.Repeat("a long file\n", 20_000)})
	i.commit("two", map[string]string{"index.html": "two, first"})
	one, two := i.site(a, "one"), i.site(b, "two")
	i.serves(b, "one", "/", "one, first")
	i.serves(a, "two", "/", "two, first")
	i.serves(b, "one", "/big.txt", "a long file")
	i.commit("one", map[string]string{"index.html": "one, second", "late.html": "not read yet"})
	if err := b.Call(t.Context(), i.key, "POST", "/sites/"+one+"/deploy", nil, nil); err != nil {
		t.Fatal(err)
	}
	i.serves(a, "one", "/", "one, second")
	i.serves(b, "one", "/", "one, second")
	for _, w := range i.nodes {
		if _, err := os.Stat(filepath.Join(w.Data, "blobs")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s holds files of its own: %v", w.Data, err)
		}
	}

	// Delete the second site, and run a garbage collection as if a day had passed.
	if err := a.Call(t.Context(), i.key, "DELETE", "/sites/"+two, nil, nil); err != nil {
		t.Fatal(err)
	}
	i.until("the second site is purged", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1`, two) == 0
	})
	before := i.s3.Objects(t, i.address)
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, name := range before {
		if err := os.Chtimes(filepath.Join(i.s3.Path(i.address), name), yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	}
	i.exec(`UPDATE release_holds SET until = 0`)
	i.exec(`UPDATE jobs SET run_at = 0 WHERE kind = 'gc.collect'`)
	i.until("one collection has run", func() bool { return len(i.s3.Objects(t, i.address)) < len(before) })
	i.until("it has ended", func() bool {
		return i.count(`SELECT count(*) FROM jobs WHERE kind = 'gc.collect' AND state = 'ready' AND run_at > 0`) == 1
	})
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(b.Data, "blob-cache")); err != nil {
		t.Fatal(err)
	}
	i.start(b)
	i.serves(b, "one", "/", "one, second")

	// The bucket is down.
	i.s3.Stop()
	i.serves(b, "one", "/", "one, second") // from the cache
	if status, body := i.visit(b, "one", "/late"); status != 503 || strings.Contains(body, "127.0.0.1") {
		t.Errorf("no copy, while the bucket is away: %d %.100q, want 503 without the insides", status, body)
	}
	i.commit("one", map[string]string{"index.html": "one, third"})
	var asked struct{ DeploymentID string }
	if err := a.Call(t.Context(), i.key, "POST", "/sites/"+one+"/deploy", nil, &asked); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Status, Error string
	}
	i.until("the deployment has ended", func() bool {
		err := a.Call(t.Context(), i.key, "GET", "/deployments/"+asked.DeploymentID, nil, &d)
		return err == nil && !slices.Contains([]string{"pending", "building", "deploying"}, d.Status)
	})
	if d.Status != "failed" || !strings.Contains(d.Error, "file storage") {
		t.Errorf("a deployment without the bucket ends %s with %q; want a reason that names the file storage", d.Status, d.Error)
	}
	if err := i.s3.Start(); err != nil {
		t.Fatal(err)
	}
	i.serves(b, "one", "/late", "not read yet")
	if err := a.Call(t.Context(), i.key, "POST", "/sites/"+one+"/deploy", nil, nil); err != nil {
		t.Fatal(err)
	}
	i.serves(b, "one", "/", "one, third")

	out, err := a.CLI("", "doctor", "--blobs", i.address)
	if err == nil && !strings.Contains(out, "files") {
		t.Errorf("the doctor says nothing of files: %s", out)
	}
	for n, w := range i.nodes {
		if strings.Contains(w.Log(1<<30)+out+fmt.Sprint(err), s3test.SecretKey) {
			t.Errorf("node %d said the secret key", n)
		}
	}
}

// A node is killed during deployments and a webhook delivery. The other node completes them, the delivery within 30
// seconds.
func TestNodeDies(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	for n := range 8 {
		i.commit(fmt.Sprint("s", n), map[string]string{"index.html": fmt.Sprint("site ", n, strings.Repeat("<p>", n))})
	}
	i.start(a, b)
	var sites []string
	var release func()
	var delivered func(died time.Time)
	var died time.Time
	for round := 0; ; round++ {
		// While node b is stopped, node a takes all jobs. Node a is then killed while deployments run.
		if err := syscall.Kill(b.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for n := range 8 {
			i.commit(fmt.Sprint("s", n), map[string]string{"index.html": fmt.Sprint("site ", n, " round ", round)})
			if round == 0 {
				sites = append(sites, i.site(a, fmt.Sprint("s", n)))
			} else if err := a.Call(t.Context(), i.key, "POST", "/sites/"+sites[n]+"/deploy", nil, nil); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				release, delivered = i.hold(a, sites[0], fmt.Sprint("/held/", round))
			}
		}
		i.until("deployments run", func() bool {
			return i.count(`SELECT count(*) FROM jobs WHERE state = 'running' AND kind = 'deploy.run'`) > 0
		})
		a.Kill()
		died = time.Now()
		release()
		held := i.count(`SELECT count(*) FROM jobs WHERE state = 'running' AND kind = 'deploy.run'`)
		if err := syscall.Kill(b.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if held > 0 {
			i.until("the other node has taken over everything", func() bool {
				return i.count(`SELECT count(*) FROM jobs WHERE kind = 'deploy.run'`) == 0
			})
			t.Logf(
				"%d running deployments of the dead node were done by the other one after %s",
				held,
				time.Since(died).Round(100*time.Millisecond),
			)
			break
		}
		if round == 5 {
			t.Fatal("the node never died with a deployment in hand")
		}
		i.start(a)
	}
	delivered(died)
	if n := i.count(`SELECT count(*) FROM deployments WHERE status <> 'success'`); n > 0 {
		t.Errorf("%d deployments did not succeed", n)
	}
	for n := range 8 {
		i.serves(b, fmt.Sprint("s", n), "/", fmt.Sprint("site ", n))
	}
}

// hold makes a node send a webhook delivery about a site, which the receiver doesn't answer until release is called.
// delivered checks that the delivery is repeated within 30 seconds of the node's death and succeeds.
func (i *installation) hold(w *world.World, site, path string) (release func(), delivered func(died time.Time)) {
	i.t.Helper()
	hooks := i.nodes[0].Hooks
	release = hooks.Hold(path)
	i.t.Cleanup(release)
	var hook struct{ ID string }
	err := w.Call(i.t.Context(), i.key, "POST", "/webhooks", map[string]any{
		"url":    hooks.URL + path,
		"events": []string{"site.updated"},
		"secret": "sixteen characters",
	}, &hook)
	if err == nil {
		err = w.Call(i.t.Context(), i.key, "PATCH", "/sites/"+site, map[string]string{"name": "changed " + path}, nil)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	// The webhook also gets events of deployments, so select by name.
	named := func() []world.Delivery {
		return slices.DeleteFunc(hooks.All(), func(d world.Delivery) bool {
			return d.Path != path || !strings.Contains(string(d.Body), `"changed `+path+`"`)
		})
	}
	var first world.Delivery
	i.until("the delivery is under way", func() bool {
		list := named()
		if len(list) > 0 {
			first = list[0]
		}
		return len(list) > 0
	})
	return release, func(died time.Time) {
		i.t.Helper()
		var again world.Delivery
		i.until("the dead node's delivery is made again", func() bool {
			list := slices.DeleteFunc(
				named(),
				func(d world.Delivery) bool { return d.Header.Get("Webhook-Id") != first.Header.Get("Webhook-Id") },
			)
			again = list[len(list)-1]
			return again.At.After(died)
		})
		if string(again.Body) != string(first.Body) || again.Header.Get("X-Service-Attempt") != "2" {
			i.t.Errorf("first %v %s, then %v %s", first.Header, first.Body, again.Header, again.Body)
		}
		if took := again.At.Sub(died); took > world.Patience(30*time.Second) {
			i.t.Errorf("the delivery that the dead node had in flight was made again after %s", took)
		} else {
			i.t.Logf("the delivery that the dead node had in flight was made again after %s", took.Round(100*time.Millisecond))
		}
		i.until("the delivery is done", func() bool {
			return i.count(
				`SELECT count(*) FROM webhook_deliveries WHERE id = $1 AND state = 'succeeded'`,
				again.Header.Get("X-Service-Delivery"),
			) == 1
		})
	}
}
