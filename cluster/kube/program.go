package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

const (
	// dialPatience limits a response from a pod's entry point.
	dialPatience = 10 * time.Second
	// connectPatience limits a connection to it.
	connectPatience = 3 * time.Second
	// goneTime limits the time until a program with an unresponsive entry point is known to have ended.
	goneTime = 30 * time.Second
	// stopPatience limits the end of a killed program, after which it is considered lost with its node.
	stopPatience = 30 * time.Second
	// roomPatience limits a pod's wait for room in the cluster.
	roomPatience = 10 * time.Second
	// retry is the delay between attempts.
	retry = 20 * time.Millisecond
)

// program is a program started by the engine.
type program struct {
	e        *Engine
	spec     runtime.Spec
	led      *led
	view     view
	name     string // of its pod
	claim    string // of its storage; empty if it has none
	token    string
	keeper   bool // runs no program of the site, only holds its volume
	reads    bool // and only reads the volume
	output   func(stream, line string)
	terminal *runtime.Terminal

	listening context.Context    // reads the output
	deafen    context.CancelFunc // ends listening once the node has failed

	leaves  chan struct{} // closed when the cluster evicts the pod
	leaving sync.Once     // for leaves
	removed atomic.Bool   // the engine is deleting the pod
	doubted atomic.Bool   // a check of its node is running

	nodeGone atomic.Bool

	seen  chan struct{} // signals a change that begin hasn't handled
	ended chan struct{} // closed when the pod has ended
	gone  chan struct{} // closed when all output has been passed on as well

	begun   atomic.Bool
	bumping sync.Mutex // held while setting the epoch of its object cache

	mu      sync.Mutex // guards the fields below
	last    *core.Pod
	exit    runtime.Exit
	isEnded bool
	stored  *int64 // bytes of its storage at the end; nil: unknown
	logs    sync.WaitGroup
}

// lost is the end of a program if the cluster doesn't report one.
func lost(why string) runtime.Exit { return runtime.Exit{Code: 137, Reason: why} }

// displaced is the end of a program that the cluster evicted, or whose node failed.
func displaced(why string) runtime.Exit { return runtime.Exit{Code: 137, Reason: why, Displaced: true} }

// see handles a new state of the pod.
func (x *program) see(p *core.Pod, deleted bool) {
	x.mu.Lock()
	x.last = p
	if !x.isEnded {
		x.stored = storedOf(p)
	}
	x.mu.Unlock()
	exit, over := exitOf(p)
	switch {
	case over:
		x.end(exit)
	case deleted:
		x.end(displaced("the pod was deleted"))
	case p.DeletionTimestamp != nil:
		x.leave()
	}
	select {
	case x.seen <- struct{}{}:
	default:
	}
}

func (x *program) pod() *core.Pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// exitOf returns how a pod's program ended, if it has.
func exitOf(p *core.Pod) (exit runtime.Exit, over bool) {
	if p.Status.Phase != core.PodFailed && p.Status.Phase != core.PodSucceeded {
		return exit, false
	}
	// If the node ended the pod, the reason is the pod's own; its containers only report that they were killed.
	switch {
	case p.Status.Reason == "Evicted" && strings.Contains(p.Status.Message, "exceeds"):
		return runtime.Exit{Code: 137, Reason: "disk limit"}, true
	case p.Status.Reason != "":
		return displaced(strings.TrimSpace(p.Status.Reason + ": " + p.Status.Message)), true
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; c.Name == container && t != nil {
			return endOf(t), true
		}
	}
	for _, c := range p.Status.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return endOf(t), true
		}
	}
	return lost("the cluster does not say how it ended"), true
}

// endOf returns how a container ended: as reported by the entry point, unless it was killed itself.
func endOf(t *core.ContainerStateTerminated) runtime.Exit {
	if t.Reason == "OOMKilled" {
		return runtime.Exit{Code: 137, Reason: "out of memory", OutOfMemory: true}
	}
	if t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
		return runtime.Exit{Code: int(t.ExitCode), Reason: "the container can't be started: " + t.Message}
	}
	var e pod.End
	if json.Unmarshal([]byte(t.Message), &e) == nil && e.Code == int(t.ExitCode) && e.Reason != "" {
		return runtime.Exit{Code: e.Code, Reason: e.Reason, OutOfMemory: e.OutOfMemory}
	}
	return runtime.Exit{Code: int(t.ExitCode), Reason: fmt.Sprintf("exit code %d", t.ExitCode)}
}

// end records how the program ended. Done follows once all output has been passed on.
func (x *program) end(exit runtime.Exit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isEnded {
		return
	}
	x.isEnded, x.exit = true, exit
	close(x.ended)
	go func() {
		x.logs.Wait()
		x.deafen()
		if x.claim != "" && x.stored != nil {
			x.e.noteStored(x.claim, *x.stored)
		}
		x.e.remove(x.name, 0)
		x.e.forget(x.name)
		x.led.close()
		x.view.close()
		x.e.copies.forget(x.name)
		others := x.e.share.leave(x)
		if x.e.ways != nil && reaches(x.spec) && (others || len(x.spec.Argv) > 0 || x.spec.Shell != "") {
			x.e.ways.Changed(x.spec.Site)
		}
		close(x.gone)
	}()
}

