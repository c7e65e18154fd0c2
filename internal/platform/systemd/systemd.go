// Package systemd owns what a service and its service manager say to each other: the sockets
// that systemd opened and passed on, and the notifications that tell it when the service is
// ready, stops, or still works.
//
// All of it is off where the program was not started by systemd: without the variables of
// the environment nothing is passed on, and a notification goes nowhere. See sd_listen_fds(3),
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

// firstSocket is the descriptor of the first socket that systemd passes on: SD_LISTEN_FDS_START.
const firstSocket = 3

// maxSockets is how many sockets are taken: a unit of ours names five.
const maxSockets = 64

// Sockets returns the sockets that systemd passed on, in the order of the socket unit. It takes the
// variables out of the environment, so that no child believes that they are meant for it; a
// second call returns none.
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

// Notifier tells systemd how the service is. The zero value tells nobody.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// NewNotifier returns what tells the systemd that started this process, if one did. It takes
// the variables out of the environment, so that no child can speak for the service.
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

// Listens reports whether there is a systemd to tell.
func (n Notifier) Listens() bool { return n.socket != "" }

// Watchdog returns how long systemd waits for WATCHDOG=1 before it restarts the service; zero:
// for ever.
func (n Notifier) Watchdog() time.Duration { return n.watchdog }

// Ready says that the service serves.
func (n Notifier) Ready() error { return n.send("READY=1\nSTATUS=Serving.") }

// Stopping says that the service drains and ends.
func (n Notifier) Stopping() error { return n.send("STOPPING=1\nSTATUS=Draining.") }

// Alive says that the service has looked at itself and works.
func (n Notifier) Alive() error { return n.send("WATCHDOG=1") }

// Working says what a start is at, and asks for d more before systemd gives up on it.
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
