//go:build !cluster

package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway/cluster/kubetest"
	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// These tests use a real API server and etcd, built by scripts/cluster, without nodes: the test acts as the scheduler,
// the kubelet and the pods' processes.

// server is the API server that all tests share.
var server struct {
	once sync.Once
	*kubetest.Server
	err error
}

func TestMain(m *testing.M) {
	if port := os.Getenv(silentKubelet); port != "" {
		serveSilence(port)
	}
	code := m.Run()
	if server.Server != nil {
		server.Stop()
	}
	os.Exit(code)
}

// faults causes faults between an engine and the API server.
type faults struct {
	to http.RoundTripper

	mu      sync.Mutex // guards the following fields
	away    bool
	cut     bool  // end each watch after a second
	expired int   // number of watches to answer with 410
	refuse  []int // statuses of the next writes
	watches map[*watched]bool

	all                     atomic.Int64
	lists, watched, creates atomic.Int64 // requests for pods
}

type watched struct {
	io.ReadCloser
	f   *faults
	cut atomic.Bool
}

// end closes a watch without an error, as a server does.
func (w *watched) end() {
	w.cut.Store(true)
	w.ReadCloser.Close()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if err != nil && w.cut.Load() {
		err = io.EOF
	}
	return n, err
}

func (w *watched) Close() error {
	w.f.mu.Lock()
	delete(w.f.watches, w)
	w.f.mu.Unlock()
	return w.ReadCloser.Close()
}

func answerWith(r *http.Request, code int, reason meta.StatusReason) *http.Response {
	text, _ := json.Marshal(meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusFailure, Code: int32(code), Reason: reason, Message: "a fault of the test",
	})
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	f.all.Add(1)
	watch := r.URL.Query().Get("watch") != ""
	pods := strings.HasSuffix(r.URL.Path, "/pods")
	f.mu.Lock()
	switch {
	case f.away:
		f.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case watch && f.expired > 0:
		f.expired--
		f.mu.Unlock()
		return answerWith(r, http.StatusGone, meta.StatusReasonExpired), nil
	case r.Method != http.MethodGet && len(f.refuse) > 0:
		code := f.refuse[0]
		f.refuse = f.refuse[1:]
		f.mu.Unlock()
		return answerWith(r, code, map[int]meta.StatusReason{
			409: meta.StatusReasonConflict, 429: meta.StatusReasonTooManyRequests, 500: meta.StatusReasonInternalError, 503: meta.StatusReasonServiceUnavailable,
		}[code]), nil
	}
	cut := f.cut
	f.mu.Unlock()
	switch {
	case pods && watch:
		f.watched.Add(1)
	case pods && r.Method == http.MethodGet:
		f.lists.Add(1)
	case pods && r.Method == http.MethodPost:
		f.creates.Add(1)
	}
	resp, err := f.to.RoundTrip(r)
	if err != nil || !watch {
		return resp, err
	}
	w := &watched{ReadCloser: resp.Body, f: f}
	f.mu.Lock()
	f.watches[w] = true
	f.mu.Unlock()
	resp.Body = w
	if cut {
		time.AfterFunc(time.Second, w.end)
	}
	return resp, nil
}

// set changes the faults and ends all open watches.
func (f *faults) set(change func()) {
	f.mu.Lock()
	change()
	var open []*watched
	for w := range f.watches {
		open = append(open, w)
	}
	f.mu.Unlock()
	for _, w := range open {
		w.end()
	}
}

// apiWorld is a namespace of the API server in which the test acts as the nodes.
type apiWorld struct {
	t         testing.TB
	client    kubernetes.Interface // without faults
	namespace string
	bundles   *bundle.Bundles
	one       bundle.ID
	port      int
	every     time.Duration // interval at which the nodes check; 0 means 20 ms

	mu       sync.Mutex // guards the following fields
	fate     func(p *core.Pod) *core.PodStatus
	stubborn bool               // deleted pods don't end
	gone     map[string]bool    // pods whose node is gone
	deaf     int                // number of pods to place on a node that doesn't start them
	epochs   map[string][]int64 // pod → epochs that it received
}

