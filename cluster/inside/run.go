package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
	"slipway/internal/platform/sandbox"
)

// endMessage is the file from which the cluster reads how a container ended.
const endMessage = "/dev/termination-log"

// Tell writes the container's end to endMessage.
func Tell(e pod.End) {
	if text, err := json.Marshal(e); err == nil {
		_ = os.WriteFile(endMessage, text, 0o644)
	}
}

// entry is the entry point of a pod, its first process.
type entry struct {
	d       pod.Description
	out     output
	started chan struct{}
	pid     int // the program's; set before started is closed
	killed  atomic.Bool
	dialed  atomic.Bool // the engine has connected to the program
	full    atomic.Bool // ended because of too much storage
	kept    *keeping    // nil if it has no storage
	holds   holds
	screen  *screen // nil if the program has no terminal
}

// Run starts the program and returns its end once no process of it is left.
func Run() (pod.End, error) {
	d, err := readDescription()
	if err != nil {
		return pod.End{}, fmt.Errorf("read the program's description: %w", err)
	}
	e := &entry{d: d, started: make(chan struct{})}
	if d.Terminal != nil {
		if e.screen, err = newScreen(*d.Terminal); err != nil {
			return pod.End{}, fmt.Errorf("open a terminal: %w", err)
		}
	}
	l, err := net.Listen("tcp", ":"+strconv.Itoa(pod.Port))
	if err != nil {
		return pod.End{}, err
	}
	go e.serve(l)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	if e.screen != nil {
		select {
		case <-e.screen.taken:
		case <-asked:
			return pod.End{Code: 143, Reason: "stopped"}, nil
		case <-time.After(terminalPatience):
			return pod.End{Code: 125, Reason: "no connection used the terminal"}, nil
		}
	}
	if err := openWays(d); err != nil {
		return pod.End{}, err
	}
	if d.Cache {
		if err := beginEpoch(); err != nil {
			return pod.End{}, fmt.Errorf("prepare the object cache: %w", err)
		}
	}
	e.kept = newKeeping(d, &e.out)
	before := pod.OOMKills()
	done, err := e.start()
	if err != nil {
		return pod.End{}, err
	}
	close(e.started)
	go func() {
		<-asked // the cluster ends the pod after its grace period
		if e.dialed.Load() {
			time.Sleep(time.Duration(d.Linger) * time.Second)
		}
		e.stop(-1)
	}()
	go e.kept.watch(func() {
		e.full.Store(true)
		_ = unix.Kill(-1, unix.SIGKILL)
	})
	status := e.reap()
	_ = unix.Kill(-1, unix.SIGKILL) // remaining processes
	done()
	end := e.endOf(status, pod.OOMKills() > before)
	if e.kept != nil {
		stored := e.kept.stored()
		end.Stored = &stored
	}
	return end, nil
}

