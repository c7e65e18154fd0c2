package kube

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// maxLed caps a program's forwarded connections.
const maxLed = 512

// Connect sets the services for programs, which are created after the engine. It must be called before the first Start.
func (e *Engine) Connect(w runtime.Ways) { e.ways = w }

// waysOf returns the services available on a program's loopback.
func (e *Engine) waysOf(s runtime.Spec) (ways []pod.Way) {
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	if s.Database {
		ways = append(ways, pod.Way{Verb: pod.Database, Address: at(runtime.DatabasePort), Socket: runtime.DatabaseSocket})
	}
	if s.Mail {
		ways = append(ways, pod.Way{Verb: pod.Mail, Address: at(runtime.MailPort)})
	}
	if s.RedisServer {
		ways = append(ways, pod.Way{Verb: pod.Redis, Address: at(runtime.RedisPort), Socket: runtime.RedisServerSocket})
	}
	for _, at := range e.ownOf(s) {
		ways = append(ways, pod.Way{Verb: pod.Own, Address: at})
	}
	return ways
}

// ownHost is the address of the program's own site within its pod. It differs from the addresses the program listens
// on.
const ownHost = "127.0.0.2"

// ownNames returns the host names of a program's own site to resolve within its pod.
func (e *Engine) ownNames(s runtime.Spec) (names []string) {
	if !s.Egress || e.c.Edge == "" {
		return nil
	}
	for _, own := range s.Own {
		host, _, err := net.SplitHostPort(own)
		if err == nil && len(validation.IsDNS1123Subdomain(host)) == 0 && net.ParseIP(host) == nil && !slices.Contains(names, host) {
			names = append(names, host)
		}
	}
	return names
}

// ownOf returns the addresses at which a pod listens for requests to the program's own site.
func (e *Engine) ownOf(s runtime.Spec) (ways []string) {
	names := e.ownNames(s)
	for _, own := range s.Own {
		host, port, err := net.SplitHostPort(own)
		if err != nil || !slices.Contains(names, host) {
			continue
		}
		hosts := []string{ownHost}
		if strings.HasSuffix(host, ".localhost") { // always the loopback (RFC 6761 §6.3)
			hosts = append(hosts, "127.0.0.1")
		}
		for _, h := range hosts {
			if at := net.JoinHostPort(h, port); !slices.Contains(ways, at) {
				ways = append(ways, at)
			}
		}
	}
	return ways
}

// led holds a program's connections that the engine forwards.
type led struct {
	database string // socket of the site's databases
	// Listeners of the mail and Redis servers.
	mail, redis *handed

	stop   context.CancelFunc
	served sync.WaitGroup // servers and connections
	done   func()         // releases the database server

	mu sync.Mutex // guards conns
	// share: total maxLed connections of a program; owner its own; edge the connection is refused
	conns map[net.Conn]bool // nil once the program has ended
}

var errNoWays = errors.New("this process provides no databases, mail or Redis")

// lead starts the services of a program.
func (e *Engine) lead(ctx context.Context, s runtime.Spec) (*led, error) {
	l := &led{done: func() {}, stop: func() {}, conns: map[net.Conn]bool{}}
	if !s.Database && !s.Mail && !s.RedisServer {
		return l, nil
	}
	if e.ways == nil {
		return nil, errNoWays
	}
	if s.Database {
		var err error
		if l.database, l.done, err = e.ways.DatabaseSocket(ctx, s); err != nil {
			return nil, err
		}
	}
	life, stop := context.WithCancel(context.Background()) // ctx ends with the start, life with the program
	l.stop = stop
	if s.Mail {
		l.mail = newHanded(life)
		l.served.Go(func() { e.ways.ServeMail(life, s.Site, l.mail) })
	}
	if s.RedisServer {
		l.redis = newHanded(life)
		l.served.Go(func() { e.ways.ServeRedis(life, s, l.redis) })
	}
	return l, nil
}

// close closes all connections of an ended program and waits for their end.
func (l *led) close() {
	l.stop()
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	l.served.Wait()
	l.done()
}

// enter counts a connection, or returns false if it must not be forwarded. leave uncounts it.
func (l *led) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil || len(l.conns) >= maxLed {
		return false
	}
	l.conns[c] = true
	l.served.Add(1)
	return true
}

func (l *led) leave(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.served.Done()
}

// take forwards a pod's connection until it ends. It closes the connection without a response if the pod's identity is
// wrong or its program may not use the service.
func (e *Engine) take(c *tls.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dialPatience))
	asker, verb, _, err := pod.Listen(c)
	if err != nil {
		return
	}
	name, token := pod.AskerOf(asker)
	x := e.program(name)
	if x == nil || subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) != 1 {
		return
	}
	reply := func(b byte) bool { _, err := c.Write([]byte{b}); return err == nil }
	if !x.led.enter(c) {
		reply(pod.No)
		return
	}
	defer x.led.leave(c)
	to := func(network, at string) {
		up, err := reach(network, at)
		if err != nil {
			e.c.Log.Warn("service of a program not reached", "program", name, "what", verb, "err", err)
			reply(pod.No)
			return
		}
		defer up.Close()
		if reply(pod.Yes) {
			_ = c.SetDeadline(time.Time{})
			pod.Join(c, up.(pod.Half))
		}
	}
	switch {
	case verb == pod.Database && x.led.database != "":
		to("unix", x.led.database)
	case verb == pod.Own && len(e.ownNames(x.spec)) > 0:
		to("tcp", e.c.Edge)
	case verb == pod.Mail && x.led.mail != nil && reply(pod.Yes):
		x.led.mail.give(c)
	case verb == pod.Redis && x.led.redis != nil && reply(pod.Yes):
		x.led.redis.give(c)
	default:
		reply(pod.No)
	}
}

// reach connects to an address, or to a socket with a path longer than the kernel's 107 bytes.
func reach(network, at string) (net.Conn, error) {
	if network == "unix" {
		dir, err := os.Open(filepath.Dir(at))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		at = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(at))
	}
	return (&net.Dialer{Timeout: dialPatience}).Dial(network, at)
}

// handed is a listener that accepts connections passed to give.
type handed struct {
	conns  chan net.Conn
	closed chan struct{} // no further connections are accepted
	once   sync.Once
}

func newHanded(ctx context.Context) *handed {
	h := &handed{conns: make(chan net.Conn), closed: make(chan struct{})}
	context.AfterFunc(ctx, func() { h.Close() })
	return h
}

// give passes a connection to Accept and returns when it has been closed, or if nobody accepts it.
func (h *handed) give(c *tls.Conn) {
	gone := make(chan struct{})
	select {
	case h.conns <- &lent{Conn: c, gone: gone}:
		select {
		case <-gone:
		case <-h.closed:
		}
	case <-h.closed:
	case <-time.After(dialPatience): // the maximum number is being served
	}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		_ = c.SetDeadline(time.Time{})
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handed) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// lent is a connection passed to Accept.
type lent struct {
	*tls.Conn
	gone chan struct{} // closed when the connection is
	once sync.Once
}

func (l *lent) Close() error {
	defer l.once.Do(func() { close(l.gone) })
	return l.Conn.Close()
}
