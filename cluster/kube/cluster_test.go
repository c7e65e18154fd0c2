//go:build cluster

package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"slipway/cluster/kubetest"
	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
	"slipway/internal/program/runtime/enginetest"
)

// client returns a client for the cluster that scripts/cluster started, after its node is ready.
func client(t testing.TB) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the node is ready", func() bool { return ready(t, c, "n1") })
	return c
}

func ready(t testing.TB, c kubernetes.Interface, node string) bool {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), node, meta.GetOptions{})
	return err == nil && slices.ContainsFunc(n.Status.Conditions, func(x core.NodeCondition) bool {
		return x.Type == core.NodeReady && x.Status == core.ConditionTrue
	})
}

// cluster is an engine with its own namespace.
type cluster struct {
	*Engine
	client  kubernetes.Interface
	bundles *bundle.Bundles
	root    string
	t       testing.TB
}

func newCluster(t testing.TB, c kubernetes.Interface, namespace string, enforced bool) *cluster {
	t.Helper()
	address := os.Getenv("SLIPWAY_CLUSTER_ADDRESS")
	listen := func() net.Listener {
		l, err := net.Listen("tcp", address+":0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := bundle.New(bundle.Config{Blobs: blobs, Dir: filepath.Join(dir, "bundles")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), Namespace(namespace), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	packs := listen()
	for _, p := range Policies([]string{address + "/32", "10.244.0.1/32"}, packs.Addr().(*net.TCPAddr).Port, nil) {
		if _, err := c.NetworkingV1().NetworkPolicies(namespace).Create(t.Context(), p, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the namespace has its service account", func() bool {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", meta.GetOptions{})
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if enforced {
		nameServer(t, c) // lookups of unknown names fail immediately
		t.Cleanup(kubetest.Enforce(ctx, c, namespace))
	}
	if err := provision(ctx, c, namespace, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	e, err := New(ctx, Config{
		Client: c, Namespace: namespace, Name: "one", Bundles: bundles, Users: users{}, Packs: packs, Canary: listen(), Address: address,
		Storage: Storage{Class: storageClass},
		Dir:     filepath.Join(dir, "copies"),
		Images:  testImages(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Engine: e, client: c, bundles: bundles, root: dir, t: t}
}

// testImages returns the tests' only image.
func testImages() []Image {
	return []Image{{
		Name: os.Getenv("SLIPWAY_CLUSTER_IMAGE"), Node: os.Getenv("SLIPWAY_CLUSTER_NODE"), PHP: strings.Fields(os.Getenv("SLIPWAY_CLUSTER_PHP")),
	}}
}

func (c *cluster) bundle(files map[string]string) bundle.ID {
	c.t.Helper()
	dir, err := os.MkdirTemp(c.root, "files-")
	if err != nil {
		c.t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	defer root.Close()
	s, err := c.bundles.Store(c.t.Context(), root, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return s.ID
}

// The Kubernetes engine passes the conformance tests of an Engine, like the engine for a single machine.
func TestConformance(t *testing.T) {
	c := newCluster(t, client(t), "conformance", true)
	var mu sync.Mutex // guards the bundles, because cases run in parallel
	enginetest.Run(t, func(t *testing.T) enginetest.Setup {
		return enginetest.Setup{Engine: c, Bundle: func(files map[string]string) bundle.ID {
			mu.Lock()
			defer mu.Unlock()
			return c.bundle(files)
		}}
	})
}

func (c *cluster) spec(name, script string) (runtime.Spec, func() string) {
	var mu sync.Mutex // guards out
	var out []string
	s := runtime.Spec{
		ID: "run_" + name, Site: id.Site("site_" + name), Owner: "usr_engine", Bundle: c.bundle(map[string]string{"server.js": script}),
		Argv: []string{"node", "server.js"}, Limits: runtime.Limits{Memory: 128 << 20, Pids: 64, Disk: 64 << 20},
		Output: func(stream, line string) { mu.Lock(); defer mu.Unlock(); out = append(out, stream+" "+line) },
	}
	return s, func() string { mu.Lock(); defer mu.Unlock(); return strings.Join(out, "\n") }
}

// dials connects to addresses right after its start and prints those that it reached.
const dials = `
const net = require('net')
Promise.all(process.env.TARGETS.split(' ').map(t => new Promise(done => {
  const at = t.lastIndexOf(':'), c = net.connect({ host: t.slice(0, at), port: t.slice(at + 1), timeout: 3000 }, () => { c.destroy(); done('REACHED ' + t) })
  c.on('error', e => done('closed ' + t))
  c.on('timeout', () => { c.destroy(); done('closed ' + t) })
}))).then(all => { all.forEach(a => console.log(a)); console.log('tried'); process.exit(0) })
`

// A program can't reach the API server, the kubelet, another pod or the control plane right after its start, with or
// without egress. If the cluster doesn't enforce network policies, the program isn't started, and the error says why.
func TestClosedNetwork(t *testing.T) {
	cl := client(t)
	address := os.Getenv("SLIPWAY_CLUSTER_ADDRESS")
	victim := func(c *cluster) string {
		s, _ := c.spec("victim", "setInterval(() => {}, 1000)")
		p, err := c.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Stop(0) })
		return p.(*program).pod().Status.PodIP
	}
	closed := newCluster(t, cl, "enforced", true)
	targets := []string{address + ":6443", address + ":10250", fmt.Sprintf("%s:%d", victim(closed), pod.Port), closed.c.Canary.Addr().String()}
	for _, egress := range []bool{false, true} {
		s, said := closed.spec(fmt.Sprintf("dials%v", egress), dials)
		s.Egress, s.Env = egress, []string{"TARGETS=" + strings.Join(targets, " ")}
		e, err := runtime.Run(t.Context(), closed, s)
		if err != nil || e.Code != 0 || !strings.Contains(said(), "tried") || strings.Contains(said(), "REACHED") {
			t.Errorf("egress %v: ended as %+v, %v, and said\n%s", egress, e, err, said())
		}
	}
	open := newCluster(t, cl, "unenforced", false)
	s, said := open.spec("never", "console.log('it runs')")
	e, err := runtime.Run(t.Context(), open, s)
	if err != nil || e.Code != 125 || !strings.Contains(e.Reason, "does not enforce its network policies") {
		t.Errorf("where nothing is enforced it ended as %+v, %v", e, err)
	}
	if strings.Contains(said(), "it runs") {
		t.Error("the program ran")
	}
	// Without the check, the program starts and reaches them, so the test's addresses are right.
	open.c.Canary = nil
	s, said = open.spec("brave", dials)
	s.Env = []string{"TARGETS=" + address + ":6443"}
	if e, err := runtime.Run(t.Context(), open, s); err != nil || e.Code != 0 || !strings.Contains(said(), "REACHED "+address+":6443") {
		t.Errorf("unproven it ended as %+v, %v, and said\n%s", e, err, said())
	}
}

// A program's environment isn't part of its pod's specification. When it ends, all its objects are deleted. A new
// engine with the same name deletes the objects that an earlier one left.
func TestObjects(t *testing.T) {
	c := newCluster(t, client(t), "objects", true)
	s, said := c.spec("one", "console.log('up ' + process.env.PASSWORD); setInterval(() => {}, 1000)")
	s.Env = []string{"PASSWORD=hunter2"}
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it says that it is up", func() bool { return strings.Contains(said(), "stdout up hunter2") })
	name := p.(*program).name
	there, err := c.client.CoreV1().Pods("objects").Get(t.Context(), name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text := there.String(); strings.Contains(text, "hunter2") || there.Labels[labelSite] != "site_one" {
		t.Errorf("the pod is described as\n%s", text)
	}
	p.Stop(patience)
	if e := p.Exit(); e.Reason != "ended by signal SIGTERM" {
		t.Errorf("the program ended as %+v", e)
	}
	empty := func() bool {
		pods, err := c.client.CoreV1().Pods("objects").List(t.Context(), meta.ListOptions{})
		secrets, err2 := c.client.CoreV1().Secrets("objects").List(t.Context(), meta.ListOptions{})
		return err == nil && err2 == nil && len(pods.Items) == 0 && len(secrets.Items) == 0
	}
	until(t, "nothing is left", empty)
	if p, err = c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	again := c.c
	if again.Packs, err = net.Listen("tcp", again.Address+":0"); err != nil {
		t.Fatal(err)
	}
	again.Canary = nil
	if _, err := New(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	until(t, "what an earlier process left is removed", empty)
	if e := p.Exit(); e.Code == 0 {
		t.Errorf("the program ended as %+v", e)
	}
}

// reads is a program that connects to where its databases, mail server and Redis should be, and prints what they send.
const reads = `
const net = require('net')
const hear = at => new Promise(done => {
  let text = ''
  const c = net.connect(at, () => c.end('and back'))
  c.on('data', d => text += d)
  c.on('end', () => done(text.replace('\n', ' ')))
  c.on('error', e => done(e.code))
})
;(async () => {
  for (const at of ['/run/mysqld/mysqld.sock', '/run/slipway/redis.sock', 33306, 2525, 36379]) {
    console.log(at + ': ' + await hear(typeof at === 'number' ? { host: '127.0.0.1', port: at } : at))
  }
})()
`

// A program reaches its databases, mail server and Redis at the same sockets and ports as on a single machine. A
// program without them can't connect.
func TestWays(t *testing.T) {
	c := newCluster(t, client(t), "ways", true)
	ways := &served{dir: t.TempDir()}
	c.Connect(ways)
	s, said := c.spec("led", reads)
	s.Database, s.Mail, s.RedisServer = true, true, true
	if e, err := runtime.Run(t.Context(), c, s); err != nil || e.Code != 0 {
		t.Errorf("the program ended as %+v, %v, with the output\n%s", e, err, said())
	}
	want := `stdout /run/mysqld/mysqld.sock: databases of site_led and back
stdout /run/slipway/redis.sock: Redis of site_led and back
stdout 33306: databases of site_led and back
stdout 2525: mail of site_led and back
stdout 36379: Redis of site_led and back`
	if said() != want {
		t.Errorf("the output is\n%s", said())
	}
	if ways.done.Load() != 1 || ways.changed.Load() != 1 {
		t.Errorf("its databases were given back %d times, their change was told %d times", ways.done.Load(), ways.changed.Load())
	}
	s, said = c.spec("alone", reads)
	if e, err := runtime.Run(t.Context(), c, s); err != nil || e.Code != 0 || strings.Contains(said(), "and back") {
		t.Errorf("the program ended as %+v, %v, with the output\n%s", e, err, said())
	}
}

// hears is a program that prints which addresses answer it, and their names.
const hears = `
const net = require('net')
Promise.all(process.env.TARGETS.split(' ').map(t => new Promise(done => {
  const at = t.lastIndexOf(':'), c = net.connect({ host: t.slice(0, at), port: t.slice(at + 1), timeout: 3000 })
  c.on('data', d => { c.destroy(); done(String(d).trim()) })
  c.on('error', e => done(''))
  c.on('timeout', () => { c.destroy(); done('') })
}))).then(all => { console.log('heard ' + all.filter(Boolean).join(' and ')); process.exit(0) })
`

// With egress, a program also reaches its configured ports at public addresses, and its own site by name.
func TestReach(t *testing.T) {
	c := newCluster(t, client(t), "reach", true)
	const public = "203.0.113.7" // this node has the address, so that something answers
	if out, err := exec.Command("ip", "addr", "add", public+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer exec.Command("ip", "addr", "del", public+"/32", "dev", "lo").Run()
	listen := func(at string) net.Listener {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	named, other, edge := listen(public+":0"), listen(public+":0"), listen("127.0.0.1:0")
	for l, name := range map[net.Listener]string{named: "named", other: "other", edge: "edge"} {
		go greet(l, name)
	}
	c.c.Edge = edge.Addr().String()
	targets := []string{named.Addr().String(), other.Addr().String(), "shop.example.com:443", "shop.example.com:8443"}
	port := named.Addr().(*net.TCPAddr).Port
	for name, want := range map[string]string{"both": "named and edge", "ports": "named", "own": "edge", "neither": "", "closed": ""} {
		s, said := c.spec(name, hears)
		s.Env, s.Egress = []string{"TARGETS=" + strings.Join(targets, " ")}, name != "closed"
		if name != "own" && name != "neither" {
			s.Ports = []int{port}
		}
		if name != "ports" && name != "neither" {
			s.Own = []string{"shop.example.com:443"}
		}
		e, err := runtime.Run(t.Context(), c, s)
		if err != nil || e.Code != 0 || strings.TrimSpace(said()) != strings.TrimSpace("stdout heard "+want) {
			t.Errorf("%s: the program ended as %+v, %v, with the output %q", name, e, err, said())
		}
	}
}

// Errors describe a deleted pod, an image that doesn't exist, and a cluster without room.
func TestFailures(t *testing.T) {
	c := newCluster(t, client(t), "failures", true)
	s, _ := c.spec("deleted", "setInterval(() => {}, 1000)")
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1)
	err = c.client.CoreV1().Pods("failures").Delete(t.Context(), p.(*program).name, meta.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Exit(); e.Code == 0 {
		t.Errorf("a deleted pod ended as %+v", e)
	}
	s, _ = c.spec("large", "1")
	s.Limits.Memory = 1 << 50
	if _, err := c.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no room on the cluster") {
		t.Errorf("too large for the cluster: %v", err)
	}
	c.c.Images = []Image{{Name: "localhost/nowhere:1", Node: os.Getenv("SLIPWAY_CLUSTER_NODE")}}
	s, _ = c.spec("unknown", "1")
	if _, err := c.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "the image localhost/nowhere:1 can't be had") {
		t.Errorf("an image that is not there: %v", err)
	}
}

// Packs are only sent for URLs that this process has signed, until they expire.
func TestPacksAreSigned(t *testing.T) {
	c := newCluster(t, client(t), "packs", false)
	one := c.bundle(map[string]string{"a": "1"})
	get := func(query string) int {
		h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		resp, err := h.Get("https://" + c.c.Packs.Addr().String() + "/" + string(one) + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := get(c.packs.sign(one, time.Now().Add(time.Minute))); got != http.StatusOK {
		t.Errorf("a signed address: %d", got)
	}
	if got := get(c.packs.sign(one, time.Now().Add(-time.Minute))); got != http.StatusForbidden {
		t.Errorf("an expired one: %d", got)
	}
	if got := get(c.packs.sign(c.bundle(map[string]string{"b": "2"}), time.Now().Add(time.Minute))); got != http.StatusForbidden {
		t.Errorf("a signature for another bundle gives %d", got)
	}
}
