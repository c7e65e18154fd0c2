//go:build !cluster

package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/pod"
)

// An evicted pod reports that it leaves while it still answers, so that its program is replaced first. It has a
// controller, without which kubectl drain refuses to evict it.
func TestAPIServerEvicts(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	s, said := w.spec("evicted")
	running, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	p := running.(*program)
	select {
	case <-p.Leaves():
		t.Fatal("Leaves is closed although the pod is not to leave")
	default:
	}
	w.mu.Lock()
	w.stubborn = true // its node keeps it running
	w.mu.Unlock()
	pods := w.client.CoreV1().Pods(w.namespace)
	if err := pods.EvictV1(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: p.name}}); err != nil {
		t.Fatal(err)
	}
	until(t, "it leaves", func() bool {
		select {
		case <-p.Leaves():
			return true
		default:
			return false
		}
	})
	if c, err := p.Dial(t.Context()); err != nil {
		t.Errorf("the leaving program does not accept connections: %v", err)
	} else {
		c.Close()
	}
	there, err := pods.Get(t.Context(), p.name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if meta.GetControllerOf(there) == nil {
		t.Error("the pod has no controller: kubectl drain refuses to evict it")
	}
	if n := strings.Count(said(), leavesLine); n != 1 {
		t.Errorf("the log does not say once that the program leaves:\n%s", said())
	}
	w.mu.Lock()
	w.stubborn = false
	w.mu.Unlock()
	p.Stop(0)

	// A pod that is stopped doesn't report that it leaves.
	s, said = w.spec("stopped")
	if running, err = e.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	running.Stop(0)
	if strings.Contains(said(), leavesLine) {
		t.Errorf("the log of a stopped program says that it leaves:\n%s", said())
	}
}

// mute makes an address unresponsive: connections are neither accepted nor refused.
func mute(t *testing.T, at netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	until(t, "the address is free", func() bool {
		return syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}) == nil
	})
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for { // fill the listener's queue, which nothing accepts
		c, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
	}
}

// If nothing answers in a program's pod, the program has ended, and the next one is placed on another node. Connections
// that got no response end with an error that allows a retry.
func TestAPIServerLostNode(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	s, said := w.spec("lost")
	running, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	p := running.(*program)
	before, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	w.mu.Lock()
	w.gone[p.name] = true
	w.mu.Unlock()
	at := netip.AddrPortFrom(netip.MustParseAddr(p.pod().Status.PodIP), uint16(w.port))
	mute(t, at)
	if c, err := p.Dial(t.Context()); err == nil {
		c.Close()
		t.Error("it answered")
	} else if !errors.Is(err, errEnded) {
		t.Errorf("it answered %v", err)
	}
	if _, err := before.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) { // the error for requests that may be sent again
		t.Errorf("the connection to it ended with %v", err)
	}
	if x := p.Exit(); x.Reason != "its node does not answer" || !strings.Contains(said(), lostLine) {
		t.Errorf("the program ended as %+v, with the output\n%s", x, said())
	}
	s, _ = w.spec("next")
	if running, err = e.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	placed := running.(*program).pod().Spec.Affinity
	if placed == nil || placed.NodeAffinity == nil {
		t.Fatal("the next pod may be placed on the node of the last one")
	}
	term := placed.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Preference.MatchExpressions[0]
	if term.Operator != core.NodeSelectorOpNotIn || term.Values[0] != "n1" {
		t.Errorf("the next one is placed by %+v", term)
	}
	running.Stop(0)
}

// If a node doesn't start a pod, the engine places the pod elsewhere.
func TestAPIServerSilentNode(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	w.mu.Lock()
	w.deaf = 1
	w.mu.Unlock()
	s, _ := w.spec("placed")
	running, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if a := running.(*program).pod().Spec.Affinity; a == nil || a.NodeAffinity == nil {
		t.Error("the pod may be placed on the unresponsive node")
	}
	running.Stop(0)
}

// A pod that couldn't fetch its program's files isn't reported as a crash: another pod is created. If that fails
// repeatedly too, the error says so.
func TestAPIServerUnfetched(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	end, err := json.Marshal(pod.End{Code: 125, Reason: "fetch the program's files: connection refused", Unreached: true})
	if err != nil {
		t.Fatal(err)
	}
	failing := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fate = func(*core.Pod) *core.PodStatus {
			w.mu.Lock()
			defer w.mu.Unlock()
			if n--; n == 0 {
				w.fate = nil
			}
			return &core.PodStatus{Phase: core.PodFailed, InitContainerStatuses: []core.ContainerStatus{{Name: "prepare", State: core.ContainerState{
				Terminated: &core.ContainerStateTerminated{ExitCode: 125, Message: string(end)},
			}}}}
		}
	}
	failing(1)
	s, _ := w.spec("second")
	running, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-running.Done():
		t.Errorf("the program ended as %+v", running.Exit())
	default:
	}
	running.Stop(0)
	failing(3)
	s, _ = w.spec("never")
	if _, err = e.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "does not reach Slipway: fetch the program's files: connection refused") {
		t.Errorf("a program whose files never come: %v", err)
	}
}

// A pod that its node evicts for lack of memory, or that someone deletes, ends with this reason. The next start creates
// another pod.
func TestAPIServerEnds(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	pods := w.client.CoreV1().Pods(w.namespace)
	for want, end := range map[string]func(p *core.Pod) error{
		"Evicted: The node was low on resource: memory.": func(p *core.Pod) error {
			p.Status.Phase, p.Status.Reason, p.Status.Message = core.PodFailed, "Evicted", "The node was low on resource: memory."
			_, err := pods.UpdateStatus(t.Context(), p, meta.UpdateOptions{})
			return err
		},
		"the pod was deleted": func(p *core.Pod) error {
			now := int64(0)
			return pods.Delete(t.Context(), p.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
		},
	} {
		s, _ := w.spec("ends")
		running, err := e.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pods.Get(t.Context(), running.(*program).name, meta.GetOptions{})
		if err == nil {
			err = end(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if x := running.Exit(); x.Code == 0 || x.Reason != want {
			t.Errorf("the program ended as %+v, want %q", x, want)
		}
		if running, err = e.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		running.Stop(0)
	}
}
