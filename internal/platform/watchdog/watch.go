package watchdog

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// argument is the only argument of the process.
const argument = "slipway-watchdog"

// init is the process's main: the program's own would read settings and a command line.
func init() {
	if len(os.Args) == 2 && os.Args[1] == argument {
		os.Exit(watch(3))
	}
}

// watch reads messages from a socket until the other end is closed, and kills what it holds at the deadline.
func watch(socket int) int {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // without the right to it, it works as well
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return 1
	}
	held, deadline := map[uint64]int{}, time.Duration(0)
	ready := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}, {Fd: int32(timer), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return 1
		}
		if ready[0].Revents != 0 { // before the deadline is looked at: it may be another one
			m, err := receive(socket)
			if err != nil {
				kill(held)
				return 0
			}
			switch deadline = m.deadline; m.op {
			case hold:
				held[m.key] = m.pidfd
			case release:
				if fd, ok := held[m.key]; ok {
					_ = unix.Close(fd)
					delete(held, m.key)
				}
			}
		}
		var at unix.ItimerSpec // zero stops the timer
		if len(held) > 0 && deadline > Now() {
			at.Value = unix.NsecToTimespec(int64(deadline))
		}
		if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
			return 1
		}
		if n := len(held); n > 0 && deadline <= Now() {
			kill(held)
			_, _ = unix.SendmsgN(socket, []byte{byte(min(n, 255))}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}
}

// kill kills all processes and holds none of them any more.
func kill(held map[uint64]int) {
	for key, fd := range held {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // an error means that it is gone
		_ = unix.Close(fd)
		delete(held, key)
	}
}

type message struct {
	op       byte
	key      uint64
	deadline time.Duration
	pidfd    int // with hold
}

// receive reads one message. It is an error at the end of the service.
func receive(socket int) (m message, err error) {
	var b [messageSize]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, rights, _, _, err := unix.Recvmsg(socket, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return m, err
	}
	if n != messageSize {
		return m, os.ErrClosed
	}
	m = message{op: b[0], key: binary.LittleEndian.Uint64(b[1:]), deadline: time.Duration(binary.LittleEndian.Uint64(b[9:]))}
	if m.op != hold {
		return m, nil
	}
	all, err := unix.ParseSocketControlMessage(oob[:rights])
	if err != nil || len(all) != 1 {
		return m, os.ErrInvalid
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return m, os.ErrInvalid
	}
	m.pidfd = fds[0]
	return m, nil
}