var worlds atomic.Int64

func newAPI(t testing.TB) *apiWorld {
	t.Helper()
	bin := kubetest.Binaries()
	if bin == "" {
		t.Skip("NOT RUN: there is no API server. `make test-cluster` builds one.")
	}
	server.once.Do(func() {
		server.Server, server.err = kubetest.StartServer(bin, "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount")
	})
	if server.err != nil {
		t.Fatal(server.err)
	}
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	n := worlds.Add(1)
	w := &apiWorld{t: t, client: client, namespace: "api-" + strconv.FormatInt(n, 10), epochs: map[string][]int64{}, gone: map[string]bool{}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), Namespace(w.namespace), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	if w.bundles, err = bundle.New(bundle.Config{Blobs: blobs, Dir: filepath.Join(dir, "bundles")}); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "files")
	if err := errors.Join(os.Mkdir(files, 0o755), os.WriteFile(filepath.Join(files, "a"), []byte("1"), 0o644)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(files)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	stored, err := w.bundles.Store(t.Context(), root, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.one = stored.ID
	port, err := kubetest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	w.port, _ = strconv.Atoi(port)
	ctx, cancel := context.WithCancel(context.Background())
	var nodes sync.WaitGroup
	nodes.Go(func() { w.nodes(ctx, n) })
	t.Cleanup(func() { cancel(); nodes.Wait() })
	return w
}

// engine returns an engine, the faults between it and the API server, and a function that ends it like the end of its
// process.
func (w *apiWorld) engine(name string) (e *Engine, f *faults, end context.CancelFunc) {
	w.t.Helper()
	f = &faults{watches: map[*watched]bool{}}
	config := rest.CopyConfig(server.Config)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { f.to = to; return f })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	packs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	e, err = New(ctx, Config{
		Client: client, Namespace: w.namespace, Name: name, Bundles: w.bundles, Users: users{}, Packs: packs, Address: "127.0.0.1",
		Images: []Image{{Name: "localhost/runtime:1", Node: "24.1.0"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	e.port = w.port
	return e, f, cancel
}

func (w *apiWorld) spec(name string) (runtime.Spec, func() string) {
	var mu sync.Mutex // guards said
	var said []string
	return runtime.Spec{
		ID: name, Site: id.Site("site_" + name), Owner: "usr_one", Bundle: w.one, Argv: []string{"node"},
		Limits: runtime.Limits{Memory: 64 << 20, Pids: 10, Disk: 1 << 20},
		Output: func(stream, line string) { mu.Lock(); defer mu.Unlock(); said = append(said, stream+" "+line) },
	}, func() string { mu.Lock(); defer mu.Unlock(); return strings.Join(said, "\n") }
}

// nodes acts as the scheduler, the kubelet and the pods' processes.
func (w *apiWorld) nodes(ctx context.Context, network int64) {
	pods := w.client.CoreV1().Pods(w.namespace)
	entries := map[string]net.Listener{} // pod → listener
	deaf := map[string]bool{}
	next := 0
	defer func() {
		for _, l := range entries {
			l.Close()
		}
	}()
	for ; ctx.Err() == nil; time.Sleep(cmp.Or(w.every, 20*time.Millisecond)) {
		list, err := pods.List(ctx, meta.ListOptions{})
		if err != nil {
			continue
		}
		w.mu.Lock()
		fate, stubborn := w.fate, w.stubborn
		w.mu.Unlock()
		for _, p := range list.Items {
			l := entries[p.Name]
			w.mu.Lock()
			gone := w.gone[p.Name]
			if l == nil && p.Spec.NodeName != "" && w.deaf > 0 && !deaf[p.Name] {
				w.deaf--
				deaf[p.Name] = true
			}
			w.mu.Unlock()
			switch {
			case deaf[p.Name]:
			case gone:
				l.Close()
			case p.DeletionTimestamp != nil && !stubborn:
				if l != nil {
					l.Close()
				}
				now := int64(0)
				_ = pods.Delete(ctx, p.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
			case p.DeletionTimestamp != nil, len(p.Spec.SchedulingGates) > 0, l != nil, p.Status.Phase == core.PodFailed:
			case fate != nil:
				if s := fate(&p); s != nil {
					p.Status = *s
					_, _ = pods.UpdateStatus(ctx, &p, meta.UpdateOptions{})
				}
			case p.Spec.NodeName == "":
				_ = pods.Bind(ctx, &core.Binding{ObjectMeta: meta.ObjectMeta{Name: p.Name}, Target: core.ObjectReference{Kind: "Node", Name: "n1"}}, meta.CreateOptions{})
			default:
				next++
				ip := fmt.Sprintf("127.%d.%d.%d", network, next/250, next%250+1)
				if l, err = net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(w.port))); err != nil {
					continue
				}
				entries[p.Name] = l
				go w.entry(ctx, l, p.Name)
				p.Status.Phase, p.Status.PodIP = core.PodRunning, ip
				p.Status.PodIPs = []core.PodIP{{IP: ip}}
				if _, err := pods.UpdateStatus(ctx, &p, meta.UpdateOptions{}); err != nil {
					l.Close()
					delete(entries, p.Name)
					continue
				}
			}
		}
	}
}

// entry responds like a pod's entry point: it accepts everything, and ends the program on a stop.
func (w *apiWorld) entry(ctx context.Context, l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, verb, number, err := pod.Listen(c)
			if err != nil {
				return
			}
			if verb == pod.Epoch {
				w.mu.Lock()
				w.epochs[name] = append(w.epochs[name], number)
				w.mu.Unlock()
			}
			_, _ = c.Write([]byte{pod.Yes})
			if verb == pod.Dial {
				_, _ = io.Copy(io.Discard, c)
			}
			if verb != pod.Stop {
				return
			}
			for ctx.Err() == nil {
				p, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, meta.GetOptions{})
				if err != nil {
					return
				}
				p.Status.Phase = core.PodFailed
				p.Status.ContainerStatuses = []core.ContainerStatus{{Name: container, State: core.ContainerState{Terminated: &core.ContainerStateTerminated{
					ExitCode: 143, Reason: "Error", Message: `{"code":143,"reason":"ended by signal SIGTERM"}`,
				}}}}
				if _, err = w.client.CoreV1().Pods(w.namespace).UpdateStatus(ctx, p, meta.UpdateOptions{}); !apierrors.IsConflict(err) {
					return
				}
			}
		}()
	}
}

