package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// lastWords is how long a program may go on to answer once the other node has closed the connection.
const lastWords = 5 * time.Second

// Splice passes on what comes from a node to a program and back, until either has closed the connection. The node learns of a program
// that reset it: TLS has not ended in order then, as where a machine is gone, and what may be sent twice is sent again.
func Splice(from, program net.Conn) {
	end := func(err error) {
		if below, ok := from.(interface{ NetConn() net.Conn }); ok && errors.Is(err, syscall.ECONNRESET) {
			below.NetConn().Close()
		}
		from.Close()
		program.Close()
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	// uncaught: copies bytes
	work.Go(func() {
		_, err := io.Copy(program, from)
		half, ok := program.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			end(err)
			return
		}
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-late.C:
			end(nil)
		case <-done:
		}
	})
	_, err := io.Copy(from, program)
	close(done)
	end(err)
	work.Wait()
}

// Listen returns a listener with one connection, that ends with it.
func Listen(c net.Conn) net.Listener { return &oneConn{c: c, closed: make(chan struct{})} }

// oneConn is a listener with one connection, that ends with it.
type oneConn struct {
	mu     sync.Mutex // guards c
	c      net.Conn
	once   sync.Once
	closed chan struct{} // closed with the connection
}

func (o *oneConn) Accept() (net.Conn, error) {
	o.mu.Lock()
	c := o.c
	o.c = nil
	o.mu.Unlock()
	if c != nil {
		return &endsWith{c, o}, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *oneConn) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

func (o *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// endsWith is the connection, whose end is that of its listener.
type endsWith struct {
	net.Conn
	of *oneConn
}

func (e *endsWith) Close() error {
	defer e.of.Close()
	return e.Conn.Close()
}