// start starts the program through Exec, which restricts it first. done waits for the rest of its output.
func (e *entry) start() (done func(), err error) {
	argv := append([]string{pod.EntryFile, "exec", strconv.FormatInt(e.d.Pids, 10)}, e.d.Argv...)
	attr := &syscall.ProcAttr{Dir: e.d.Dir, Env: e.d.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if e.d.PHP != "" {
		if attr.Env, err = offerPHP(e.d.PHP, e.d.Env); err != nil {
			return nil, fmt.Errorf("prepare PHP: %w", err)
		}
	}
	if e.screen != nil {
		fd := e.screen.inside.Fd()
		attr.Files = []uintptr{fd, fd, fd}
		attr.Sys.Setctty = true
		if e.pid, err = syscall.ForkExec(pod.EntryFile, argv, attr); err != nil {
			return nil, err
		}
		e.screen.begin()
		return e.screen.finish, nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var readers, writers [2]*os.File
	for i := range readers {
		if readers[i], writers[i], err = os.Pipe(); err != nil {
			return nil, err
		}
		defer writers[i].Close()
	}
	attr.Files = []uintptr{null.Fd(), writers[0].Fd(), writers[1].Fd()}
	if e.d.FPM != "" {
		socket, err := listenFPM(e.d.FPM)
		if err != nil {
			return nil, fmt.Errorf("prepare PHP: %w", err)
		}
		defer socket.Close() // later connections are refused once the program has ended
		attr.Files = append(attr.Files, socket.Fd())
	}
	if e.pid, err = syscall.ForkExec(pod.EntryFile, argv, attr); err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	for i, stream := range []string{"stdout", "stderr"} {
		all.Go(func() { e.out.carry(stream, readers[i]) })
	}
	return all.Wait, nil
}

// Exec replaces this process by the program, limited to pids processes of its user. The entry point's processes count,
// as do those of the site's other pods on the node.
func Exec(pids string, argv []string) (code int, err error) {
	if n, err := strconv.ParseUint(pids, 10, 32); err == nil && n > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return 125, err
		}
	}
	name, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return 127, fmt.Errorf("%s: not found", argv[0])
	}
	return 126, fmt.Errorf("%s: %w", argv[0], syscall.Exec(name, argv, os.Environ()))
}

// reap waits for the program, and reaps processes inherited by the pod's first process.
func (e *entry) reap() unix.WaitStatus {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 125 << 8 // ended without a status
		case pid == e.pid:
			return status
		}
	}
}

// stop sends SIGTERM to the program and kills it after the grace period. A negative grace never kills it.
func (e *entry) stop(grace time.Duration) {
	<-e.started
	if e.screen != nil {
		e.screen.hangUp() // an interactive shell ignores SIGTERM
	}
	_ = unix.Kill(e.pid, unix.SIGTERM)
	if grace < 0 {
		return
	}
	time.AfterFunc(grace, func() {
		e.killed.Store(true)
		_ = unix.Kill(-1, unix.SIGKILL)
	})
}

func (e *entry) endOf(status unix.WaitStatus, oom bool) pod.End {
	if !status.Signaled() {
		return pod.End{Code: status.ExitStatus(), Reason: fmt.Sprintf("exit code %d", status.ExitStatus())}
	}
	end := pod.End{Code: 128 + int(status.Signal()), Reason: "ended by signal " + unix.SignalName(status.Signal())}
	switch {
	case status.Signal() != unix.SIGKILL:
	case e.full.Load():
		end.Reason = string(sandbox.StorageFull)
	case e.killed.Load():
		end.Reason = "stopped"
	case oom:
		end.Reason, end.OutOfMemory = "out of memory", true
	}
	return end
}

// Main runs a part of the entry point: prepare, run, exec, count or store. It returns the exit status.
func Main(args []string) int {
	failed := func(err error) int {
		fmt.Println(pod.Mark("stderr", "slipway: "+err.Error()))
		Tell(pod.End{Code: 125, Reason: err.Error(), Unreached: errors.As(err, new(errUnreached))})
		return 125
	}
	switch {
	case len(args) == 1 && args[0] == "prepare":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Prepare(ctx); err != nil {
			if end, ok := asReadOnly(err); ok {
				Tell(end)
				return end.Code
			}
			return failed(err)
		}
		return 0
	case len(args) == 1 && args[0] == "count":
		stored := Stored()
		Tell(pod.End{Reason: "exit code 0", Stored: &stored})
		return 0
	case len(args) == 1 && args[0] == "store":
		if err := Store(); err != nil {
			return failed(err)
		}
		return 0
	case len(args) == 1 && args[0] == "run":
		end, err := Run()
		if err != nil {
			return failed(err)
		}
		Tell(end)
		return end.Code
	case len(args) > 2 && args[0] == "exec":
		code, err := Exec(args[1], args[2:])
		fmt.Fprintln(os.Stderr, err)
		return code
	}
	fmt.Fprintln(os.Stderr, "slipway-program is started by Slipway in the pods of programs")
	return 2
}
