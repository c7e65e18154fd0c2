package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// passed holds sockets from systemd that no setting has claimed yet.
type passed struct {
	streams   []net.Listener
	datagrams []net.PacketConn
}

// takeOver makes listeners of the sockets and closes the files, since listeners duplicate them.
func takeOver(files []*os.File) (*passed, error) {
	p := &passed{}
	var errs []error
	for _, f := range files {
		if l, err := net.FileListener(f); err == nil {
			p.streams = append(p.streams, l)
		} else if c, err := net.FilePacketConn(f); err == nil {
			p.datagrams = append(p.datagrams, c)
		} else {
			errs = append(errs, fmt.Errorf("a socket that systemd passes is of no use here: %w", err))
		}
		f.Close()
	}
	return p, errors.Join(errs...)
}

// stream returns the socket on the port of addr, or nil.
func (p *passed) stream(addr string) net.Listener {
	for i, l := range p.streams {
		if samePort(l.Addr(), addr) {
			p.streams = append(p.streams[:i], p.streams[i+1:]...)
			return l
		}
	}
	return nil
}

// packets returns the UDP socket on the port of addr, or nil.
func (p *passed) packets(addr string) net.PacketConn {
	for i, c := range p.datagrams {
		if samePort(c.LocalAddr(), addr) {
			p.datagrams = append(p.datagrams[:i], p.datagrams[i+1:]...)
			return c
		}
	}
	return nil
}

// samePort reports whether addr has the port of got. The socket unit decides which of the machine's addresses a socket
// is bound to.
func samePort(got net.Addr, addr string) bool {
	_, is, err := net.SplitHostPort(got.String())
	if err != nil {
		return false // a Unix socket
	}
	_, want, err := net.SplitHostPort(addr)
	return err == nil && want == is
}

// rest returns an error if no setting claimed a socket: connections to it would wait forever.
func (p *passed) rest() error {
	for _, l := range p.streams {
		return fmt.Errorf("systemd passes a socket on %s, but no setting says that Slipway listens there", l.Addr())
	}
	for _, c := range p.datagrams {
		return fmt.Errorf("systemd passes a UDP socket on %s, but no setting says that Slipway listens there", c.LocalAddr())
	}
	return nil
}

func (p *passed) close() {
	for _, l := range p.streams {
		l.Close()
	}
	for _, c := range p.datagrams {
		c.Close()
	}
}
