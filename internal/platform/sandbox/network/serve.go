package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Serve answers the host's requests from inside; signal sends a signal to the command.
func Serve(f *os.File, signal func(syscall.Signal)) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return
	}
	conn := c.(*net.UnixConn)
	defer conn.Close()
	// share: total 256 per sandbox; owner its own sandboxes' alone; edge dials of the host wait, inside the sandbox
	slots := make(chan struct{}, 256)
	var m [linkSize]byte
	for {
		n, err := conn.Read(m[:])
		if err != nil || n != linkSize {
			return
		}
		id, arg := binary.LittleEndian.Uint32(m[1:]), binary.LittleEndian.Uint16(m[5:])
		switch m[0] {
		case linkSignal:
			signal(syscall.Signal(arg))
		case linkDial:
			slots <- struct{}{}
			// uncaught: a sandbox's own process
			go func() {
				defer func() { <-slots }()
				answerDial(conn, id, int(arg))
			}()
		}
	}
}

// answerDial connects and sends the socket. It tries only briefly, since the host retries until the program listens.
func answerDial(conn *net.UnixConn, id uint32, port int) {
	var m [answerSize]byte
	binary.LittleEndian.PutUint32(m[:], id)
	m[4] = answerOther
	d := net.Dialer{Timeout: 2 * time.Second}
	var c net.Conn
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		if c, err = d.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(port))); err == nil {
			break
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			m[4] = answerNoOne
		}
	}
	if err != nil {
		_, _ = conn.Write(m[:])
		return
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		_, _ = conn.Write(m[:])
		return
	}
	m[4] = answerOK
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = conn.WriteMsgUnix(m[:], unix.UnixRights(int(fd)), nil)
	})
}
