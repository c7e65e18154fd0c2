package fastpath

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/internal/platform/panics"
)

// lane is an in-memory connection on which net/http answers requests that aren't plain. Stream numbers are the same on
// both sides. Each stream's window is the client's; this package manages the connection's window, which our own
// responses share. No header block uses the dynamic table of HPACK, so blocks of net/http and ours fit into one
// connection.
type lane struct {
	conn net.Conn

	mu  sync.Mutex // serializes sending
	buf bytes.Buffer
	enc *hpack.Encoder
}

// bodyWindow is how much of a request body a client may send before it is read, as in net/http.
const bodyWindow = 1 << 20

// detour sends a request to the lane, opening it if needed. done is called when the request has ended. The caller holds
// h.mu.
func (h *h2) detour(id uint32, end bool, done func()) error {
	h.streams[id] = &stream{id: id, window: h.initial, lane: true, sent: end, done: done}
	if h.lane == nil {
		l, err := h.openLane()
		if err != nil {
			return err
		}
		h.lane = l
	}
	return h.lane.headers(id, h.fields, end)
}

func (h *h2) openLane() (*lane, error) {
	ours, theirs := net.Pipe()
	l := &lane{conn: ours}
	l.enc = hpack.NewEncoder(&l.buf)
	l.enc.SetMaxDynamicTableSize(0)
	give := &handed{Conn: memory{theirs, h.raw.LocalAddr(), h.raw.RemoteAddr()}, state: h.state}
	h.s.toH2.give(give)
	b := []byte(http2.ClientPreface)
	settings := []http2.Setting{{ID: http2.SettingHeaderTableSize, Val: 0}, {ID: http2.SettingEnablePush, Val: 0}}
	for id, v := range h.settings {
		settings = append(settings, http2.Setting{ID: id, Val: v})
	}
	b = appendHead(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	b = appendUint32(b, http2.FrameWindowUpdate, 0, maxWindow-65535)
	if err := l.send(b); err != nil {
		return nil, err
	}
	panics.Go(func() { defer l.conn.Close(); h.pump(l) })
	return l, nil
}

// laneTime is how long net/http may take to read a frame from memory.
const laneTime = 30 * time.Second

// send writes complete frames.
func (l *lane) send(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(b)
}

func (l *lane) write(b []byte) error {
	l.conn.SetWriteDeadline(time.Now().Add(laneTime))
	_, err := l.conn.Write(b)
	return err
}

// headers sends a header block.
func (l *lane) headers(id uint32, fields []hpack.HeaderField, end bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
	for _, f := range fields {
		if err := l.enc.WriteField(f); err != nil {
			return err
		}
	}
	return l.write(appendBlock(nil, id, l.buf.Bytes(), end))
}

// pump copies net/http's responses to the client.
func (h *h2) pump(l *lane) {
	in := bufio.NewReaderSize(l.conn, 32<<10)
	err := h.pumpFrames(l, in)
	h.mu.Lock()
	if h.lane == l && !h.over {
		if err == io.EOF && h.goingAway {
			err = nil // both sides have said GOAWAY
		}
		if err != nil || len(h.streams) > 0 {
			h.goAway(http2.ErrCodeInternal)
		}
		_ = h.flush()
	}
	h.over = true
	h.more.Broadcast()
	h.mu.Unlock()
	l.conn.Close()
	h.wake()
}

func (h *h2) pumpFrames(l *lane, in *bufio.Reader) error {
	head := make([]byte, frameHead)
	var block []byte
	var blockFlags http2.Flags
	var taken uint32 // used part of the lane's connection window
	buf := make([]byte, maxFrame)
	for {
		if in.Buffered() < frameHead { // no more for now; send the batch
			h.mu.Lock()
			err := h.flush()
			ended := h.goingAway && len(h.streams) == 0
			h.mu.Unlock()
			if err != nil {
				return err
			}
			if ended {
				h.wake()
			}
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags, id := http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:])&maxWindow
		if n > maxFrame {
			return connError(http2.ErrCodeInternal)
		}
		p := buf[:n]
		if _, err := io.ReadFull(in, p); err != nil {
			return err
		}
		switch kind {
		case http2.FrameSettings:
			if flags&http2.FlagSettingsAck == 0 {
				if err := l.send(appendHead(nil, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)); err != nil {
					return err
				}
			}
		case http2.FramePing:
			if flags&http2.FlagPingAck == 0 {
				if err := l.send(append(appendHead(nil, 8, http2.FramePing, http2.FlagPingAck, 0), p...)); err != nil {
					return err
				}
			}
		case http2.FrameGoAway:
			if len(p) < 8 {
				return connError(http2.ErrCodeInternal)
			}
			h.mu.Lock()
			h.goAway(http2.ErrCode(binary.BigEndian.Uint32(p[4:])))
			h.mu.Unlock()
		case http2.FrameWindowUpdate:
			h.mu.Lock()
			if id == 0 || h.streams[id] != nil {
				h.out = append(append(h.out, head...), p...)
			}
			h.mu.Unlock()
		case http2.FrameRSTStream:
			h.mu.Lock()
			if s := h.streams[id]; s != nil {
				h.forget(s)
				h.rst(id, http2.ErrCode(binary.BigEndian.Uint32(p)))
			}
			h.mu.Unlock()
		case http2.FrameHeaders, http2.FrameContinuation:
			if kind == http2.FrameHeaders {
				block, blockFlags = block[:0], flags
			}
			block = append(block, p...)
			if flags&http2.FlagHeadersEndHeaders == 0 {
				continue
			}
			h.mu.Lock()
			if s := h.streams[id]; s != nil {
				end := blockFlags&http2.FlagHeadersEndStream != 0
				send := block
				if len(h.out) > outSize*3/4 { // a slow client holds at most one batch, however many requests it sends
					if err := h.flush(); err != nil {
						h.mu.Unlock()
						return err
					}
				}
				if h.resize {
					h.resize = false
					send = append([]byte{0x20}, block...)
				}
				h.out = appendBlock(h.out, id, send, end)
				h.answered(s, end)
			}
			h.mu.Unlock()
		case http2.FrameData:
			if err := h.pumpData(id, p, flags&http2.FlagDataEndStream != 0); err != nil {
				return err
			}
			taken += uint32(n)
			if taken > 1<<29 {
				if err := l.send(appendUint32(nil, http2.FrameWindowUpdate, 0, taken)); err != nil {
					return err
				}
				taken = 0
			}
		}
	}
}

