package database

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
	"slipway/internal/tenant/account"
)

// Client says whose programs reach databases: a site's own, or those of one of its previews.
type Client struct {
	Owner   account.OwnerID
	Site    id.Site
	Preview string // Optional: empty means the site's own. Letters and digits.
}

// way is the socket of a client, and what is connected through it.
type way struct {
	of       Client
	listener net.Listener
	dir      string
	waiting  atomic.Int64
	end      context.CancelFunc
	conns    panics.Background

	mu sync.Mutex // guards open
	// share: total 20 connections a client, each at both ends; owner the clients that run; edge the connection waits, see places
	open map[net.Conn]bool
}

// maxWaiting is how many connections of a client wait for a place before others are refused,
// and slotPatience how long they wait.
const (
	maxWaiting   = 100
	slotPatience = 10 * time.Second
)

// Socket returns the path of a client's own socket, which its sandboxes hold as Socket. It is
// open from then on, until the site is forgotten or the service stops. The server is kept
// awake until done is called.
func (d *Databases) Socket(ctx context.Context, of Client) (path string, done func(), err error) {
	s, err := d.serverFor(ctx, of.Site, of.Owner)
	if err != nil {
		return "", nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := Client{Site: of.Site, Preview: of.Preview}
	hold := s.hold
	if s == d.shared() { // which is to end: connections alone hold it
		hold = func() func() { return func() {} }
	}
	if w := d.ways[key]; w != nil && w.of == of {
		return filepath.Join(w.dir, "mysqld.sock"), hold(), nil
	} else if w != nil { // the site is another owner's now
		delete(d.ways, key)
		// uncaught: closes
		go w.close()
	}
	// Each socket has a directory of its own: the one before is removed when its last connection has ended, which may be later.
	dir, err := os.MkdirTemp(d.sockets(), filepath.Base(string(of.Site))+"."+filepath.Base(of.Preview)+".")
	if err != nil {
		return "", nil, fmt.Errorf("open socket of databases: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", nil, errors.Join(fmt.Errorf("open socket of databases: %w", err), os.Remove(dir))
	}
	l, path, err := sandbox.Listen(dir, "mysqld.sock")
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, end := context.WithCancel(context.Background())
	w := &way{of: of, listener: l, dir: dir, end: end, open: map[net.Conn]bool{}}
	d.ways[key] = w
	w.conns.Go(func() { w.serve(ctx, d) })
	return path, hold(), nil
}

// CloseSocket closes the sockets of a site and its previews; the next Socket opens another.
func (d *Databases) CloseSocket(site id.Site) { d.closeWays(site) }

// closeWays closes the sockets of a site, or all where none is named.
func (d *Databases) closeWays(site id.Site) {
	var list []*way
	d.mu.Lock()
	for key, w := range d.ways {
		if site == "" || key.Site == site {
			list = append(list, w)
			delete(d.ways, key)
		}
	}
	d.mu.Unlock()
	for _, w := range list {
		w.close()
	}
}

// tellAll writes a line into the log of every site that has a way to the server.
func (d *Databases) tellAll(s *server, text string) {
	told := map[id.Site]bool{}
	d.mu.Lock()
	for _, w := range d.ways {
		if s.owner == "" || s.owner == w.of.Owner {
			told[w.of.Site] = true
		}
	}
	d.mu.Unlock()
	for site := range told {
		d.c.Logs.Note(site, text)
	}
}

// closeTo ends an owner's connections, and lets new ones wait until done is called.
func (d *Databases) closeTo(owner account.OwnerID) (done func()) {
	open := make(chan struct{})
	var list []*way
	d.mu.Lock()
	d.closed[owner] = open
	for _, w := range d.ways {
		if w.of.Owner == owner {
			list = append(list, w)
		}
	}
	d.mu.Unlock()
	for _, w := range list {
		w.mu.Lock()
		for c := range w.open {
			_ = c.Close()
		}
		w.mu.Unlock()
	}
	return func() {
		d.mu.Lock()
		delete(d.closed, owner)
		d.mu.Unlock()
		close(open)
	}
}

// opened waits while an owner's databases are being moved.
func (d *Databases) opened(ctx context.Context, owner account.OwnerID) error {
	d.mu.Lock()
	open := d.closed[owner]
	d.mu.Unlock()
	if open == nil {
		return nil
	}
	timer := time.NewTimer(wakePatience)
	defer timer.Stop()
	select {
	case <-open:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stays reports whether an owner's databases are still on a server, and not being moved.
func (d *Databases) stays(ctx context.Context, s *server, owner account.OwnerID) bool {
	if d.shared() != s {
		return true
	}
	d.mu.Lock()
	moving := d.closed[owner] != nil
	d.mu.Unlock()
	now, err := d.serverOf(ctx, owner)
	return !moving && err == nil && now == s
}

func (w *way) close() {
	w.end()
	_ = w.listener.Close()
	w.conns.Wait()
	_ = os.RemoveAll(w.dir)
}

func (w *way) serve(ctx context.Context, d *Databases) {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			time.Sleep(5 * time.Millisecond) // out of descriptors: others must close some first
			continue
		}
		// share: total 100 a client; owner the clients that run; edge refused: too many connections
		if w.waiting.Add(1) > maxWaiting {
			w.waiting.Add(-1)
			refuse(c, 1040, "Too many connections")
			continue
		}
		w.conns.Go(func() { w.carry(ctx, d, c) })
	}
}

// carry takes one connection to the server, waiting for a place and for the server.
func (w *way) carry(ctx context.Context, d *Databases, c net.Conn) {
	defer c.Close()
	s, release, err := w.admit(ctx, d)
	w.waiting.Add(-1)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && s != nil:
		refuse(c, 1040, fmt.Sprintf("Too many connections: this site may have %d at once", d.c.Connections))
		return
	case err != nil:
		refuse(c, 1053, "The database server is not available")
		return
	}
	defer release()
	defer s.hold()()
	up, err := s.reach(ctx)
	if err != nil {
		refuse(c, 1053, "The database server is not available")
		return
	}
	defer up.Close()
	if s.outside != nil && s.outside.TLS != nil {
		plain := up
		stop := context.AfterFunc(ctx, func() { c.Close(); plain.Close() })
		over, err := secure(ctx, c, plain, s.outside.TLS)
		stop()
		if err != nil {
			// Programs can bring this about as often as they like; whether the server itself answers, runOutside says.
			s.log.DebugContext(ctx, "a program didn't reach the database server", "site", w.of.Site, "err", err)
			return
		}
		up = over
	}
	stop := context.AfterFunc(ctx, func() { c.Close(); up.Close() })
	defer stop()
	w.mu.Lock()
	w.open[c], w.open[up] = true, true
	w.mu.Unlock()
	if !d.stays(ctx, s, w.of.Owner) { // the client connects again
		c.Close()
		up.Close()
	}
	defer func() {
		w.mu.Lock()
		delete(w.open, c)
		delete(w.open, up)
		w.mu.Unlock()
	}()
	done := make(chan struct{})
	// uncaught: copies bytes
	go func() {
		defer close(done)
		_, _ = io.Copy(up, c)
		if u, ok := up.(interface{ CloseWrite() error }); ok {
			_ = u.CloseWrite()
		}
	}()
	_, _ = io.Copy(c, up) // it ends when the server does, whatever the client
	c.Close()
	<-done
}

// admit waits for a connection's place on the server that holds the client's databases. After
// an error the server is nil where there is none.
func (w *way) admit(ctx context.Context, d *Databases) (*server, func(), error) {
	if err := d.opened(ctx, w.of.Owner); err != nil {
		return nil, nil, err
	}
	s, err := d.serverFor(ctx, w.of.Site, w.of.Owner)
	if err != nil {
		return nil, nil, err
	}
	wait, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	release, err := s.places.Take(wait, fair.Who{Owner: string(w.of.Owner), Site: string(w.of.Site) + "." + w.of.Preview})
	return s, release, err
}

// refuse tells a client in its own protocol why it is not let in.
func refuse(c net.Conn, code uint16, text string) {
	p := append([]byte{0, 0, 0, 0, 0xff, 0, 0}, text...)
	p[0] = byte(len(p) - 4)
	binary.LittleEndian.PutUint16(p[5:], code)
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(p)
	_ = c.Close()
}