func (w *apiWorld) objects() (n int) {
	w.t.Helper()
	pods, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), meta.ListOptions{})
	secrets, err2 := w.client.CoreV1().Secrets(w.namespace).List(w.t.Context(), meta.ListOptions{})
	if err := errors.Join(err, err2); err != nil {
		w.t.Fatal(err)
	}
	return len(pods.Items) + len(secrets.Items)
}

// While the API server is down, a start waits and reports that, and running programs respond. Both continue when it is
// back.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, f, _ := w.engine("one")
	s, _ := w.spec("runs")
	p, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.away = true })
	late, said := w.spec("late")
	late.Storage = []runtime.Storage{{Path: "data"}}
	started := make(chan error, 1)
	go func() { _, err := e.Start(t.Context(), late); started <- err }()
	until(t, "a start says that the API server is away", func() bool { return strings.Contains(said(), "system "+awayLine) })
	if c, err := p.Dial(t.Context()); err != nil {
		t.Errorf("what runs answers: %v", err)
	} else {
		c.Close()
	}
	select {
	case err := <-started:
		t.Fatalf("the start ended while the API server was away: %v", err)
	case <-p.Done():
		t.Fatalf("what ran has ended: %+v", p.Exit())
	default:
	}
	f.set(func() { f.away = false })
	if err := <-started; err != nil {
		t.Errorf("when it was back: %v", err)
	}
	if n := strings.Count(said(), awayLine); n != 1 {
		t.Errorf("the log has the line %d times", n)
	}
	p.Stop(0)
	if x := p.Exit(); x.Reason != "ended by signal SIGTERM" {
		t.Errorf("the program ended as %+v", x)
	}
}