// pumpData sends a part of a response as far as the connection's window allows.
func (h *h2) pumpData(id uint32, p []byte, end bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		s := h.streams[id]
		if s == nil {
			h.stalled = false
			return nil // the client has reset the stream
		}
		if len(p) > 0 && h.window <= 0 {
			if err := h.flush(); err != nil {
				return err
			}
			if !h.stalled { // window updates of a few bytes don't reset the timeout
				h.stalled, h.waiting = true, time.Now()
				h.wake() // the reader checks the timeout
			}
			for h.window <= 0 && !h.over && !s.gone {
				h.more.Wait()
			}
			if h.over {
				return errOver
			}
			continue
		}
		h.buffer()
		if len(h.out) > outSize*3/4 {
			if err := h.flush(); err != nil {
				return err
			}
			h.buffer()
		}
		n := int(min(int64(len(p)), max(h.window, 0), int64(outSize-len(h.out)-frameHead)))
		last := end && n == len(p)
		var flags http2.Flags
		if last {
			flags = http2.FlagDataEndStream
		}
		h.out = append(appendHead(h.out, n, http2.FrameData, flags, id), p[:n]...)
		h.window -= int64(n)
		h.useful.Add(int64(n))
		p = p[n:]
		if len(p) == 0 {
			h.stalled = false
			h.answered(s, last)
			return h.flushLarge()
		}
	}
}

// answered records that net/http has ended its side of a stream. The caller holds h.mu.
func (h *h2) answered(s *stream, end bool) {
	if end && s.sent {
		h.forget(s)
	}
}
