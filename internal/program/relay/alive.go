package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"slipway/internal/platform/panics"
)

const (
	askEvery = time.Second // whether a node is still there
	unused   = time.Minute // after which a node that nobody connects with is not asked any more
)

// refusedTime is how long a node may refuse connections until it is taken for silent: one that stops or starts does.
const refusedTime = 20 * time.Second

// Silent is the error of Dial while nothing is heard of the other node: a connection would be in vain.
type Silent struct {
	Since time.Time // what was heard last
	Asked time.Time // when the latest question was sent that had no answer
}

func (s *Silent) Error() string {
	return fmt.Sprintf("the other node has been silent for %s", time.Since(s.Since).Round(time.Second))
}

// Unwrap returns ErrUnreached.
func (s *Silent) Unwrap() error { return ErrUnreached }

// peer is another node, by its address. TCP alone doesn't tell one that works from one that is stopped, or has a machine between that
// acknowledges what it doesn't pass on. So the node itself is asked, over a connection of its own, for as long as there are others.
type peer struct {
	d       *Dialer
	address string

	begun time.Time
	heard atomic.Int64 // the last sign of the node, in nanoseconds since begun: its kernel alone gives none

	mu sync.Mutex // guards the rest
	// share: total the connections to other nodes; owner what its visitors have there; edge see relay.Server.open of the other node
	open    map[*line]bool
	used    time.Time // when a connection was last asked for
	asked   time.Time // see Silent
	refused bool      // the latest question was refused
}

// peer returns the node with an address, which is asked from then on.
func (d *Dialer) peer(address string) *peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[address]
	if p == nil {
		p = &peer{d: d, address: address, begun: time.Now(), open: map[*line]bool{}}
		if d.peers == nil {
			d.peers = map[string]*peer{}
		}
		d.peers[address] = p
		panics.Go(p.watch)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = time.Now()
	return p
}

func (p *peer) hears() { p.heard.Store(int64(time.Since(p.begun))) }

func (p *peer) last() time.Time { return p.begun.Add(time.Duration(p.heard.Load())) }

// silent returns an error if the node is silent.
func (p *peer) silent() error {
	heard := p.last()
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := silentTime
	if p.refused {
		limit = refusedTime
	}
	if time.Since(heard) <= limit || p.asked.Before(heard) {
		return nil
	}
	return &Silent{heard, p.asked}
}

// add has a connection end when the node is found to be silent.
func (p *peer) add(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[l] = true
}

func (p *peer) remove(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

// watch asks the node until nobody needs it.
func (p *peer) watch() {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var c net.Conn
	for range tick.C {
		if p.forgotten() {
			break
		}
		c = p.ask(c)
		if p.silent() != nil {
			p.mu.Lock()
			for l := range p.open {
				l.ended.Store(true)
				l.Conn.Close() // not TLS, which would wait for the node to take its last word
			}
			p.mu.Unlock()
		}
	}
	if c != nil {
		c.Close()
	}
}

// forgotten removes the node from the list if nobody needs it.
func (p *peer) forgotten() bool {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 || time.Since(p.used) < unused {
		return false
	}
	delete(p.d.peers, p.address)
	return true
}

// ask asks once, over c unless it is nil, and returns the connection for the next time. A version that doesn't know the question closes
// the connection, and is heard each time that it has shown its certificate.
func (p *peer) ask(c net.Conn) net.Conn {
	begun := time.Now()
	wait := min(dialTime, max(askEvery, time.Until(p.last().Add(silentTime))))
	if p.silent() != nil {
		wait = dialTime // it may be starting
	}
	ctx, done := context.WithTimeout(context.Background(), wait)
	defer done()
	err := error(nil)
	if c == nil {
		var made *tls.Conn
		if made, err = p.d.connect(ctx, p.address, nil); err == nil {
			c = made
			p.hears()
			_, err = c.Write([]byte(`{"alive":true}` + "\n"))
		}
	}
	one := []byte{'?'}
	if err == nil {
		_ = c.SetDeadline(begun.Add(wait))
		_, err = c.Write(one)
	}
	if err == nil {
		_, err = c.Read(one)
	}
	if err == nil {
		p.hears()
		return c
	}
	if c != nil {
		c.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.refused = begun, errors.Is(err, syscall.ECONNREFUSED)
	return nil
}

// alive answers the questions of another node whether this one is there, until either ends.
func (s *Server) alive(raw, c net.Conn) {
	done := make(chan struct{})
	defer close(done)
	// uncaught: waits
	go func() {
		select {
		case <-s.ends(): // nobody has to wait for the connection
			raw.Close()
		case <-done:
		}
	}()
	one := make([]byte, 1)
	for {
		_ = raw.SetDeadline(time.Now().Add(unused))
		if _, err := c.Read(one); err != nil {
			return
		}
		if _, err := c.Write(one); err != nil {
			return
		}
	}
}
