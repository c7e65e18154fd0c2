package inside

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

const (
	maxConns         = 4096             // further connections wait
	questionPatience = 10 * time.Second // until a question arrives
	terminalPatience = time.Minute      // until the user's terminal is connected
)

// serve answers the engine's questions.
func (e *entry) serve(l net.Listener) {
	slots := make(chan struct{}, maxConns)
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
			e.answer(c.(*net.TCPConn))
		}()
	}
}

func (e *entry) answer(c *net.TCPConn) {
	_ = c.SetDeadline(time.Now().Add(questionPatience))
	token, verb, number, err := pod.Listen(c)
	if err != nil || subtle.ConstantTimeCompare([]byte(token), []byte(e.d.Token)) != 1 {
		return
	}
	_ = c.SetDeadline(time.Time{})
	reply := func(b byte) bool { _, err := c.Write([]byte{b}); return err == nil }
	switch verb {
	case pod.Ping:
		select {
		case <-e.started:
			reply(pod.Yes)
		default:
			reply(pod.No)
		}
	case pod.Dial:
		to, err := e.dial()
		if err != nil {
			reply(pod.No)
			return
		}
		defer to.Close()
		e.dialed.Store(true)
		if reply(pod.Yes) {
			pod.Join(c, to)
		}
	case pod.Epoch:
		if e.d.Cache && runtime.BumpEpoch(pod.EpochFile, number == 0) == nil {
			reply(pod.Yes)
		} else {
			reply(pod.No)
		}
	case pod.Open:
		_ = send(c, number, reply)
	case pod.Stop:
		e.stop(time.Duration(number) * time.Millisecond)
		if reply(pod.Yes) {
			_, _ = io.Copy(io.Discard, c) // until either end closes
		}
	case pod.Hold:
		e.hold(c, time.Duration(number)*time.Millisecond, func() bool { return reply(pod.Yes) })
	case pod.Report, pod.Count:
		u := pod.Used()
		if verb == pod.Count {
			<-e.started
			u.Stored = e.kept.stored()
		}
		if text, err := json.Marshal(u); err == nil && reply(pod.Yes) {
			_, _ = c.Write(text)
		}
	case pod.Terminal:
		if e.screen != nil && e.screen.take() && reply(pod.Yes) {
			e.screen.carry(c)
		} else {
			reply(pod.No)
		}
	}
}

func (e *entry) dial() (pod.Half, error) {
	if e.d.FPM != "" {
		return dialFPM()
	}
	return dialProgram()
}

// dialProgram connects to the program on the loopback by IPv4 or IPv6, since "localhost" may mean either.
func dialProgram() (*net.TCPConn, error) {
	port := strconv.Itoa(runtime.Port)
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), questionPatience)
	if errors.Is(err, syscall.ECONNREFUSED) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort("::1", port), questionPatience)
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
