package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// upgradeGrace is how long an upgraded connection stays open after one side has ended. Programs often don't notice the
// end: a WebSocket whose visitor left without a close frame would keep its program awake forever.
const upgradeGrace = 5 * time.Second

// Hijack serves [http.ResponseController]: it returns the connection of an upgrade, such as a WebSocket's. Requests
// that can't be upgraded have no cancel.
func (f *flowing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if f.cancel == nil {
		return nil, nil, http.ErrNotSupported
	}
	c, buf, err := f.conn.Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Time{})
	u := &upgraded{Conn: c, end: f.cancel, early: buf.Reader}
	buf.Writer.Reset(u)
	return u, buf, nil
}

// upgraded is the visitor's side of an upgraded connection. Reads have no time limit: TCP keep-alives find vanished
// visitors within about two minutes. A write that takes longer than flowTime ends the connection.
type upgraded struct {
	net.Conn
	end  func() // closes both sides
	once sync.Once
	// early has what the visitor sent behind the request, without waiting for the response.
	early *bufio.Reader
}

func (u *upgraded) Read(b []byte) (int, error) {
	if n := u.early.Buffered(); n > 0 {
		return u.early.Read(b[:min(n, len(b))])
	}
	n, err := u.Conn.Read(b)
	if err != nil {
		u.ending()
	}
	return n, err
}

func (u *upgraded) Write(b []byte) (int, error) {
	_ = u.Conn.SetWriteDeadline(time.Now().Add(flowTime))
	n, err := u.Conn.Write(b)
	if err != nil {
		u.ending()
	}
	return n, err
}

// CloseWrite tells the visitor that the program has ended its side.
func (u *upgraded) CloseWrite() error {
	u.ending()
	if c, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// ending starts the grace time of the other side.
func (u *upgraded) ending() {
	u.once.Do(func() {
		time.AfterFunc(upgradeGrace, func() {
			u.end()
			_ = u.Conn.Close()
		})
	})
}
