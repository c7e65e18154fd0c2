package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
)

const (
	killPatience  = 10 * time.Second // for the kernel to complete a SIGKILL, which takes milliseconds
	startPatience = 10 * time.Second // for bwrap to create its namespaces, which takes milliseconds
	drainPatience = time.Second      // for the last output of killed processes
)

// engine is what both runners share: it creates groups, starts, watches and kills processes, and proves their death.
type engine struct {
	name   string // the installation's marker in argv and cgroup
	parent string // cgroup path below each hierarchy's root
	hs     []cgroup.Hierarchy
	log    *slog.Logger
}

// run is one command from its start to its proven death.
type run struct {
	*engine
	c       Command
	id      string
	launch  launch
	tmp     string        // directory of /tmp; "" if that is in memory
	group   *cgroup.Group // nil without cgroups
	gate    *os.File
	hold    *os.File // see handshake; nil in a plain run
	info    *os.File
	link    *Link                          // nil if the host needs no connections inside
	init    int                            // pidfd of the namespace's pid 1; -1 if none
	text    []byte                         // sent through the gate
	sweep   func(deadline time.Time) error // additional killing and proof. Optional.
	exited  chan struct{}
	reasons chan Reason
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (e *engine) begin(c Command) (*run, error) {
	// share: none, one sandbox's
	r := &run{engine: e, c: c, id: newID(), init: -1, exited: make(chan struct{}), reasons: make(chan Reason, 8)}
	r.launch.id = r.id
	g, err := cgroup.New(e.hs, e.parent, r.id, c.Limits.group())
	if err != nil && !errors.Is(err, cgroup.ErrNone) {
		return nil, err
	}
	r.group = g
	return r, nil
}

// pipe creates a pipe and passes one end to the child.
func (r *run) pipe(childReads bool) (ours *os.File, fd int, err error) {
	rd, wr, err := os.Pipe()
	if err != nil {
		return nil, 0, fmt.Errorf("make pipe: %w", err)
	}
	if childReads {
		return wr, r.launch.inherit(rd), nil
	}
	return rd, r.launch.inherit(wr), nil
}

// finish starts and supervises what begin and the caller have prepared. It owns r from here on.
func (r *run) finish(ctx context.Context, status *os.File) (res Result, err error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		return res, fmt.Errorf("make pipe: %w", err)
	}
	defer outR.Close()
	errR, errW := outR, outW
	one := r.c.Stdout != nil && r.c.Stdout == r.c.Stderr
	if !one {
		if errR, errW, err = os.Pipe(); err != nil {
			_ = outW.Close()
			return res, fmt.Errorf("make pipe: %w", err)
		}
		defer errR.Close()
	}
	cmd := r.launch.cmd
	cmd.Stdout, cmd.Stderr = outW, errW

	begin := time.Now()
	err = r.launch.start(r.group)
	_ = outW.Close()
	if !one {
		_ = errW.Close()
	}
	if err != nil {
		return res, err
	}
	// uncaught: waits
	go func() { _ = cmd.Wait(); close(r.exited) }()

	// Read output from the start, since it includes bwrap's own errors.
	m := &meter{limit: r.c.Limits.Output, flood: func() { r.report(LogFlood) }}
	complaint := &head{next: r.c.Stderr}
	var copies panics.Background
	if !one {
		copies.Go(func() { defer drain(outR); m.copy(outR, r.c.Stdout) })
	}
	copies.Go(func() { defer drain(errR); m.copy(errR, complaint) })
	said := make(chan string, 1)
	// uncaught: reads a line of bubblewrap
	go func() {
		b, _ := io.ReadAll(io.LimitReader(status, 4<<10))
		said <- string(b)
	}()

	w := newWatch(r)
	killed, failure := NotKilled, r.release(ctx)
	if failure == nil {
		killed = r.await(ctx, w)
	} else if ctx.Err() != nil {
		killed, failure = reason(ctx), nil
	}
	// Read usage before the kill: a cgroup keeps its counters, but sampling needs living processes.
	if err := r.kill(); err != nil {
		r.log.ErrorContext(ctx, "sandbox still running after its kill", "run", r.id, "err", err)
		return res, err
	}
	res.Usage = w.stop()
	res.Usage.Wall = time.Since(begin)
	patience := time.Now().Add(drainPatience)
	for _, f := range []*os.File{outR, errR, status} {
		_ = f.SetReadDeadline(patience)
	}
	copies.Wait()
	word := <-said

	if r.group != nil {
		u := r.group.Usage()
		res.Usage.CPU, res.Usage.MaxMemory = max(res.Usage.CPU, u.CPU), max(res.Usage.MaxMemory, u.MaxMemory)
		// A process manager may stop us because the kernel killed one of our processes before we noticed: if we are
		// canceled after that, the cause is memory.
		if r.group.OOM() > 0 && killed != Timeout {
			killed = OutOfMemory
		}
	}
	if killed == NotKilled && failure == nil { // the command may end before the flood is noticed
		select {
		case killed = <-r.reasons:
		default:
		}
	}
	res.Killed, res.OOM = killed, killed == OutOfMemory
	res.ExitCode = exitCode(cmd)
	if res.ExitCode > 128 && res.ExitCode <= 128+64 {
		res.Signal = unix.Signal(res.ExitCode - 128)
	}
	if killed == NotKilled && (failure != nil || word == "" || word[0] != inside.Started) {
		detail := strings.TrimSpace(word + " " + strings.TrimSpace(string(complaint.text)))
		return res, fmt.Errorf("start sandbox: %w", errors.Join(failure, errors.New(detail)))
	}
	if m.err != nil {
		return res, fmt.Errorf("write output: %w", m.err)
	}
	return res, nil
}