// begin waits until the program is running or has ended.
func (x *program) begin(ctx context.Context) error {
	if x.terminal != nil {
		x.logs.Go(x.carryTerminal)
	}
	following := false
	tick := time.NewTicker(retry)
	defer tick.Stop()
	var placed time.Time
	for {
		if p := x.pod(); p != nil {
			if why := stuck(p); why != "" {
				if rest, ok := strings.CutPrefix(why, runtime.ErrNoRoom.Error()); ok {
					return fmt.Errorf("%w%s", runtime.ErrNoRoom, rest)
				}
				return errors.New(why)
			}
			if placed.IsZero() && p.Spec.NodeName != "" {
				placed = time.Now()
			}
			if p.Status.StartTime == nil && p.Status.PodIP == "" && !placed.IsZero() && time.Since(placed) > placedPatience && x.e.answers() {
				x.e.shunned.add(p.Spec.NodeName)
				return errSilentNode
			}
			if p.Status.PodIP != "" && x.terminal == nil && !following {
				following = true
				x.logs.Go(x.follow)
			}
			if p.Status.PodIP != "" {
				if c, reply, err := x.ask(ctx, pod.Ping, 0); err == nil {
					c.Close()
					if reply == pod.Yes {
						x.begun.Store(true)
						if x.caches() {
							x.bump()
						}
						return nil
					}
				}
			}
		}
		select {
		case <-x.ended:
			<-x.gone
			if p := x.pod(); p != nil && unfetched(p) {
				x.e.shunned.add(p.Spec.NodeName)
				return fmt.Errorf("%w: %s", errUnreached, x.exit.Reason)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.seen:
		case <-tick.C:
		}
	}
}

// stuck returns why a pod can't run without intervention, or "".
func stuck(p *core.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse && c.Reason == core.PodReasonUnschedulable &&
			time.Since(c.LastTransitionTime.Time) > roomPatience {
			if strings.Contains(c.Message, "PersistentVolumeClaim") { // a volume that is being created
				if time.Since(c.LastTransitionTime.Time) < claimPatience {
					continue
				}
				return "the cluster has no volume for the storage of this site: " + c.Message
			}
			return runtime.ErrNoRoom.Error() + ": " + c.Message
		}
	}
	for _, c := range append(append([]core.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return "the image " + c.Image + " can't be had: " + w.Message
		case "CreateContainerError", "CreateContainerConfigError", "RunContainerError":
			return "the container can't be made: " + w.Message
		}
	}
	return ""
}

// ask connects to the entry point and asks a question.
func (x *program) ask(ctx context.Context, verb string, number int64) (*net.TCPConn, byte, error) {
	return x.put(ctx, func(c net.Conn) (byte, error) { return pod.Ask(c, x.token, verb, number) })
}

// askFor asks the entry point for a file.
func (x *program) askFor(ctx context.Context, w pod.Wanted) (*net.TCPConn, byte, error) {
	return x.put(ctx, func(c net.Conn) (byte, error) { return pod.AskFor(c, x.token, w) })
}

// runs reports whether the program hasn't ended.
func (x *program) runs() bool {
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

func (x *program) put(ctx context.Context, question func(net.Conn) (byte, error)) (*net.TCPConn, byte, error) {
	p := x.pod()
	if p == nil || p.Status.PodIP == "" {
		return nil, 0, runtime.ErrNotListening
	}
	dialer := net.Dialer{Timeout: connectPatience}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(p.Status.PodIP, strconv.Itoa(x.e.port)))
	if err != nil {
		if unreached(err) && x.begun.Load() {
			x.doubt()
		}
		return nil, 0, err
	}
	tcp := c.(*net.TCPConn)
	_ = tcp.SetDeadline(time.Now().Add(dialPatience))
	reply, err := question(tcp)
	if err != nil {
		tcp.Close()
		return nil, 0, err
	}
	_ = tcp.SetDeadline(time.Time{})
	return tcp, reply, nil
}

// Dial connects to the program's port through the pod's entry point.
func (x *program) Dial(ctx context.Context) (net.Conn, error) {
	if !x.runs() {
		return nil, errEnded
	}
	c, reply, err := x.ask(ctx, pod.Dial, 0)
	// The entry point responds as long as the pod exists. Retry until it does, or until the program is known to have
	// ended.
	for late := time.Now().Add(goneTime); err != nil && x.begun.Load() && time.Now().Before(late); {
		select {
		case <-x.ended:
			return nil, errEnded
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(10 * retry):
		}
		c, reply, err = x.ask(ctx, pod.Dial, 0)
	}
	if err != nil {
		return nil, err
	}
	if reply != pod.Yes {
		c.Close()
		return nil, runtime.ErrNotListening
	}
	return x.dialed(c), nil
}

