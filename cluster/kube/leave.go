package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// A node's end is foreseen or not. Where its pods are evicted the cluster tells so, and gives each drainGrace: its program is replaced
// meanwhile and goes on until that is done. A node that is gone says nothing, and the cluster finds out after the better part of a
// minute: a program is taken for lost earlier, when nothing at its address has answered for lostAfter.
const (
	// lostAfter is how long nothing of a pod's network answers, until its program is taken for lost.
	lostAfter = 10 * time.Second
	// probePatience is how long one look may take.
	probePatience = 2 * time.Second
	// shunning is how long no pod is placed on a node that did not answer, if others have room.
	shunning = 2 * time.Minute
	// placedPatience is how long the kubelet of a node may take to begin with a pod.
	placedPatience = 15 * time.Second
)

const (
	leavesLine = "The cluster empties the node on which the program runs. It is started elsewhere."
	lostLine   = "The node on which the program runs does not answer."
)

// errSilentNode is the error of a start on a node that has not begun with it.
var errSilentNode = errors.New("the node that it was placed on does not answer")

// errUnreached is the error of a start whose pod did not reach this process to fetch its files.
var errUnreached = errors.New("the network of its pod does not reach Slipway")

// unfetched reports whether a pod ended because it did not reach this process.
func unfetched(p *core.Pod) bool {
	for _, c := range p.Status.InitContainerStatuses {
		var end pod.End
		if t := c.State.Terminated; t != nil && json.Unmarshal([]byte(t.Message), &end) == nil && end.Unreached {
			return true
		}
	}
	return false
}

// Leaves is closed when the cluster ends the pod, as for a node that is drained.
func (x *program) Leaves() <-chan struct{} { return x.leaves }

var _ runtime.Leaver = (*program)(nil)

// leave notes that the cluster ends the pod.
func (x *program) leave() {
	x.leaving.Do(func() {
		close(x.leaves)
		if x.runs() && !x.removed.Load() && x.output != nil {
			x.output("system", leavesLine)
		}
	})
}

// unreached reports whether an error of a connection says that nothing answers at that address. Who refuses is there.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" &&
		(op.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH))
}

// doubt finds out whether a program of whose pod nothing answered is lost, once at a time.
func (x *program) doubt() {
	if x.doubted.CompareAndSwap(false, true) {
		go func() {
			defer x.doubted.Store(false)
			x.inquire()
		}()
	}
}

func (x *program) inquire() {
	p := x.pod()
	if p == nil {
		return
	}
	at := net.JoinHostPort(p.Status.PodIP, strconv.Itoa(x.e.port))
	for late := time.Now().Add(lostAfter); x.runs(); {
		c, err := net.DialTimeout("tcp", at, probePatience)
		if err == nil {
			c.Close()
		}
		if err == nil || !unreached(err) {
			return
		}
		if time.Now().After(late) && x.abandon(p) {
			return
		}
		select {
		case <-x.ended:
		case <-time.After(time.Second):
		}
	}
}

// abandon ends a program whose node does not answer, if the cluster's API server does: else it is this process that nobody reaches.
func (x *program) abandon(p *core.Pod) bool {
	if !x.e.answers() {
		return false
	}
	x.e.shunned.add(p.Spec.NodeName)
	if x.output != nil {
		x.output("system", lostLine)
	}
	x.giveUp()
	return true
}

// giveUp ends a program whose node does not answer, and the connections to it.
func (x *program) giveUp() {
	x.nodeGone.Store(true)
	x.end(displaced("its node does not answer"))
	x.deafen()
}

// dialed is a connection to a program. Where the node of that is gone reading and writing fail with io.ErrUnexpectedEOF.
type dialed struct {
	*net.TCPConn
	x    *program
	stop func() bool
}

func (x *program) dialed(c *net.TCPConn) net.Conn {
	return &dialed{c, x, context.AfterFunc(x.listening, func() {
		if x.nodeGone.Load() {
			c.Close()
		}
	})}
}

func (d *dialed) told(err error) error {
	if err != nil && d.x.nodeGone.Load() {
		return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return err
}

func (d *dialed) Read(b []byte) (int, error) {
	n, err := d.TCPConn.Read(b)
	return n, d.told(err)
}

func (d *dialed) Write(b []byte) (int, error) {
	n, err := d.TCPConn.Write(b)
	return n, d.told(err)
}

func (d *dialed) Close() error {
	d.stop()
	return d.TCPConn.Close()
}

// shunned are the nodes that did not answer.
type shunned struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

func (s *shunned) add(node string) {
	if node == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	s.at[node] = time.Now()
}

func (s *shunned) list() (nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, at := range s.at {
		if time.Since(at) > shunning {
			delete(s.at, node)
			continue
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// shun asks for a place on another node than those that did not answer.
func (s *shunned) shun(p *core.Pod) {
	nodes := s.list()
	if len(nodes) == 0 {
		return
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &core.Affinity{}
	}
	p.Spec.Affinity.NodeAffinity = &core.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []core.PreferredSchedulingTerm{{
		Weight: 100, Preference: core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{{
			Key: core.LabelHostname, Operator: core.NodeSelectorOpNotIn, Values: nodes,
		}}},
	}}}
}

// tolerations let a pod go soon from a node that the cluster finds to be gone: what it runs is somewhere else by then.
func tolerations() (list []core.Toleration) {
	seconds := int64(10)
	for _, key := range []string{core.TaintNodeNotReady, core.TaintNodeUnreachable} {
		list = append(list, core.Toleration{Key: key, Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	return list
}
