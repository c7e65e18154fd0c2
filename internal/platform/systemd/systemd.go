// Package systemd owns the communication with the service manager: sockets that systemd opened and passed on, and
// notifications that the service is ready, stops, or is alive.
//
// Without systemd's environment variables there are no sockets and notifications do nothing. See sd_listen_fds(3),
// sd_notify(3) and sd_watchdog_enabled(3).
package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// firstSocket is SD_LISTEN_FDS_START, the descriptor of the first passed socket.
const firstSocket = 3

// maxSockets caps the accepted sockets; our unit has five.
const maxSockets = 64

// Sockets returns the sockets that systemd passed on, in the order of the socket unit. It unsets the variables, so that
// children don't use them; a second call returns none.
func Sockets() ([]*os.File, error) {
	pid, fds := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) || fds == "" {
		return nil, nil
	}
	count, err := strconv.Atoi(fds)
	if err != nil || count < 0 || count > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %q; a number up to %d is expected", fds, maxSockets)
	}
	var sockets []*os.File
	for fd := firstSocket; fd < firstSocket+count; fd++ {
		syscall.CloseOnExec(fd)
		sockets = append(sockets, os.NewFile(uintptr(fd), "socket of systemd"))
	}
	return sockets, nil
}

// Notifier notifies systemd of the service's state. The zero value does nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// NewNotifier returns a Notifier for the systemd that started this process, if one did. It unsets the variables, so
// that children can't notify in the service's name.
func NewNotifier() Notifier {
	n := Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
			n.watchdog = time.Duration(us) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return n
}

// Listens reports whether systemd expects notifications.
func (n Notifier) Listens() bool { return n.socket != "" }

// Watchdog returns how long systemd waits for WATCHDOG=1 before it restarts the service; zero means forever.
func (n Notifier) Watchdog() time.Duration { return n.watchdog }

// Ready says that the service serves.
func (n Notifier) Ready() error { return n.send("READY=1\nSTATUS=Serving.") }

// Stopping says that the service drains and ends.
func (n Notifier) Stopping() error { return n.send("STOPPING=1\nSTATUS=Draining.") }

// Alive says that the service works.
func (n Notifier) Alive() error { return n.send("WATCHDOG=1") }

// Working describes the progress of a start and asks for d more time.
func (n Notifier) Working(status string, d time.Duration) error {
	status = strings.Join(strings.Fields(status), " ")
	return n.send(fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", status, d.Microseconds()))
}

func (n Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	// A name that begins with @ is in the abstract namespace: net does the same.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("systemd's notification socket: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("systemd's notification socket: %w", err)
	}
	return nil
}