// Stop asks the entry point to end the program, which preserves its exit status and last output. If the entry point is
// unreachable, the cluster ends the pod.
func (x *program) Stop(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	if c, _, err := x.ask(ctx, pod.Stop, grace.Milliseconds()); err == nil {
		defer c.Close()
		if x.within(grace + stopPatience) {
			return
		}
	}
	if x.within(0) {
		return
	}
	x.e.remove(x.name, int64((grace+time.Second-1)/time.Second))
	if x.within(grace + stopPatience) {
		return
	}
	x.e.remove(x.name, 0) // its node is unresponsive
	x.giveUp()
	<-x.gone
}

// within reports whether the program ends within d.
func (x *program) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-x.gone:
		return true
	case <-timer.C:
		select {
		case <-x.gone:
			return true
		default:
			return false
		}
	}
}

func (x *program) Done() <-chan struct{} { return x.gone }

func (x *program) Exit() runtime.Exit {
	<-x.gone
	return x.exit
}

// Usage asks the entry point for the program's resource usage.
func (x *program) Usage() runtime.Usage {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	u, err := x.report(ctx, pod.Report)
	if err != nil {
		return runtime.Usage{}
	}
	return runtime.Usage{Memory: u.Memory, CPU: time.Duration(u.CPU)}
}

// countPatience limits counting stored bytes.
const countPatience = time.Minute

func (x *program) report(ctx context.Context, verb string) (u pod.Usage, err error) {
	c, reply, err := x.ask(ctx, verb, 0)
	if err != nil {
		return u, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(countPatience))
	if reply != pod.Yes {
		return u, errors.New("the program reports no usage")
	}
	return u, json.NewDecoder(io.LimitReader(c, 1<<10)).Decode(&u)
}

// follow passes on the program's output from the pod's log until its end.
func (x *program) follow() {
	var after time.Time // of the last line passed on
	for pause := 10 * retry; ; pause = min(2*pause, 5*time.Second) {
		begun := time.Now()
		over := false
		select {
		case <-x.ended:
			over = true // read what is left
		default:
		}
		err := x.read(&after)
		if over && (err == nil || x.deleted()) {
			return
		}
		if over {
			x.e.c.Log.Warn("last lines of a program lost", "program", x.name, "err", err)
			return
		}
		if time.Since(begun) > time.Minute {
			pause = 10 * retry
		}
		select {
		case <-x.ended:
		case <-time.After(pause):
		}
	}
}

func (x *program) deleted() bool {
	p := x.pod()
	return p == nil || p.DeletionTimestamp != nil
}

// maxLogLine caps a line of the pod's log. The entry point's lines are shorter, including their timestamps.
const maxLogLine = 80 << 10

// read reads the pod's log from after, until its end if the program has ended.
func (x *program) read(after *time.Time) error {
	o := &core.PodLogOptions{Container: container, Follow: true, Timestamps: true}
	if !after.IsZero() {
		since := meta.NewTime(*after) // whole seconds; lines already passed on are skipped below
		o.SinceTime = &since
	}
	ctx, cancel := context.WithCancel(x.listening)
	defer cancel()
	stream, err := x.e.c.Client.CoreV1().Pods(x.e.c.Namespace).GetLogs(x.name, o).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		stamp, text, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		at, err := time.Parse(time.RFC3339Nano, string(stamp))
		if err != nil || !at.After(*after) {
			continue
		}
		*after = at
		if x.output != nil {
			x.output(pod.Unmark(string(text)))
		}
	}
	return lines.Err()
}

// carryTerminal forwards input and output until the program's end.
func (x *program) carryTerminal() {
	var c *net.TCPConn
	for c == nil {
		conn, reply, err := x.ask(context.Background(), pod.Terminal, 0)
		switch {
		case err == nil && reply == pod.Yes:
			c = conn
			continue
		case err == nil:
			conn.Close()
		}
		select {
		case <-x.ended:
			return
		case <-time.After(retry):
		}
	}
	defer c.Close()
	defer context.AfterFunc(x.listening, func() { c.Close() })()
	t := x.terminal
	var writing sync.Mutex // held while writing a frame
	go func() {
		buffer := make([]byte, 4<<10)
		for {
			n, err := t.Input.Read(buffer)
			if n > 0 {
				writing.Lock()
				failed := pod.WriteTyped(c, buffer[:n])
				writing.Unlock()
				if failed != nil {
					return
				}
			}
			if err != nil {
				_ = c.CloseWrite() // the user is gone
				return
			}
		}
	}()
	if t.Sizes != nil {
		go func() {
			for {
				select {
				case s, ok := <-t.Sizes:
					if !ok {
						return
					}
					writing.Lock()
					_ = pod.WriteSize(c, pod.Size{Columns: s.Columns, Rows: s.Rows})
					writing.Unlock()
				case <-x.ended:
					return
				}
			}
		}()
	}
	_, _ = io.Copy(t.Output, struct{ io.Reader }{c})
}
