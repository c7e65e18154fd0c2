// Package inside owns what runs in a sandbox before the command: a helper that sets the remaining limits and then
// executes the command.
//
// cmd/slipway-init is that helper. It is a separate program because the service's binary takes four times as long to
// start (ADR 0025). This package imports nothing with slow initialization, such as net/http or regular expressions.
package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/network"
)

// Name is the helper's first argument, which identifies its processes.
const Name = "sandbox-shim"

// Paths inside the sandbox.
const (
	Root  = "/build"                  // the work directory
	Proxy = "/run/slipway/proxy.sock" // path of the socket of Spec.Proxy
	Self  = "/run/slipway/shim"       // path of the helper
)

// Spec is the shim's instructions, read from a descriptor.
type Spec struct {
	Argv     []string
	Env      []string
	Dir      string
	Proxy    string // unix socket inside; "" if none
	Sockets  []int  // descriptors: the resolver's socket, then one per entry of Ports
	Ports    []uint16
	Forwards map[int]string // ports of the loopback → sockets inside
	Link     int            // descriptor of the Link; 0 if none
	HandOut  bool           // hand the network out over Link instead of serving it
	Beside   [][]string     // commands to run next to Argv
	Listener bool           // descriptor 3 is a listening socket for the command
	Terminal int            // descriptor of the command's terminal; 0 if none
	Rlimits  []Rlimit
}

// Rlimit is a resource limit (setrlimit(2)) for soft and hard.
type Rlimit struct {
	Resource int
	Max      uint64
}

// StageArg makes the helper create a network.
const StageArg = "--network"

// Main runs in the sandbox as the last step before the untrusted command. With [marker, spec fd, status fd] it reads
// the spec, sets resource limits, provides the network and executes the command. If it must serve the network itself,
// it stays as the command's parent and returns its exit code. It also runs the network stage and the canary. The result
// is the process's exit code.
func Main(args []string) int {
	if len(args) == 2 && args[0] == CanaryArg {
		return canary(args[1], os.Stdout)
	}
	if len(args) == 1 && args[0] == "hold" { // bait of the canary: lives until its input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	if len(args) > 1 && args[1] == StageArg {
		fmt.Fprintln(os.Stderr, "slipway:", network.Stage(args[2:]))
		return 125
	}
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "slipway: the sandbox shim is started by the server only")
		return 125
	}
	in, err1 := strconv.Atoi(args[1])
	st, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil || in < 3 || st < 3 {
		return 125
	}
	unix.CloseOnExec(in)
	unix.CloseOnExec(st)
	status := os.NewFile(uintptr(st), "status")
	// Reset the timer slack, which is larger in the service's threads, so that the command wakes on time. It is set for
	// this thread, which starts or becomes the command.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualTimerSlack, 0, 0, 0)
	code, err := shim(os.NewFile(uintptr(in), "spec"), status)
	if err != nil {
		fmt.Fprintf(status, "%v", err)
		return 125
	}
	return code
}

// usualTimerSlack is the kernel's default in nanoseconds (prctl(2)).
const usualTimerSlack = 50_000

// Started is the first byte on the status pipe, sent just before the command runs.
const Started = '+'

