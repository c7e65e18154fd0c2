//go:build !cluster

package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/kubetest"
)

// silentKubelet is an environment variable with the port of a kubelet whose programs print nothing. It runs in its own
// process, so that its memory isn't counted as the engine's.
const silentKubelet = "SLIPWAY_SILENT_KUBELET"

func serveSilence(port string) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(out).Flush()
		<-r.Context().Done()
	}))
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		panic(err)
	}
	s.StartTLS()
	<-context.Background().Done()
}

// resident returns this process's resident memory in MB.
func resident() float64 {
	runtime.GC()
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if after, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(after), "kB")), 64)
			return kb / 1000
		}
	}
	return 0
}

// BenchmarkSites runs the programs of 1,000 sites on a simulated node with a kubelet for logs. It reports the engine's
// memory and processor time at rest, and how long the engine's next process takes until it knows all objects and has
// deleted those of the last process: go -C cluster test -run '^$' -bench Sites -benchtime 1x -timeout 30m ./kube
func BenchmarkSites(b *testing.B) {
	const sites, rest = 1000, 60 * time.Second
	w := newAPI(b)
	w.every = 200 * time.Millisecond
	port, err := kubetest.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	kubelet := exec.Command(os.Args[0])
	kubelet.Env = append(os.Environ(), silentKubelet+"="+port)
	if err := kubelet.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = kubelet.Process.Kill(); _ = kubelet.Wait() })
	n, err := w.client.CoreV1().Nodes().Create(b.Context(), &core.Node{ObjectMeta: meta.ObjectMeta{Name: "n1"}}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		b.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(b.Context(), n, meta.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	e, f, end := w.engine("one")
	before, begun := resident(), time.Now()
	var all sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range sites {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s, _ := w.spec(fmt.Sprint("many", i))
			if _, err := e.Start(b.Context(), s); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		return
	}
	b.ReportMetric(time.Since(begun).Seconds(), "s/starts")
	asked := f.all.Load()
	time.Sleep(rest)
	b.ReportMetric(float64(f.all.Load()-asked)/rest.Seconds(), "requests/s")
	after := resident()
	b.ReportMetric(after, "MB/process")
	b.ReportMetric((after-before)*1000/sites, "kB/program")
	end()
	begun = time.Now()
	w.engine("one")
	b.ReportMetric(time.Since(begun).Seconds(), "s/restart")
	until(b, "nothing is left of the last process", func() bool { return w.objects() == 0 })
	b.ReportMetric(time.Since(begun).Seconds(), "s/collected")
}

// BenchmarkHerd starts 200 programs at once on a simulated node, and reports when the first and the last one run: go -C
// cluster test -run '^$' -bench Herd -benchtime 3x ./kube
func BenchmarkHerd(b *testing.B) {
	const herd = 200
	w := newAPI(b)
	e, _, _ := w.engine("one")
	var first, last time.Duration
	for i := range b.N {
		begun := time.Now()
		var mu sync.Mutex // guards took
		var took []time.Duration
		var all sync.WaitGroup
		for j := range herd {
			all.Go(func() {
				s, _ := w.spec(fmt.Sprint("herd", i, "-", j))
				p, err := e.Start(b.Context(), s)
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
				b.Cleanup(func() { p.Stop(0) })
			})
		}
		all.Wait()
		if len(took) > 0 {
			first, last = max(first, took[0]), max(last, took[len(took)-1])
		}
	}
	b.ReportMetric(first.Seconds(), "s/first")
	b.ReportMetric(last.Seconds(), "s/last")
}