func exitCode(cmd *exec.Cmd) int {
	ws, ok := cmd.ProcessState.Sys().(interface {
		Signaled() bool
		ExitStatus() int
	})
	if ok && ws.Signaled() {
		return 128 + int(unix.SIGKILL) // no other process signals it
	}
	return cmd.ProcessState.ExitCode()
}

func (r *run) report(why Reason) {
	select {
	case r.reasons <- why:
	default:
	}
}

// release moves the waiting process into its group and opens the gate. Before that, the process has read, forked and
// run nothing of the tenant.
func (r *run) release(ctx context.Context) error {
	pid := r.launch.cmd.Process.Pid
	if r.group != nil && !r.group.Holds(pid) {
		if err := r.group.Attach(pid); err != nil {
			return err
		}
	}
	// Builds are killed first and scheduled last, so that the service keeps responding.
	// unsynced: the kernel
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("900"), 0)
	renice(pid, !r.c.Limits.Foreground)
	defer r.gate.Close()
	_ = r.gate.SetWriteDeadline(time.Now().Add(startPatience))
	if _, err := r.gate.Write(r.text); err != nil {
		return fmt.Errorf("pass arguments: %w", err)
	}
	if err := r.gate.Close(); err != nil {
		return fmt.Errorf("pass arguments: %w", err)
	}
	if r.link != nil {
		r.link.procs, r.link.uid = r.procs, r.c.UID
		if r.group != nil {
			r.link.usage = r.usage
		}
		r.c.Linked(r.link)
	}
	if r.hold == nil {
		return nil
	}
	return r.handshake(ctx)
}

// await blocks until the command ends or must be killed.
func (r *run) await(ctx context.Context, w *watch) Reason {
	w.start()
	timer := time.NewTimer(r.c.Limits.Wall)
	defer timer.Stop()
	select {
	case <-r.exited:
		return NotKilled
	case <-ctx.Done():
		return reason(ctx)
	case <-timer.C:
		return Timeout
	case why := <-r.reasons:
		return why
	}
}

// reason distinguishes the caller's deadline from a cancellation.
func reason(ctx context.Context) Reason {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return Timeout
	}
	return Canceled
}

// handshake gets a pidfd of the namespace's pid 1 while bwrap waits before starting the command, so that code of the
// tenant never runs without a way to kill it.
func (r *run) handshake(ctx context.Context) error {
	defer r.hold.Close() // lets bwrap continue
	defer context.AfterFunc(ctx, func() { _ = r.info.SetReadDeadline(time.Now()) })()
	_ = r.info.SetReadDeadline(time.Now().Add(startPatience))
	var word struct {
		Child int `json:"child-pid"`
	}
	// Keep the reader open: bwrap also writes the exit code there and dies if the pipe is closed.
	if err := json.NewDecoder(io.LimitReader(r.info, 4<<10)).Decode(&word); err != nil {
		return fmt.Errorf("bwrap said nothing of its child: %w", err)
	}
	fd, err := unix.PidfdOpen(word.Child, 0)
	if err != nil {
		return fmt.Errorf("open pid 1 of the sandbox: %w", err)
	}
	r.init = fd
	if r.c.Guard != nil {
		return r.c.Guard.Hold(fd)
	}
	return nil
}

