//go:build !cluster

package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resident is what this process has in memory, in MB.
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

// BenchmarkSites has the programs of 1,000 sites on a node that the test plays, kubelet's logs included, and tells what they cost the
// engine at rest, and how long its next process takes until it knows all there is and nothing is left of the last one:
// go -C cluster test -run '^$' -bench Sites -benchtime 1x -timeout 30m ./kube
func BenchmarkSites(b *testing.B) {
	const sites, rest = 1000, 60 * time.Second
	w := newAPI(b)
	w.every = 200 * time.Millisecond
	// A kubelet whose programs print nothing.
	logs := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(out).Flush()
		<-r.Context().Done()
	}))
	b.Cleanup(logs.CloseClientConnections)
	port := logs.Listener.Addr().(*net.TCPAddr).Port
	n, err := w.client.CoreV1().Nodes().Create(b.Context(), &core.Node{ObjectMeta: meta.ObjectMeta{Name: "n1"}}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		b.Fatal(err)
	}
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
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