func shim(in, status *os.File) (int, error) {
	// Signals ignored by the service's parent, such as SIGHUP under nohup, would stay ignored in the command. A handler
	// of ours is reset by exec.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} { // Go handles the others
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	var s Spec
	err := json.NewDecoder(in).Decode(&s)
	_ = in.Close()
	if err != nil {
		return 0, fmt.Errorf("read spec: %w", err)
	}
	if s.Link != 0 {
		unix.CloseOnExec(s.Link)
	}
	if s.Listener {
		unix.CloseOnExec(3)
		// Go's listeners don't block, and children inherit the mode. A PHP-FPM worker that gets EAGAIN from accept
		// exits.
		if err := unix.SetNonblock(3, false); err != nil {
			return 0, fmt.Errorf("make the listener block: %w", err)
		}
	}
	if s.Terminal != 0 {
		unix.CloseOnExec(s.Terminal)
	}
	if s.HandOut {
		// No shim remains after this: the process becomes the command.
		if err := network.HandOut(os.NewFile(uintptr(s.Link), "link"), s.Sockets, s.Forwards); err != nil {
			return 0, err
		}
		s.Proxy, s.Sockets, s.Forwards, s.Link = "", nil, nil, 0
	}
	if s.Proxy != "" {
		if err := network.Offer(s.Proxy, s.Sockets, s.Ports); err != nil {
			return 0, err
		}
	}
	if err := network.Forward(s.Forwards); err != nil {
		return 0, err
	}
	for _, r := range s.Rlimits {
		if err := restrict(r); err != nil {
			return 0, fmt.Errorf("set resource limit %d: %w", r.Resource, err)
		}
	}
	if _, err := status.Write([]byte{Started}); err != nil {
		return 0, err
	}
	// From here on, report failures as a shell would.
	if err := os.Chdir(s.Dir); err != nil {
		why := err
		if e := new(fs.PathError); errors.As(err, &e) {
			why = e.Err
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Dir, why)
		return 127, nil
	}
	for _, argv := range s.Beside {
		if err := startBeside(argv, s.Env); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", argv[0], err)
		}
	}
	program, err := lookPath(s.Argv[0], s.Env)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: command not found\n", s.Argv[0])
		return 127, nil
	}
	if s.Proxy == "" && s.Link == 0 && len(s.Forwards) == 0 {
		if s.Listener {
			if _, err := unix.FcntlInt(3, unix.F_SETFD, 0); err != nil {
				return 0, fmt.Errorf("pass the listener on: %w", err)
			}
		}
		if s.Terminal != 0 {
			if err := takeTerminal(s.Terminal); err != nil {
				return 0, err
			}
		}
		err := syscall.Exec(program, s.Argv, s.Env)
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Argv[0], err)
		return 126, nil
	}
	_ = status.Close()
	cmd := &exec.Cmd{Path: program, Args: s.Argv, Env: s.Env, Dir: s.Dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	var listener *os.File
	if s.Listener {
		listener = os.NewFile(3, "listener")
		cmd.ExtraFiles = []*os.File{listener}
	}
	if s.Terminal != 0 {
		terminal := os.NewFile(uintptr(s.Terminal), "terminal")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Argv[0], err)
		return 126, nil
	}
	if listener != nil {
		_ = listener.Close() // clients must see when the command has ended
	}
	if s.Link != 0 {
		// uncaught: a sandbox's own process
		go network.Serve(os.NewFile(uintptr(s.Link), "link"), func(sig syscall.Signal) { _ = cmd.Process.Signal(sig) })
	}
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// takeTerminal makes this process the leader of a session with the terminal, which becomes its standard input and
// output.
func takeTerminal(fd int) error {
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("take the terminal: %w", err)
	}
	for to := range 3 {
		if err := unix.Dup3(fd, to, 0); err != nil {
			return fmt.Errorf("take the terminal: %w", err)
		}
	}
	return nil
}

// restrict sets both limits, but not above the current hard limit: raising needs a capability that no process here has.
func restrict(r Rlimit) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(r.Resource, &now); err != nil {
		return err
	}
	m := min(r.Max, now.Max)
	// syscall.Setrlimit tells the Go runtime not to restore NOFILE at exec.
	return syscall.Setrlimit(r.Resource, &syscall.Rlimit{Cur: m, Max: m})
}

// lookPath finds a program in the PATH of env instead of this process's.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for i := len(env) - 1; i >= 0; i-- {
		list, ok := strings.CutPrefix(env[i], "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			p := filepath.Join(dir, name)
			if st, err := os.Stat(p); filepath.IsAbs(p) && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return p, nil
			}
		}
		break
	}
	return "", errors.New("not found")
}