// The engine works with an API server that ends each watch after a second, forgets resource versions, is overloaded and
// reports conflicts. Programs start and end, and pods aren't listed repeatedly.
func TestAPIServerFaults(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, f, _ := w.engine("one")
	before := f.lists.Load()
	f.set(func() { f.cut, f.expired = true, 1 })
	for i := range 5 {
		f.set(func() { f.refuse = []int{429, 500, 503, 409}[:i%5] })
		s, _ := w.spec("run" + strconv.Itoa(i))
		if i == 4 { // with updates that can conflict
			s.Storage = []runtime.Storage{{Path: "data"}}
			f.set(func() { f.refuse = []int{503, 429} })
		}
		p, err := e.Start(t.Context(), s)
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		p.Stop(0)
		if x := p.Exit(); x.Reason != "ended by signal SIGTERM" {
			t.Errorf("%d ended as %+v", i, x)
		}
	}
	until(t, "eight watches were cut", func() bool { return f.watched.Load() > 9 })
	// Expected are one list after the 410, and those of the program with storage, which looks for other pods.
	if n := f.lists.Load() - before; n > 5 {
		t.Errorf("pods were listed %d times", n)
	}
	until(t, "nothing is left", func() bool { return w.objects() == 0 })
}

// Errors report an exhausted quota, a cluster without room, and the name of an image that doesn't exist. Failed starts
// leave no objects.
func TestAPIServerRefuses(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, f, _ := w.engine("one")
	quota, err := w.client.CoreV1().ResourceQuotas(w.namespace).Create(t.Context(), &core.ResourceQuota{
		ObjectMeta: meta.ObjectMeta{Name: "small"}, Spec: core.ResourceQuotaSpec{Hard: core.ResourceList{core.ResourcePods: resource.MustParse("0")}},
	}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status = core.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: core.ResourceList{core.ResourcePods: resource.MustParse("0")}}
	if _, err := w.client.CoreV1().ResourceQuotas(w.namespace).UpdateStatus(t.Context(), quota, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, _ := w.spec("refused")
	until(t, "the quota is enforced and told", func() bool {
		p, err := e.Start(t.Context(), s)
		if err == nil {
			p.Stop(0)
			return false
		}
		return strings.Contains(err.Error(), "no room on the cluster: the quota of the namespace is reached")
	})
	if err := w.client.CoreV1().ResourceQuotas(w.namespace).Delete(t.Context(), "small", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	starts := func(want string, fate func(*core.Pod) *core.PodStatus) {
		t.Helper()
		w.mu.Lock()
		w.fate = fate
		w.mu.Unlock()
		var err error
		until(t, "it fails not for the quota", func() bool {
			_, err = e.Start(t.Context(), s)
			return err != nil && !strings.Contains(err.Error(), "quota")
		})
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		until(t, "nothing is left", func() bool { return w.objects() == 0 })
	}
	before := f.creates.Load()
	starts("no room on the cluster: 0/3 nodes are available", func(*core.Pod) *core.PodStatus {
		return &core.PodStatus{Phase: core.PodPending, Conditions: []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Reason: core.PodReasonUnschedulable, Message: "0/3 nodes are available",
			LastTransitionTime: meta.NewTime(time.Now().Add(-roomPatience - time.Second)),
		}}}
	})
	starts("the image localhost/runtime:1 can't be had: there is no such thing", func(*core.Pod) *core.PodStatus {
		return &core.PodStatus{Phase: core.PodPending, ContainerStatuses: []core.ContainerStatus{{
			Name: container, Image: "localhost/runtime:1",
			State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "there is no such thing"}},
		}}}
	})
	if n := f.creates.Load() - before; n != 2 {
		t.Errorf("two starts made %d pods", n)
	}
}

