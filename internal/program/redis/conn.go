package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn is a connection to the server, before it is a program's.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// dial connects to the server within patience, which also bounds what follows until handOver.
func (s *Server) dial(ctx context.Context) (*conn, error) {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	var d net.Dialer
	plain, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain}
	if s.tls != nil {
		over := tls.Client(plain, s.tls)
		if err := over.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, err
		}
		c.Conn = over
	}
	c.r = bufio.NewReader(c.Conn)
	return c, c.SetDeadline(time.Now().Add(patience))
}

// handOver ends what bounds our own commands: from here on a program speaks.
func (c *conn) handOver() error {
	if c.r.Buffered() > 0 {
		return errors.New("the server says more than it was asked")
	}
	return c.SetDeadline(time.Time{})
}

// Refusal is what the server answers to a command that it doesn't do.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// call sends a command and returns its answer: a string, an int64, nil, or a list of these.
func (c *conn) call(words ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c.Conn, b.String()); err != nil {
		return nil, err
	}
	left := maxAnswer
	return c.answer(&left, 0)
}

// maxAnswer bounds one answer to us, in bytes.
const maxAnswer = 1 << 20

var errAnswer = errors.New("the server gives an answer that Redis doesn't give")

func (c *conn) answer(left *int, depth int) (any, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	*left -= len(line)
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || text == "" || *left < 0 || depth > 4 {
		return nil, errAnswer
	}
	kind, text := text[0], text[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, Refusal(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errAnswer
	}
	switch {
	case kind == ':':
		return n, nil
	case (kind == '$' || kind == '*') && n < 0:
		return nil, nil
	case n > int64(*left):
		return nil, errAnswer
	case kind == '$':
		*left -= int(n) + 2
		data := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, data); err != nil {
			return nil, err
		}
		return string(data[:n]), nil
	case kind == '*':
		var list []any
		for range n {
			x, err := c.answer(left, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		return list, nil
	}
	return nil, errAnswer
}
