package inside

import (
	"crypto/subtle"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"slipway/cluster/pod"
	"slipway/cluster/stored"
)

// silence limits the engine's inactivity during a transfer.
const silence = 10 * time.Minute

// Store serves a volume: it sends a site's storage and receives new storage until it is asked to end.
func Store() error {
	d, err := readDescription()
	if err != nil {
		return fmt.Errorf("read the keeper's description: %w", err)
	}
	if err := stored.Finish(pod.StorageDir); err != nil && !d.ReadOnly {
		return fmt.Errorf("finish what another keeper has begun: %w", err)
	}
	l, err := net.Listen("tcp", ":"+strconv.Itoa(pod.Port))
	if err != nil {
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			go keeper(c.(*net.TCPConn), d.Token, asked)
		}
	}()
	<-asked
	n := Stored()
	Tell(pod.End{Reason: "exit code 0", Stored: &n})
	return nil
}

func keeper(c *net.TCPConn, token string, stop chan<- os.Signal) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(questionPatience))
	said, verb, _, err := pod.Listen(c)
	if err != nil || subtle.ConstantTimeCompare([]byte(said), []byte(token)) != 1 {
		return
	}
	if _, err := c.Write([]byte{pod.Yes}); err != nil {
		return
	}
	switch verb {
	case pod.Store:
		_ = c.SetDeadline(time.Time{})
		if err := stored.Serve(pod.StorageDir, heard{c}); err != nil {
			fmt.Println(pod.Mark("stderr", "slipway: "+err.Error()))
		}
	case pod.Stop:
		select {
		case stop <- syscall.SIGTERM:
		default:
		}
	}
}

// heard is a connection with a deadline that each read and write extends.
type heard struct{ *net.TCPConn }

func (h heard) Read(p []byte) (int, error) {
	_ = h.SetReadDeadline(time.Now().Add(silence))
	return h.TCPConn.Read(p)
}

func (h heard) Write(p []byte) (int, error) {
	_ = h.SetWriteDeadline(time.Now().Add(silence))
	return h.TCPConn.Write(p)
}
