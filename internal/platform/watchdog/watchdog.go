// Package watchdog owns the process beside the service that kills sandboxes at a deadline, unless the service moves the deadline in time.
//
// A service that is stopped, or hangs, can't end what it started, which runs on. The watchdog is the same program, started again when
// the first sandbox needs it. It holds each sandbox by a pidfd, whose process can't be confused with a later one. Deadlines are moments of
// Now, which also counts the time for which a machine was suspended. The watchdog kills all that it holds when the service ends, too
// (docs/adr/0048-watchdog.md).
package watchdog

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
)

// Now returns the time since the machine's start, including the time for which it was suspended.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that runs sandboxes has this clock
	}
	return time.Duration(t.Nano())
}

// Config holds what a Watchdog needs.
type Config struct {
	Place Place // Optional: nil leaves the process beside the service.
	Log   *slog.Logger
}

// Place is where a process isn't stopped together with the service.
type Place interface {
	// Aside moves a process there, and returns how to tidy up after its end.
	Aside(pid int) (tidy func())
}

// Watchdog is the service's end of the process. It is safe for concurrent use.
type Watchdog struct {
	c Config

	mu   sync.Mutex // guards the rest
	conn *net.UnixConn
	cmd  *exec.Cmd // nil: there is no process
	// share: total the sandboxes that run; owner the programs that it may run; edge gone with the sandbox
	held     map[uint64]*os.File // pidfds
	last     uint64              // the latest key of held
	deadline time.Duration
}

// New returns a Watchdog and starts nothing.
func New(c Config) *Watchdog {
	return &Watchdog{c: c, held: map[uint64]*os.File{}}
}

// patience is how long the watchdog may take to read a message, before it is replaced.
const patience = time.Second

// Held is a process that is killed at the deadline.
type Held struct {
	of  *Watchdog
	key uint64
}

// Hold has the process behind a pidfd killed at the deadline. The caller keeps the pidfd. An error means that nothing would kill it.
func (w *Watchdog) Hold(pidfd int) (*Held, error) {
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold process: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	key := w.last
	w.held[key] = os.NewFile(uintptr(fd), "pidfd")
	if w.cmd == nil {
		err = w.start()
	} else if err = w.send(hold, key); err != nil {
		w.end()
		err = w.start()
	}
	if err != nil {
		w.held[key].Close()
		delete(w.held, key)
		return nil, fmt.Errorf("hold process: %w", err)
	}
	return &Held{w, key}, nil
}

// Kill kills the process at once. It does nothing if h is nil or released.
func (h *Held) Kill() {
	if h == nil {
		return
	}
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if f := h.of.held[h.key]; f != nil {
		_ = unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0) // an error means that it is gone
	}
}

// Release lets the process live. It does nothing if h is nil or released.
func (h *Held) Release() {
	if h == nil {
		return
	}
	w := h.of
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.held[h.key]; f != nil {
		f.Close()
		delete(w.held, h.key)
		if w.cmd != nil && w.send(release, h.key) != nil {
			w.end() // Extend starts it again
		}
	}
}

// Extend sets the deadline. It also starts a process that has ended again.
func (w *Watchdog) Extend(deadline time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := deadline != w.deadline
	w.deadline = deadline
	if w.cmd != nil && changed && w.send(extend, 0) != nil {
		w.end()
	}
	if w.cmd == nil && len(w.held) > 0 {
		if err := w.start(); err != nil {
			w.c.Log.Error("watchdog not started: nothing ends programs while this process hangs", "err", err)
		}
	}
}

// PID returns the number of the process; 0: none runs.
func (w *Watchdog) PID() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return 0
	}
	return w.cmd.Process.Pid
}

// Close ends the process. What it held goes on.
func (w *Watchdog) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
	for key, f := range w.held {
		f.Close()
		delete(w.held, key)
	}
}

// Messages are an operation, a key and the deadline in nanoseconds. A message with hold carries the pidfd.
const (
	hold byte = iota + 1
	release
	extend

	messageSize = 17
)

// send is for who holds the lock.
func (w *Watchdog) send(op byte, key uint64) error {
	message := binary.LittleEndian.AppendUint64([]byte{op}, key)
	message = binary.LittleEndian.AppendUint64(message, uint64(w.deadline))
	var rights []byte
	if op == hold {
		rights = unix.UnixRights(int(w.held[key].Fd()))
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, _, err := w.conn.WriteMsgUnix(message, rights, nil)
	return err
}

// start starts the process and hands over what it has to hold. It is for who holds the lock.
func (w *Watchdog) start() error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "watchdog"), os.NewFile(uintptr(ends[1]), "service")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", argument) // also after an upgrade has replaced the file
	cmd.Args[0], cmd.Dir, cmd.Env = "slipway", "/", []string{"GOMAXPROCS=1"}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to the service's group are not for it
	if err := cmd.Start(); err != nil {
		c.Close()
		return fmt.Errorf("start watchdog: %w", err)
	}
	tidy := func() {}
	if w.c.Place != nil {
		tidy = w.c.Place.Aside(cmd.Process.Pid)
	}
	w.conn, w.cmd = c.(*net.UnixConn), cmd
	panics.Go(func() { w.attend(cmd, w.conn, tidy) })
	for key := range w.held {
		if err := w.send(hold, key); err != nil {
			w.end()
			return fmt.Errorf("start watchdog: %w", err)
		}
	}
	return nil
}

// end kills the process first, so that it doesn't take the end of the connection for the end of the service. It is for who holds the lock.
func (w *Watchdog) end() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		w.conn.Close()
		w.cmd, w.conn = nil, nil
	}
}

// attend reports what the process has killed, and waits for its end.
func (w *Watchdog) attend(cmd *exec.Cmd, c *net.UnixConn, tidy func()) {
	var b [messageSize]byte
	for {
		n, err := c.Read(b[:])
		if n == 0 || err != nil {
			break
		}
		w.c.Log.Warn("programs killed by the watchdog: this process did not answer before its lease ended", "programs", b[0])
	}
	err := cmd.Wait()
	tidy()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == cmd {
		w.c.Log.Error("watchdog ended, and starts again", "err", err)
		w.conn.Close()
		w.cmd, w.conn = nil, nil
		if len(w.held) > 0 {
			if err := w.start(); err != nil { // Extend tries again
				w.c.Log.Error("watchdog not started: nothing ends programs while this process hangs", "err", err)
			}
		}
	}
}
