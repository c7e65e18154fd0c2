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

// If the cluster evicts a node's pods, it announces that and grants each drainGrace, during which the program is
// replaced while it continues to run. If a node fails, the cluster takes most of a minute to notice; a program is
// considered lost earlier, when its address hasn't responded for lostAfter.
const (
	// lostAfter is how long a pod's network must be unresponsive before its program is considered lost.
	lostAfter = 10 * time.Second
	// probePatience limits one probe.
	probePatience = 2 * time.Second
	// shunning is how long an unresponsive node gets no new pods if others have room.
	shunning = 2 * time.Minute
	// placedPatience limits the time until a node's kubelet begins with a pod.
	placedPatience = 15 * time.Second
)

const (
	leavesLine = "The cluster empties the node on which the program runs. It is started elsewhere."
	lostLine   = "The node on which the program runs does not answer."
)

// errSilentNode means that the node assigned to a pod didn't begin with it.
var errSilentNode = errors.New("the node that it was placed on does not answer")

// errUnreached means that the pod couldn't reach this process to fetch its files.
var errUnreached = errors.New("the network of its pod does not reach Slipway")

// unfetched reports whether a pod ended because it couldn't reach this process.
func unfetched(p *core.Pod) bool {
	for _, c := range p.Status.InitContainerStatuses {
		var end pod.End
		if t := c.State.Terminated; t != nil && json.Unmarshal([]byte(t.Message), &end) == nil && end.Unreached {
			return true
		}
	}
	return false
}

// Leaves returns a channel closed when the cluster evicts the pod, for example when a node is drained.
func (x *program) Leaves() <-chan struct{} { return x.leaves }

var _ runtime.Leaver = (*program)(nil)

// leave records that the cluster evicts the pod.
func (x *program) leave() {
	x.leaving.Do(func() {
		close(x.leaves)
		if x.runs() && !x.removed.Load() && x.output != nil {
			x.output("system", leavesLine)
		}
	})
}

// unreached reports whether a connection's error means that the address doesn't respond. A refusal is a response.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" &&
		(op.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH))
}

// doubt determines whether a program with an unresponsive pod is lost. Only one check runs at a time.
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

// abandon ends a program on an unresponsive node, if the API server responds. Otherwise this process is the one that is
// disconnected.
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

// giveUp ends a program on a failed node and its connections.
func (x *program) giveUp() {
	x.nodeGone.Store(true)
	x.end(displaced("its node does not answer"))
	x.deafen()
}

// dialed is a connection to a program. If the program's node has failed, reads and writes return io.ErrUnexpectedEOF.
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

// shunned holds the unresponsive nodes.
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

// shun makes the scheduler prefer other nodes than the unresponsive ones.
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

// tolerations make the cluster delete a pod soon after its node has failed, since its program already runs elsewhere.
func tolerations() (list []core.Toleration) {
	seconds := int64(10)
	for _, key := range []string{core.TaintNodeNotReady, core.TaintNodeUnreachable} {
		list = append(list, core.Toleration{Key: key, Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	return list
}
