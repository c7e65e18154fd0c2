// Package relay owns the connections between the nodes of an installation, by which each node answers for programs that run
// on another one.
//
// A connection is TLS with certificates of the installation's authority on both sides (certs.NodeTLS). It begins with one line
// of JSON that names a deployment, or its scripts that no visitor can ask for, answered by one line once its program listens, or
// by a fault that says why it does not; until then no request has been sent. What follows is HTTP/1.1, as if the program itself
// were at the other end. A line may instead ask for a command with a terminal, whose frames follow.
//
// The package knows no request and no site.
package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/runtime"
)

const (
	maxLine    = 4 << 10          // bytes of either line
	greetTime  = 10 * time.Second // for the handshake, and the first line
	dialTime   = 3 * time.Second  // for a connection to another node
	silentTime = 5 * time.Second  // for any sign of the other machine
	maxCarried = 8192             // connections from other nodes at once
)

// Program is what the other node says of a program that listens.
type Program struct {
	Site      string        `json:"site"`
	MaxBody   int64         `json:"maxBody,omitempty"`   // bytes of a request's body; 0: no limit
	FirstByte time.Duration `json:"firstByte,omitempty"` // until an answer's first byte; 0: as the edge has it
	Tasks     bool          `json:"tasks,omitempty"`     // it runs scripts that no visitor can ask for, see Dialer.DialTasks
}

// asked is the line of who connects.
type asked struct {
	Deployment id.Deployment `json:"deployment,omitempty"`
	Tasks      bool          `json:"tasks,omitempty"`  // its scripts that no visitor can ask for
	States     bool          `json:"states,omitempty"` // instead: how what runs there is
	Alive      bool          `json:"alive,omitempty"`  // instead: whether it is there, each time that a byte is sent
	Shell      *Shell        `json:"shell,omitempty"`  // instead: a command that has a terminal
}

// answered is the line of who listens.
type answered struct {
	Program *Program `json:"program,omitempty"`
	Fault   *refused `json:"fault,omitempty"`
}

type refused struct {
	Kind    fault.Kind    `json:"kind"`
	Message string        `json:"message"`
	Details string        `json:"details,omitempty"`
	Code    string        `json:"code,omitempty"`
	After   time.Duration `json:"after,omitempty"`
}

func (r *refused) fault() *fault.Error {
	return &fault.Error{Kind: r.Kind, Message: r.Message, Details: r.Details, Code: r.Code, RetryAfter: r.After}
}

// ErrUnreached is the error of Dial where the other node did not take the connection.
var ErrUnreached = errors.New("the other node doesn't answer")

// Dialer connects to other nodes.
type Dialer struct {
	TLS *tls.Config

	mu sync.Mutex // guards peers
	// share: total the other nodes that were connected with in the last minute; owner the operator; edge none
	peers map[string]*peer
}

// Dial connects to the program of a deployment at the node with an address. The other node may wake it first, for as long as ctx
// lasts. The error is a fault where that node refuses.
func (d *Dialer) Dial(ctx context.Context, address string, deployment id.Deployment) (net.Conn, Program, error) {
	return d.dial(ctx, address, asked{Deployment: deployment})
}

// DialTasks is Dial to what runs the scripts of a program that no visitor can ask for.
func (d *Dialer) DialTasks(ctx context.Context, address string, deployment id.Deployment) (net.Conn, error) {
	c, _, err := d.dial(ctx, address, asked{Deployment: deployment, Tasks: true})
	return c, err
}

func (d *Dialer) dial(ctx context.Context, address string, what asked) (net.Conn, Program, error) {
	other := d.peer(address)
	if err := other.silent(); err != nil {
		return nil, Program{}, err
	}
	near, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := d.connect(near, address, other)
	if err != nil {
		return nil, Program{}, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	p, err := greet(c, what)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, p, err
	}
	return reached{c}, p, nil
}

