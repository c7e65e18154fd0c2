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
	killPatience  = 10 * time.Second // for the kernel to finish what SIGKILL began; it takes milliseconds
	startPatience = 10 * time.Second // for bwrap to build its namespaces; it takes milliseconds
	drainPatience = time.Second      // for the last bytes in the pipes of the dead
)

// engine holds what both runners share: groups, starting, watching, killing, proving.
type engine struct {
	name   string // of this installation: the marker in argv and the cgroup
	parent string // cgroup path below each hierarchy's root
	hs     []cgroup.Hierarchy
	log    *slog.Logger
}

// run is one command from start to proven death.
type run struct {
	*engine
	c       Command
	id      string
	launch  launch
	group   *cgroup.Group // nil where there are no cgroups
	gate    *os.File
	hold    *os.File // see handshake; nil for plain
	info    *os.File
	link    *Link                          // nil where nobody reaches in
	init    int                            // pidfd of the namespace's pid 1, -1 for none
	text    []byte                         // goes through the gate
	sweep   func(deadline time.Time) error // further killing and proving. Optional.
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

// pipe makes a pipe and registers the end that the child gets.
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

// finish runs what begin and the caller prepared. It owns all of r from here.
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

	// The output flows from the first moment: bwrap's own complaints come this way.
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
	// Usage before death: a cgroup keeps its counters, a sampled tree does not.
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
		// A process manager may stop us because the kernel killed one of our processes, before
		// we have seen that ourselves: canceled after that, the command died of its memory.
		if r.group.OOM() > 0 && killed != Timeout {
			killed = OutOfMemory
		}
	}
	if killed == NotKilled && failure == nil { // a flood may end by itself
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
		return 128 + int(unix.SIGKILL) // only we send it signals
	}
	return cmd.ProcessState.ExitCode()
}

func (r *run) report(why Reason) {
	select {
	case r.reasons <- why:
	default:
	}
}

// release puts the waiting process into its group and lets it go on. Until the gate
// opens it has read nothing, forked nothing and run nothing of the tenant.
func (r *run) release(ctx context.Context) error {
	pid := r.launch.cmd.Process.Pid
	if r.group != nil && !r.group.Holds(pid) {
		if err := r.group.Attach(pid); err != nil {
			return err
		}
	}
	// Builds die first and run last, so that the service answers meanwhile.
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

// await blocks until the command ends or something says that it must.
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

// reason tells a deadline of the caller from a cancellation.
func reason(ctx context.Context) Reason {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return Timeout
	}
	return Canceled
}

// handshake learns the namespace's pid 1 while bwrap holds it before the command, so
// that there is no moment in which something of the tenant runs and we could not end it.
func (r *run) handshake(ctx context.Context) error {
	defer r.hold.Close() // lets it go on
	defer context.AfterFunc(ctx, func() { _ = r.info.SetReadDeadline(time.Now()) })()
	_ = r.info.SetReadDeadline(time.Now().Add(startPatience))
	var word struct {
		Child int `json:"child-pid"`
	}
	// The reader stays open: bwrap writes the exit code there too, and dies if nobody listens.
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

// kill ends every process of the run and returns nil only when all are proven dead.
func (r *run) kill() error {
	deadline := time.Now().Add(killPatience)
	if r.init < 0 && r.group == nil {
		r.killChildren(deadline)
	}
	if r.init >= 0 {
		// Death of a namespace's pid 1 is reported after the death of all in it
		// (pid_namespaces(7)), so one signal kills and one poll proves.
		_ = unix.PidfdSendSignal(r.init, unix.SIGKILL, nil, 0)
		if gone(r.init, time.Now().Add(time.Second)) == nil {
			// Left alone, bwrap now reaps it and ends; killed, it would leave a zombie to
			// the host's init.
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

// killChildren covers the moment in which bwrap may have made its child and we do not
// know it yet: stopped, it cannot make another one.
func (r *run) killChildren(deadline time.Time) {
	pid := r.launch.cmd.Process.Pid
	select {
	case <-r.exited:
		return
	default:
	}
	_ = r.launch.cmd.Process.Signal(unix.SIGSTOP)
	for time.Now().Before(deadline) { // a clone already under way ends before it stops
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

// usage returns what the run's group used so far.
func (r *run) usage() Usage {
	u := r.group.Usage()
	return Usage{CPU: u.CPU, Memory: u.Memory, MaxMemory: u.MaxMemory}
}

// close gives back what the run holds on the host.
func (r *run) close() {
	for _, f := range []*os.File{r.gate, r.hold, r.info} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, f := range r.launch.child {
		_ = f.Close() // again, for runs that never started
	}
	if r.init >= 0 {
		_ = unix.Close(r.init)
	}
	if r.link != nil {
		r.link.End(errors.New("the program has ended"))
	}
	r.launch.unstage()
	if r.group != nil {
		if err := r.group.Remove(2 * time.Second); err != nil {
			r.log.Warn("cgroup not removed", "run", r.id, "err", err)
		}
	}
}

// procs lists the processes of a run as far as they can be known.
func (r *run) procs() []int {
	if r.group != nil {
		if pids, err := r.group.Procs(); err == nil {
			return pids
		}
	}
	pid := r.launch.cmd.Process.Pid
	return append(descendants(pid), pid)
}

// descendants lists the processes below pid by /proc. Orphans stay below, because the
// namespace's pid 1 adopts them.
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
	exiting bool // it runs no code of its own any more, and is not reaped yet
	cpu     time.Duration
}

// processes reads /proc/*/stat; what vanishes meanwhile is left out.
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

// stat reads /proc/PID/stat (proc_pid_stat(5)); ok is false when there is no such process.
func stat(pid int) (st procStat, ok bool) {
	const exiting, kernelThread = 0x4, 0x200000 // PF_EXITING, PF_KTHREAD of linux/sched.h
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return st, false
	}
	// The name is in parentheses and may hold anything, parentheses included.
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

// drain reads what nobody copies, so that the command doesn't wait for it.
func drain(f *os.File) { _, _ = io.Copy(io.Discard, f) }
