package sandbox

import (
	"fmt"
	"io"
	"net"
	"strconv"
)

// forward offers ports of the loopback and carries what connects to them to the sockets.
// It runs inside, beside the command: who connects is the command itself.
func forward(ports map[int]string) error {
	for port, socket := range ports {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("offer port %d: %w", port, err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go carryTo(c.(*net.TCPConn), socket)
			}
		}()
	}
	return nil
}

func carryTo(c *net.TCPConn, socket string) {
	defer c.Close()
	up, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}
