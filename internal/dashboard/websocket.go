package dashboard

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// socket is one WebSocket, at the server's end (RFC 6455), without extensions.
type socket struct {
	conn net.Conn
	r    *bufio.Reader

	mu     sync.Mutex // guards writes and what follows
	closed bool       // the closing frame was sent
}

// The opcodes of frames (RFC 6455, section 11.8).
const (
	opContinue = 0x0
	opText     = 0x1
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xA
)

// Codes of a closing frame (section 7.4.1); those from 4000 on are ours.
const (
	closeNormal   = 1000
	closeProtocol = 1002
	closeText     = 1007
	closeTooLarge = 1009
	closeRefused  = 4000
)

// maxMessage is the most bytes of a message of a browser's.
const maxMessage = 64 << 10

// wantsSocket reports whether a request opens a WebSocket (section 4.2.1).
func wantsSocket(r *http.Request) bool {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	return r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && err == nil && len(key) == 16
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// ownOrigin reports whether a page of this dashboard sends the request. Browsers send Origin
// with every WebSocket; what comes without is refused.
func (d *Dashboard) ownOrigin(r *http.Request) bool {
	list := r.Header["Origin"]
	if len(list) != 1 {
		return false
	}
	at, err := url.Parse(list[0])
	if err != nil || at.Host == "" {
		return false
	}
	if base, err := url.Parse(d.BaseURL); err == nil && at.Scheme == base.Scheme && strings.EqualFold(at.Host, base.Host) {
		return true
	}
	return strings.EqualFold(at.Host, r.Host) && (r.TLS == nil || at.Scheme == "https")
}

// accept answers a request that wantsSocket with a WebSocket.
func accept(w http.ResponseWriter, r *http.Request) (*socket, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("open WebSocket: %w", err)
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_ = conn.SetDeadline(time.Now().Add(sendTime))
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open WebSocket: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return &socket{conn: conn, r: rw.Reader}, nil
}

// protocolError is what a browser did wrong, with the code that tells it.
type protocolError struct {
	code int
	text string
}

func (e *protocolError) Error() string { return e.text }

// receive returns the next message and whether it is text. It answers pings. io.EOF is a
// proper end.
func (s *socket) receive() (text bool, data []byte, err error) {
	begun := false
	for {
		op, fin, part, err := s.frame(maxMessage - len(data))
		if err != nil {
			return false, nil, err
		}
		switch op {
		case opPing:
			if err := s.send(opPong, part); err != nil {
				return false, nil, err
			}
			continue
		case opPong:
			continue
		case opClose:
			return false, nil, io.EOF
		case opText, opBinary:
			if begun {
				return false, nil, &protocolError{closeProtocol, "a message began inside another"}
			}
			begun, text = true, op == opText
		case opContinue:
			if !begun {
				return false, nil, &protocolError{closeProtocol, "a message went on that had not begun"}
			}
		default:
			return false, nil, &protocolError{closeProtocol, "unknown kind of frame"}
		}
		data = append(data, part...)
		if !fin {
			continue
		}
		if text && !utf8.Valid(data) {
			return false, nil, &protocolError{closeText, "text is not UTF-8"}
		}
		return text, data, nil
	}
}

// frame reads one frame (section 5.2) of at most so many bytes.
func (s *socket) frame(most int) (op byte, fin bool, data []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(s.r, head[:2]); err != nil {
		return 0, false, nil, err
	}
	op, fin = head[0]&0x0f, head[0]&0x80 != 0
	size := uint64(head[1] & 0x7f)
	switch {
	case head[0]&0x70 != 0:
		return 0, false, nil, &protocolError{closeProtocol, "no extension was agreed on"}
	case head[1]&0x80 == 0:
		return 0, false, nil, &protocolError{closeProtocol, "frame is not masked"}
	case op >= opClose && (!fin || size > 125):
		return 0, false, nil, &protocolError{closeProtocol, "control frame in parts"}
	}
	switch size {
	case 126:
		if _, err := io.ReadFull(s.r, head[:2]); err != nil {
			return 0, false, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(head[:2]))
	case 127:
		if _, err := io.ReadFull(s.r, head[:8]); err != nil {
			return 0, false, nil, err
		}
		size = binary.BigEndian.Uint64(head[:8])
	}
	if op < opClose && size > uint64(max(0, most)) {
		return 0, false, nil, &protocolError{closeTooLarge, "message is too large"}
	}
	var mask [4]byte
	if _, err := io.ReadFull(s.r, mask[:]); err != nil {
		return 0, false, nil, err
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(s.r, data); err != nil {
		return 0, false, nil, err
	}
	for i := range data {
		data[i] ^= mask[i&3]
	}
	return op, fin, data, nil
}

var errSocketClosed = errors.New("the WebSocket is closed")

// send sends one frame.
func (s *socket) send(op byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errSocketClosed
	}
	s.closed = op == opClose
	head := append(make([]byte, 0, 10), 0x80|op)
	switch n := len(data); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(sendTime))
	_, err := (&net.Buffers{head, data}).WriteTo(s.conn)
	return err
}

// How long the browser's end of a WebSocket that we close is waited for, and how much of what
// it still sends is read meanwhile: with bytes left unread the close itself would be lost.
const (
	closeTime = 2 * time.Second
	closeRead = 1 << 20
)

// close ends the WebSocket with a reason that the page shows. Nobody may be in receive.
func (s *socket) close(code int, reason string) {
	for len(reason) > 123 || !utf8.ValidString(reason) {
		reason = strings.ToValidUTF8(reason[:min(len(reason), 123)], "")
	}
	if s.send(opClose, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)) == nil {
		_ = s.conn.SetReadDeadline(time.Now().Add(closeTime))
		if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		_, _ = io.CopyN(io.Discard, s.r, closeRead)
	}
	_ = s.conn.Close()
}