// The objects of a process that has died are removed by the next process with its name, or by other processes of the
// installation after a long silence. Objects of a running process stay.
func TestAPIServerOrphans(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	dies, _, end := w.engine("dies")
	lives, _, _ := w.engine("lives")
	s, _ := w.spec("orphan")
	if _, err := dies.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s, _ = w.spec("kept")
	p, err := lives.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	end()
	third, _, _ := w.engine("third")
	ps := newPeers()
	if err := third.collect(t.Context(), ps); err != nil {
		t.Fatal(err)
	}
	if n := w.objects(); n != 4 {
		t.Fatalf("%d objects after it was looked at once", n)
	}
	for name, h := range ps.heard { // as if it had been long ago
		ps.heard[name] = heard{h.version, h.at.Add(-2 * silence)}
	}
	if err := lives.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := third.collect(t.Context(), ps); err != nil {
		t.Fatal(err)
	}
	until(t, "the orphan is gone", func() bool { return w.objects() == 2 })
	select {
	case <-p.Done():
		t.Errorf("a program whose process still exists ended as %+v", p.Exit())
	default:
	}
	leases, err := w.client.CoordinationV1().Leases(w.namespace).List(t.Context(), meta.ListOptions{})
	if err != nil || len(leases.Items) != 2 {
		t.Errorf("%d leases, %v", len(leases.Items), err)
	}
	// An engine later removes objects that it couldn't remove itself.
	lives.forget(p.(*program).name)
	own := newPeers()
	until(t, "it knows nothing of its pod", func() bool { lives.sweep(own); return w.objects() == 0 })
	s, _ = w.spec("left")
	if _, err := lives.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	lives.sweep(own)
	lives.sweep(own)
	if n := w.objects(); n != 2 {
		t.Errorf("%d objects of a program that runs", n)
	}
	w.engine("lives")
	until(t, "the next of its name removes what it left", func() bool { return w.objects() == 0 })
}

// If two nodes start a site's program at the same moment, only one succeeds.
func TestAPIServerTwoStarts(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	one, _, _ := w.engine("one")
	two, _, _ := w.engine("two")
	for i := range 5 {
		s, _ := w.spec("both" + strconv.Itoa(i))
		s.Storage = []runtime.Storage{{Path: "data"}}
		type result struct {
			p   runtime.Program
			err error
		}
		results := make(chan result, 2)
		for _, e := range []*Engine{one, two} {
			go func() { p, err := e.Start(t.Context(), s); results <- result{p, err} }()
		}
		for range 2 {
			switch r := <-results; {
			case r.err == nil: // it may have started first, and then been ended by the other node
				defer r.p.Stop(0)
			case !errors.Is(r.err, errTaken):
				t.Error(r.err)
			}
		}
		list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), meta.ListOptions{LabelSelector: labelClaim + "=" + claimName(s.Site, "")})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%d pods, %v", len(list.Items), err)
		}
	}
}

// A program with storage doesn't start while another node's pod may still write: the start waits until that pod has
// ended.
func TestAPIServerWaitsForWriter(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	one, _, end := w.engine("one")
	two, _, _ := w.engine("two")
	s, _ := w.spec("moves")
	s.Storage = []runtime.Storage{{Path: "data"}}
	if _, err := one.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	end()
	w.mu.Lock()
	w.stubborn = true
	w.mu.Unlock()
	started := make(chan error, 1)
	go func() { _, err := two.Start(t.Context(), s); started <- err }()
	state := func() (ending, waiting int) {
		list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), meta.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				ending++
			} else if len(p.Spec.SchedulingGates) > 0 {
				waiting++
			}
		}
		return ending, waiting
	}
	until(t, "the old one is to end, the new one waits", func() bool { ending, waiting := state(); return ending == 1 && waiting == 1 })
	select {
	case err := <-started:
		t.Fatalf("the start did not wait: %v", err)
	default:
	}
	w.mu.Lock()
	w.stubborn = false
	w.mu.Unlock()
	if err := <-started; err != nil {
		t.Error(err)
	}
	if ending, waiting := state(); ending+waiting > 0 {
		t.Errorf("%d pods are ending, %d wait", ending, waiting)
	}
}