// kill kills every process of the run. It returns nil only if all are proven dead.
func (r *run) kill() error {
	deadline := time.Now().Add(killPatience)
	if r.init < 0 && r.group == nil {
		r.killChildren(deadline)
	}
	if r.init >= 0 {
		// The death of a namespace's pid 1 is reported after the death of all its processes (pid_namespaces(7)), so one
		// signal kills and one poll proves.
		_ = unix.PidfdSendSignal(r.init, unix.SIGKILL, nil, 0)
		if gone(r.init, time.Now().Add(time.Second)) == nil {
			// Let bwrap reap it and exit; if bwrap were killed too, the host's init would have to reap a zombie.
			select {
			case <-r.exited:
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	if r.group != nil {
		if err := r.group.Kill(deadline); err != nil {
			return err
		}
	}
	if r.init >= 0 {
		if err := gone(r.init, deadline); err != nil {
			return fmt.Errorf("end pid namespace: %w", err)
		}
	}
	_ = r.launch.cmd.Process.Kill()
	if r.sweep != nil {
		if err := r.sweep(deadline); err != nil {
			return err
		}
	}
	select {
	case <-r.exited:
	case <-time.After(time.Until(deadline)):
		return errors.New("kill sandbox: it does not end")
	}
	return nil
}

// killChildren handles the moment when bwrap may have forked a child that we don't know yet. It stops bwrap first, so
// that it can't fork another.
func (r *run) killChildren(deadline time.Time) {
	pid := r.launch.cmd.Process.Pid
	select {
	case <-r.exited:
		return
	default:
	}
	_ = r.launch.cmd.Process.Signal(unix.SIGSTOP)
	for time.Now().Before(deadline) { // a fork in progress finishes before the stop
		if st, ok := processes()[pid]; !ok || strings.ContainsRune("TtZX", st.state) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, child := range descendants(pid) {
		if fd, err := unix.PidfdOpen(child, 0); err == nil {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			_ = unix.Kill(pid, unix.SIGCONT)
			_ = gone(fd, deadline)
			_ = unix.Close(fd)
		}
	}
}

// gone waits until the process behind a pidfd is dead.
func gone(fd int, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// usage returns the group's usage so far.
func (r *run) usage() Usage {
	u := r.group.Usage()
	return Usage{CPU: u.CPU, Memory: u.Memory, MaxMemory: u.MaxMemory}
}

// close releases the run's resources on the host.
func (r *run) close() {
	for _, f := range []*os.File{r.gate, r.hold, r.info} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, f := range r.launch.child {
		_ = f.Close() // needed again for runs that never started
	}
	if r.init >= 0 {
		_ = unix.Close(r.init)
	}
	if r.link != nil {
		r.link.End(errors.New("the program has ended"))
	}
	r.launch.unstage()
	if r.tmp != "" {
		if err := os.RemoveAll(r.tmp); err != nil {
			r.log.Warn("files of /tmp not removed", "run", r.id, "err", err)
		}
	}
	if r.group != nil {
		if err := r.group.Remove(2 * time.Second); err != nil {
			r.log.Warn("cgroup not removed", "run", r.id, "err", err)
		}
	}
}

// procs lists the run's processes as far as they are known.
func (r *run) procs() []int {
	if r.group != nil {
		if pids, err := r.group.Procs(); err == nil {
			return pids
		}
	}
	pid := r.launch.cmd.Process.Pid
	return append(descendants(pid), pid)
}

// descendants lists the processes below pid from /proc. Orphans stay below, since the namespace's pid 1 adopts them.
func descendants(pid int) []int {
	children := map[int][]int{}
	for p, st := range processes() {
		children[st.ppid] = append(children[st.ppid], p)
	}
	var all []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

type procStat struct {
	state   rune
	ppid    int
	exiting bool // runs no more code, but isn't reaped yet
	cpu     time.Duration
}

// processes reads /proc/*/stat and skips processes that vanish meanwhile.
func processes() map[int]procStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]procStat, len(names))
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if st, ok := stat(pid); ok {
			all[pid] = st
		}
	}
	return all
}

// stat reads /proc/PID/stat (proc_pid_stat(5)). ok is false if the process doesn't exist.
func stat(pid int) (st procStat, ok bool) {
	const exiting, kernelThread = 0x4, 0x200000 // PF_EXITING, PF_KTHREAD of linux/sched.h
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return st, false
	}
	// The name is in parentheses and may itself contain parentheses.
	i := strings.LastIndexByte(string(text), ')')
	f := strings.Fields(string(text[i+1:]))
	if i < 0 || len(f) < 13 {
		return st, false
	}
	ppid, _ := strconv.Atoi(f[1])
	flags, _ := strconv.ParseUint(f[6], 10, 64)
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return procStat{
		rune(f[0][0]), ppid, flags&exiting != 0 && flags&kernelThread == 0,
		time.Duration(user+system) * time.Second / 100,
	}, true // USER_HZ is 100 everywhere
}

// drain reads and discards output, so that the command doesn't block.
func drain(f *os.File) { _, _ = io.Copy(io.Discard, f) }
