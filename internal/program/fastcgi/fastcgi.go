// Package fastcgi owns the client's side of FastCGI: one request to a responder such as
// PHP-FPM over a connection of its own, streamed both ways.
//
// Do writes the request while the answer is read, so neither side has to take all of the
// other's bytes before it begins. The responder runs somebody else's code and counts as
// hostile: the head of its answer is bounded in bytes and fields, what it writes to its
// error stream is bounded and dropped, and an answer that ends without the protocol's own
// end is an error, never a short answer. A connection carries one request:
// a responder's worker is bound to the connection that it has accepted, so an idle one that
// is kept would keep a worker from everybody else.
//
// The package knows no PHP, no files and no sandbox.
package fastcgi

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Param is a variable of a request's environment: SCRIPT_FILENAME, HTTP_HOST, …
type Param struct{ Name, Value string }

// Request holds what a responder is asked.
type Request struct {
	Params []Param
	Body   io.Reader // Optional: nil sends none. It is read until its end or until the answer is closed.
	Head   bool      // the answer has no body, whatever its Content-Length
}

// The most of an answer's head, and of what else a responder may send beside its answer, in
// bytes.
const (
	maxHead  = 32 << 10
	maxParam = 256 << 10
	maxAside = 8 << 20
)

// The types of records that are sent or understood.
const (
	typeBegin  = 1
	typeEnd    = 3
	typeParams = 4
	typeStdin  = 5
	typeStdout = 6
	typeStderr = 7
)

const (
	version    = 1
	responder  = 1
	requestID  = 1
	headerSize = 8
	maxContent = 65528 // of a record that is sent: a multiple of eight needs no padding
)

// ErrProtocol is the error of an answer that is not FastCGI, or not an answer.
var ErrProtocol = errors.New("the FastCGI answer is malformed")

// ErrOverloaded is the error where the responder says that it takes no more requests.
var ErrOverloaded = errors.New("the FastCGI responder is overloaded")

// Do sends q over c and returns the answer once its head has come. c is closed with the
// answer's body, or before an error is returned; the end of ctx closes it too.
func Do(ctx context.Context, c net.Conn, q Request) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	x := &exchange{conn: c, stop: stop, in: bufio.NewReaderSize(c, 16<<10)}
	if err := x.begin(q.Params); err != nil {
		x.close()
		return nil, x.why(ctx, fmt.Errorf("send request: %w", err))
	}
	x.sent = make(chan struct{})
	// uncaught: copies bytes
	go func() {
		defer close(x.sent)
		x.sendBody(q.Body)
	}()
	resp, err := x.head(q.Head)
	if err != nil {
		x.close()
		return nil, x.why(ctx, fmt.Errorf("read answer: %w", err))
	}
	return resp, nil
}

// exchange is one request and its answer.
type exchange struct {
	conn net.Conn
	stop func() bool
	in   *bufio.Reader
	sent chan struct{} // closed when nothing is sent any more; nil before

	left  int // bytes of the current record that belong to the answer
	pad   int // and what follows them
	aside int // bytes of other records so far
	ended bool

	once sync.Once
}

func (x *exchange) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (x *exchange) close() {
	x.once.Do(func() {
		x.stop()
		_ = x.conn.Close()
	})
}

func record(b []byte, kind byte, content []byte) []byte {
	pad := -len(content) & 7
	b = append(b, version, kind, 0, requestID)
	b = binary.BigEndian.AppendUint16(b, uint16(len(content)))
	b = append(b, byte(pad), 0)
	b = append(b, content...)
	return append(b, make([]byte, pad)...)
}

func appendSize(b []byte, n int) []byte {
	if n < 128 {
		return append(b, byte(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n)|1<<31)
}

// begin sends the request's environment. It is short enough for a socket's buffer, mostly,
// and a responder that doesn't read it gets no request.
func (x *exchange) begin(params []Param) error {
	var p []byte
	for _, v := range params {
		p = appendSize(p, len(v.Name))
		p = appendSize(p, len(v.Value))
		p = append(p, v.Name...)
		p = append(p, v.Value...)
		if len(p) > maxParam {
			return errors.New("the request's environment is too large")
		}
	}
	b := make([]byte, 0, len(p)+64)
	b = record(b, typeBegin, []byte{0, responder, 0, 0, 0, 0, 0, 0})
	for len(p) > 0 {
		n := min(len(p), maxContent)
		b = record(b, typeParams, p[:n])
		p = p[n:]
	}
	b = record(b, typeParams, nil)
	_ = x.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := x.conn.Write(b); err != nil {
		return err
	}
	_ = x.conn.SetWriteDeadline(time.Time{})
	return nil
}

// sendBody sends what the request carries. A responder may answer and leave without having
// read it; the answer says how that went. A body that breaks off ends the connection: half
// a request must not look like a whole one.
func (x *exchange) sendBody(body io.Reader) {
	if body == nil {
		_, _ = x.conn.Write(record(nil, typeStdin, nil))
		return
	}
	buf := make([]byte, 32<<10)
	out := make([]byte, 0, len(buf)+headerSize+8)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			out = record(out[:0], typeStdin, buf[:n])
			if _, err := x.conn.Write(out); err != nil {
				return
			}
		}
		if err == io.EOF {
			_, _ = x.conn.Write(record(nil, typeStdin, nil))
			return
		}
		if err != nil {
			x.close()
			return
		}
	}
}

// Read reads the responder's output stream: what follows its head is the answer's body.
func (x *exchange) Read(p []byte) (int, error) {
	for x.left == 0 {
		if x.ended {
			return 0, io.EOF
		}
		if err := x.next(); err != nil {
			return 0, err
		}
	}
	n, err := x.in.Read(p[:min(len(p), x.left)])
	x.left -= n
	if n > 0 {
		err = nil
	}
	return n, unexpected(err)
}

// next reads the header of the next record, and all of it where it isn't the answer's.
func (x *exchange) next() error {
	if _, err := x.in.Discard(x.pad); err != nil {
		return unexpected(err)
	}
	x.pad = 0
	var h [headerSize]byte
	if _, err := io.ReadFull(x.in, h[:]); err != nil {
		return unexpected(err)
	}
	id, size, pad := binary.BigEndian.Uint16(h[2:]), int(binary.BigEndian.Uint16(h[4:])), int(h[6])
	if h[0] != version {
		return ErrProtocol
	}
	if h[1] == typeStdout && id == requestID && size > 0 {
		x.left, x.pad = size, pad
		return nil
	}
	if x.aside += headerSize + size + pad; x.aside > maxAside {
		return fmt.Errorf("%w: too much beside the answer", ErrProtocol)
	}
	switch {
	case h[1] == typeEnd && id == requestID:
		if size != 8 {
			return ErrProtocol
		}
		var end [8]byte
		if _, err := io.ReadFull(x.in, end[:]); err != nil {
			return unexpected(err)
		}
		x.ended = true
		switch end[4] {
		case 0:
			return nil
		case 1, 2:
			return ErrOverloaded
		}
		return ErrProtocol
	}
	_, err := x.in.Discard(size + pad)
	return unexpected(err)
}

// unexpected is err where a record has to follow: the end of the connection is none.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
