package inside

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"slipway/cluster/pod"
)

// maxLed caps a program's concurrent connections to one service. Further ones wait.
const maxLed = 256

// ways forward a program's connections to the engine, which forwards them to the services.
type ways struct {
	d   pod.Description
	tls *tls.Config
}

// openWays listens on the addresses of the program's services. Earlier connections wait.
func openWays(d pod.Description) error {
	if len(d.Ways) == 0 {
		return nil
	}
	trusted, err := trust(d.CA)
	if err != nil {
		return err
	}
	trusted.NextProtos = []string{pod.WaysProtocol}
	trusted.ClientSessionCache = tls.NewLRUClientSessionCache(8) // programs connect for each request
	w := &ways{d: d, tls: trusted}
	for _, way := range d.Ways {
		l, err := net.Listen("tcp", way.Address)
		if err != nil {
			return fmt.Errorf("offer %s: %w", way.Verb, err)
		}
		slots := make(chan struct{}, maxLed)
		go w.serve(l, way.Verb, slots)
		if way.Socket == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(way.Socket), 0o755); err != nil {
			return fmt.Errorf("offer %s: %w", way.Verb, err)
		}
		if l, err = net.Listen("unix", way.Socket); err != nil {
			return fmt.Errorf("offer %s: %w", way.Verb, err)
		}
		go w.serve(l, way.Verb, slots)
	}
	return nil
}

func (w *ways) serve(l net.Listener, verb string, slots chan struct{}) {
	for {
		slots <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			<-slots
			time.Sleep(10 * time.Millisecond) // too many open files; wait for some to close
			continue
		}
		go func() {
			defer func() { <-slots }()
			defer c.Close()
			if up := w.reach(verb); up != nil {
				defer up.Close()
				pod.Join(c.(pod.Half), up)
			}
		}()
	}
}

// reach connects to the service of a verb, or returns nil.
func (w *ways) reach(verb string) *tls.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), questionPatience)
	defer cancel()
	c, err := (&tls.Dialer{Config: w.tls}).DialContext(ctx, "tcp", w.d.Address)
	if err != nil {
		return nil
	}
	up := c.(*tls.Conn)
	_ = up.SetDeadline(time.Now().Add(questionPatience))
	if reply, err := pod.Ask(up, w.d.Asker(), verb, 0); err != nil || reply != pod.Yes {
		up.Close()
		return nil
	}
	_ = up.SetDeadline(time.Time{})
	return up
}
