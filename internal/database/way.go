package database

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/sandbox"
)

// way is the socket of one site, and what is connected through it.
type way struct {
	listener net.Listener
	dir      string
	slots    chan struct{}
	waiting  atomic.Int64
	end      context.CancelFunc
	conns    sync.WaitGroup
}

// maxWaiting is how many connections of a site wait for a place before others are refused,
// and slotPatience how long they wait.
const (
	maxWaiting   = 100
	slotPatience = 10 * time.Second
)

// Socket returns the path of the site's own socket, which its sandboxes hold as Socket. It
// is open from then on, until the site is forgotten or the service stops.
func (d *Databases) Socket(site string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.ways[site]; w != nil {
		return filepath.Join(w.dir, "mysqld.sock"), nil
	}
	dir := filepath.Join(d.sockets(), filepath.Base(site))
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("open socket of databases: %w", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", fmt.Errorf("open socket of databases: %w", err)
	}
	l, path, err := sandbox.Listen(dir, "mysqld.sock")
	if err != nil {
		return "", err
	}
	ctx, end := context.WithCancel(context.Background())
	w := &way{listener: l, dir: dir, slots: make(chan struct{}, d.c.Connections), end: end}
	d.ways[site] = w
	w.conns.Go(func() { w.serve(ctx, d.server) })
	return path, nil
}

// CloseSocket closes a site's socket; the next Socket opens another.
func (d *Databases) CloseSocket(site string) { d.closeWay(site) }

func (d *Databases) closeWay(site string) {
	d.mu.Lock()
	w := d.ways[site]
	delete(d.ways, site)
	d.mu.Unlock()
	if w != nil {
		w.close()
	}
}

func (d *Databases) closeWays() {
	d.mu.Lock()
	list := d.ways
	d.ways = map[string]*way{}
	d.mu.Unlock()
	for _, w := range list {
		w.close()
	}
}

// tellAll writes a line into the log of every site that has a way to the server.
func (d *Databases) tellAll(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for site := range d.ways {
		d.c.Say(site, text)
	}
}

func (w *way) close() {
	w.end()
	_ = w.listener.Close()
	w.conns.Wait()
	_ = os.RemoveAll(w.dir)
}

func (w *way) serve(ctx context.Context, s *server) {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			time.Sleep(5 * time.Millisecond) // out of descriptors: others must close some first
			continue
		}
		if w.waiting.Load() >= maxWaiting {
			refuse(c, 1040, "Too many connections")
			continue
		}
		w.waiting.Add(1)
		w.conns.Go(func() { w.carry(ctx, s, c) })
	}
}

// carry takes one connection to the server, waiting for a place and for the server.
func (w *way) carry(ctx context.Context, s *server, c net.Conn) {
	defer c.Close()
	ok := func() bool {
		defer w.waiting.Add(-1)
		timer := time.NewTimer(slotPatience)
		defer timer.Stop()
		select {
		case w.slots <- struct{}{}:
			return true
		case <-timer.C:
			refuse(c, 1040, fmt.Sprintf("Too many connections: this site may have %d at once", cap(w.slots)))
		case <-ctx.Done():
		}
		return false
	}()
	if !ok {
		return
	}
	defer func() { <-w.slots }()
	up, err := s.reach(ctx)
	if err != nil {
		refuse(c, 1053, "The database server is not available")
		return
	}
	defer up.Close()
	stop := context.AfterFunc(ctx, func() { c.Close(); up.Close() })
	defer stop()
	done := make(chan struct{})
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

// reach dials the server, once it is up.
func (s *server) reach(ctx context.Context) (net.Conn, error) {
	for range 50 {
		if _, err := s.admin(ctx); err != nil {
			return nil, err
		}
		c, err := s.dial(ctx)
		if err == nil {
			return c, nil
		}
		select { // it has just ended, and who watches it will see that
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, os.ErrDeadlineExceeded
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