// connect makes a connection whose other end is a node. The kernel ends it when nothing has been heard of that machine for silentTime:
// one that lost its power, or whose packets are dropped, says nothing. It ends, too, when other is silent; nil never is.
func (d *Dialer) connect(ctx context.Context, address string, other *peer) (*tls.Conn, error) {
	near := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
		ControlContext: func(_ context.Context, _, _ string, raw syscall.RawConn) (err error) {
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentTime.Milliseconds()))
			}), err)
		},
	}
	raw, err := near.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	below := &line{Conn: raw, other: other}
	if other != nil {
		other.add(below)
	}
	c := tls.Client(below, d.TLS)
	if err := c.HandshakeContext(ctx); err != nil {
		below.Close()
		return nil, err
	}
	return c, nil
}

// line is the connection below TLS.
type line struct {
	net.Conn
	other *peer       // nil: it is not ended
	ended atomic.Bool // by the other machine's kernel, or because it is silent
}

// Close ends the connection.
func (l *line) Close() error {
	if l.other != nil {
		l.other.remove(l)
	}
	return l.Conn.Close()
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && l.other != nil {
		l.other.hears()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.ended.Store(true)
	}
	return n, err
}

// reached lets who keeps a connection look whether it has been closed, as of TCP, and tells the end of a node from that of a
// program: a node says by TLS that the program has closed the connection.
type reached struct{ *tls.Conn }

// Read fails with io.ErrUnexpectedEOF where the node has ended.
func (r reached) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if err != nil && r.NetConn().(*line).ended.Load() {
		err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return n, err
}

// Write does the same.
func (r reached) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || err != nil && r.NetConn().(*line).ended.Load() {
		err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return n, err
}

// SyscallConn is that of the connection below TLS.
func (r reached) SyscallConn() (syscall.RawConn, error) {
	c, ok := r.NetConn().(*line).Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return c.SyscallConn()
}

// maxStates bounds what another node says of what runs there.
const maxStates = 4 << 20

// States returns what the node with an address says of what runs there.
func (d *Dialer) States(ctx context.Context, address string) ([]byte, error) {
	c, err := d.connect(ctx, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := json.Marshal(asked{States: true})
	if err == nil {
		_, err = c.Write(append(line, '\n'))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	text, err := io.ReadAll(io.LimitReader(c, maxStates))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	return text, nil
}

func greet(c net.Conn, what asked) (Program, error) {
	line, err := json.Marshal(what)
	if err != nil {
		return Program{}, err
	}
	if _, err = c.Write(append(line, '\n')); err != nil {
		return Program{}, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	var a answered
	if err := readLine(c, &a); err != nil {
		return Program{}, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	if a.Fault != nil {
		return Program{}, a.Fault.fault()
	}
	if a.Program == nil {
		return Program{}, ErrUnreached
	}
	return *a.Program, nil
}

// readLine reads a line and nothing after it: that is the program's.
func readLine(c net.Conn, into any) error {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLine; {
		if _, err := c.Read(one); err != nil {
			return err
		}
		if one[0] == '\n' {
			d := json.NewDecoder(bytes.NewReader(line))
			return d.Decode(into)
		}
		line = append(line, one[0])
	}
	return errors.New("the line is too long")
}

// Programs are those of this node.
type Programs interface {
	// Reach wakes a deployment's program here. carry then passes what comes on a connection on to it, until either ends; it is to be
	// called once. With tasks it passes on to the scripts that no visitor can ask for.
	Reach(ctx context.Context, deployment id.Deployment, tasks bool) (p Program, carry func(net.Conn), err error)
	// Shell executes a command with a terminal in a deployment's sandbox here, until it or ctx ends.
	Shell(ctx context.Context, x Shell, t *runtime.Terminal) (runtime.Exit, error)
	// States says how what runs here is, in words that Dialer.States gets.
	States() []byte
}

// Server answers other nodes.
type Server struct {
	Listener net.Listener
	TLS      *tls.Config
	Programs Programs
	Log      *slog.Logger

	once   sync.Once
	ending chan struct{} // closed when no connection is accepted any more

	mu sync.Mutex // guards open, strange
	// share: total 8192 connections of other nodes; owner what its sites' visitors have at their nodes; edge the other node finds nobody, and its visitors 503
	open map[net.Conn]bool
	// share: total as many as open; owner 256 of one address; edge a stranger's next connection is closed
	strange map[netip.Addr]int // connections that have not shown yet that a node is at their other end
}

// maxStrange is how many connections of one address may be shown at once to be a node's: more than a node begins in a moment.
const maxStrange = 256

// meet counts a connection of an address in until known is called; ok is false where there are too many already.
func (s *Server) meet(c net.Conn) (known func(), ok bool) {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return nil, false
	}
	from := at.Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strange[from] >= maxStrange {
		return nil, false
	}
	if s.strange == nil {
		s.strange = map[netip.Addr]int{}
	}
	s.strange[from]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.strange[from]--; s.strange[from] == 0 {
			delete(s.strange, from)
		}
	}), true
}

// ends returns the channel that tells of the end.
func (s *Server) ends() chan struct{} {
	s.once.Do(func() { s.ending = make(chan struct{}) })
	return s.ending
}

// Serve answers until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *Server) Serve() error {
	ending := s.ends()
	life, end := context.WithCancel(context.Background())
	defer end()
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			select {
			case <-ending:
				return http.ErrServerClosed
			default:
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.Log.Warn("connection of another node not accepted", "err", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors: those that end make room
			continue
		}
		if !s.add(c) {
			c.Close()
			continue
		}
		known, ok := s.meet(c)
		if !ok {
			s.remove(c)
			continue
		}
		panics.Go(func() {
			defer s.remove(c)
			defer known()
			s.serve(life, c, known)
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxCarried {
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	s.open[c] = true
	return true
}

func (s *Server) remove(c net.Conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// graceful is how long connections may go on after Shutdown: other nodes give none of them a new request after 3 s.
const graceful = 5 * time.Second

// Shutdown accepts no more connections, waits a moment for those under way, and ends what is left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	ctx, done := context.WithTimeout(ctx, graceful)
	defer done()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		s.mu.Lock()
		n := len(s.open)
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return s.Close()
		}
	}
}

// Close ends all connections.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
	return nil
}

func (s *Server) stop() {
	ending := s.ends()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ending:
	default:
		close(ending)
	}
	s.Listener.Close()
}

// serve answers one connection, and calls known once it is a node's.
func (s *Server) serve(ctx context.Context, raw net.Conn, known func()) {
	_ = raw.SetDeadline(time.Now().Add(greetTime))
	c := tls.Server(raw, s.TLS)
	defer c.Close()
	if err := c.HandshakeContext(ctx); err != nil {
		s.Log.DebugContext(ctx, "who connected is no node of this installation", "from", raw.RemoteAddr(), "err", err)
		return
	}
	known()
	var a asked
	if err := readLine(c, &a); err != nil || a.Deployment == "" && !a.States && !a.Alive && a.Shell == nil {
		return
	}
	if a.Alive {
		s.alive(raw, c)
		return
	}
	if a.States {
		_, _ = c.Write(s.Programs.States())
		return
	}
	_ = raw.SetDeadline(time.Time{})
	if a.Shell != nil {
		s.shell(ctx, *a.Shell, c)
		return
	}
	p, carry, err := s.Programs.Reach(ctx, a.Deployment, a.Tasks)
	out := answered{Program: &p}
	if err != nil {
		out = answered{Fault: s.refusal(ctx, "program not reached for another node", a.Deployment, err)}
	}
	line, marshalErr := json.Marshal(out)
	if marshalErr != nil {
		return
	}
	_ = raw.SetWriteDeadline(time.Now().Add(greetTime))
	_, writeErr := c.Write(append(line, '\n'))
	_ = raw.SetWriteDeadline(time.Time{})
	if err != nil {
		return
	}
	if writeErr != nil {
		c.Close()
	}
	carry(c)
}

// refusal is what another node is told of an error. One that is no fault is this node's to know.
func (s *Server) refusal(ctx context.Context, what string, deployment id.Deployment, err error) *refused {
	f := fault.As(err)
	if f == nil {
		s.Log.ErrorContext(ctx, what, "deployment", deployment, "err", err)
		f = &fault.Error{
			Kind: fault.Unavailable, Message: "The program could not be started", Code: "internal_error",
			RetryAfter: 5 * time.Second,
		}
	}
	return &refused{f.Kind, f.Message, f.Details, f.Code, f.RetryAfter}
}
