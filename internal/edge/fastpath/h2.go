package fastpath

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is an HTTP/2 connection. One goroutine reads frames and answers plain requests; a
// second one, if there is a lane, brings what net/http answers to the others.
type h2 struct {
	*conn
	in       *[]byte
	n        int // bytes of in
	dec      *hpack.Decoder
	fields   []hpack.HeaderField
	held     *headerBytes // of the requests under way
	size     int          // of fields
	block    []byte
	open     uint32 // the stream whose header block is unfinished, or 0
	openEnd  bool   // and whether it ends the stream
	pieces   int    // CONTINUATION frames of that block
	lane     *lane
	overhead int64        // bytes of frames that led to nothing
	useful   atomic.Int64 // bytes of those that led to something
	resets   int
	pinged   bool
	asked    bool      // a request has come since active was set
	active   time.Time // when a request was under way last
	late     time.Time // when the frame or header block that has begun must be here
	first    [512]byte // what a connection that waits reads into
	buf      []byte    // for what must be bytes for a moment
	tagBuf   []byte    // for an entity tag

	mu      sync.Mutex // guards the rest, and writing
	more    sync.Cond  // a window has grown, or a stream or the connection is over
	out     []byte
	outBuf  *[]byte   // what out lies in, if it is large
	stalled bool      // an answer of net/http waits for the connection's window
	waiting time.Time // since when
	window  int64     // of the connection
	initial int64     // window of a new stream
	// share: none, one connection's
	settings map[http2.SettingID]uint32
	resize   bool // the next header block begins with a change of the table's size
	// share: none, one connection's: as many streams as its settings allow
	streams    map[uint32]*stream
	lingering  int        // requests that Hosts.Pass still has though their streams are over
	reset      [16]uint32 // streams that were ended by us, lately
	resetNext  int
	pending    []*stream // answers of ours that wait for a window
	lastStream uint32
	ignored    uint32 // the last stream that came after goingAway
	goingAway  bool
	over       bool
	flushing   bool // somebody is about to send the batch
}

// stream is a request under way.
type stream struct {
	id     uint32
	window int64     // for answers of ours
	body   []byte    // what is left of it
	late   time.Time // when it must have been sent
	lane   bool      // net/http answers it
	passed bool      // Hosts.Pass does
	more   bool      // of that answer's body than what is here
	left   int64     // of that request's body, which is in body until all of it has come
	sent   bool      // by the client: all of the request
	gone   bool
	done   func() // ends the count of what it holds; nil for answers of ours
}

// connError ends a connection (RFC 9113, section 5.4.1).
type connError http2.ErrCode

func (e connError) Error() string { return http2.ErrCode(e).String() }

var errOver = errors.New("the connection is over")

// newH2 returns an HTTP/2 connection that may be drained at once. Its settings are the
// first that is sent.
func newH2(c *conn) *h2 {
	h := &h2{
		conn:     c,
		window:   65535,
		initial:  65535,
		streams:  map[uint32]*stream{},
		held:     newHeaderBytes(c.s.headers, c.raw.RemoteAddr()),
		settings: map[http2.SettingID]uint32{},
	}
	h.more.L = &h.mu
	h.dec = hpack.NewDecoder(4096, h.emit)
	h.dec.SetMaxStringLength(maxFields)
	settings := []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		{ID: http2.SettingInitialWindowSize, Val: bodyWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(max(c.s.HTTP.MaxHeaderBytes, 4096))},
	}
	h.out = appendHead(h.out, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		h.out = binary.BigEndian.AppendUint16(h.out, uint16(s.ID))
		h.out = binary.BigEndian.AppendUint32(h.out, s.Val)
	}
	drain := h.startDrain
	c.onDrain.Store(&drain)
	return h
}

// serve serves the connection until it ends.
func (h *h2) serve() {
	c := h.conn
	err := h.run()
	h.mu.Lock()
	var code connError
	if errors.As(err, &code) {
		h.goAway(http2.ErrCode(code))
	}
	h.over = true
	h.more.Broadcast()
	for _, s := range h.streams {
		h.forget(s)
	}
	told := h.goingAway
	h.mu.Unlock()
	if h.lane != nil {
		h.lane.conn.Close()
	}
	if h.in != nil {
		ins.Put(h.in)
	}
	c.end(told)
}

// run reads frames until the connection ends.
func (h *h2) run() error {
	h.in = ins.Get().(*[]byte)
	h.raw.SetReadDeadline(time.Now().Add(h.s.HeaderTime))
	for h.n < len(http2.ClientPreface) {
		n, err := h.tls.Read((*h.in)[h.n:])
		h.n += n
		if n == 0 && err != nil {
			return err
		}
		if got := min(h.n, len(http2.ClientPreface)); string((*h.in)[:got]) != http2.ClientPreface[:got] {
			return connError(http2.ErrCodeProtocol)
		}
	}
	at := len(http2.ClientPreface)
	first := true
	for {
		for {
			f, ok, long := readFrame((*h.in)[at:h.n])
			if long {
				return connError(http2.ErrCodeFrameSize)
			}
			if !ok {
				break
			}
			if first && (f.kind != http2.FrameSettings || f.flags&http2.FlagSettingsAck != 0) {
				return connError(http2.ErrCodeProtocol)
			}
			first = false
			at += len(f.raw)
			if err := h.frame(f); err != nil {
				return err
			}
		}
		h.n = copy(*h.in, (*h.in)[at:h.n])
		at = 0
		if err := h.read(); err != nil {
			return err
		}
	}
}

// read sends what is ready and waits for more frames, in ways that end.
func (h *h2) read() error {
	now := time.Now()
	h.mu.Lock()
	for i := 0; i < len(h.pending); {
		if s := h.pending[i]; !s.late.After(now) {
			h.forget(s) // takes it off pending, too
			h.rst(s.id, http2.ErrCodeInternal)
			continue
		}
		i++
	}
	if err := h.flush(); err != nil || h.over {
		h.mu.Unlock()
		return cmp.Or(err, errOver)
	}
	idle := len(h.streams) == 0
	if idle && h.goingAway {
		h.mu.Unlock()
		return errOver
	}
	if !idle || h.asked || h.active.IsZero() {
		h.active, h.asked = now, false
	}
	wait := h.s.IdleTime - now.Sub(h.active) // whatever else than requests comes meanwhile
	if !idle {                               // net/http is at work, most likely: is the client still there?
		wait = h.s.IdleTime / 4
	}
	if h.n == 0 && h.open == 0 {
		h.late = time.Time{}
	} else { // in the middle of a frame or of a header block
		if h.late.IsZero() {
			h.late = now.Add(h.s.HeaderTime)
			if h.n > 3 && http2.FrameType((*h.in)[3]) == http2.FrameData {
				h.late = now.Add(h.s.WriteTime) // a part of a body, which may come slowly
			}
		}
		wait = min(wait, h.late.Sub(now))
	}
	if h.stalled {
		wait = min(wait, h.s.WriteTime-now.Sub(h.waiting))
	}
	for _, s := range h.pending {
		wait = min(wait, s.late.Sub(now))
	}
	h.mu.Unlock()
	if wait <= 0 {
		return errOver
	}
	by := now.Add(wait)
	if h.readBy.Sub(by).Abs() > wait/4 { // moving it costs more than the rest
		h.readBy = by
		h.raw.SetReadDeadline(by)
	}
	if h.finished() { // wake may have come before the deadline was moved
		return errOver
	}
	n, err := 0, error(nil)
	if idle && h.n == 0 && h.open == 0 {
		ins.Put(h.in) // a connection that waits holds no buffer
		h.in = nil
		h.idling(true)
		n, err = h.tls.Read(h.first[:])
		h.idling(false)
		h.in = ins.Get().(*[]byte)
		copy(*h.in, h.first[:n])
	} else {
		n, err = h.tls.Read((*h.in)[h.n:])
	}
	h.n += n
	if n > 0 {
		h.pinged = false
		return nil
	}
	ne, ok := err.(net.Error)
	if !ok || !ne.Timeout() {
		return cmp.Or(err, errOver)
	}
	h.readBy = time.Time{} // somebody may have set it to wake us up
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over, h.goingAway && len(h.streams) == 0:
		return errOver
	case h.drained.Load(), h.stalled, len(h.pending) > 0, h.n > 0, h.open != 0:
		return nil // read checks what is due
	case time.Until(by) > wait/2: // somebody woke it up, for what is done already
		return nil
	case len(h.streams) == 0 && time.Since(h.active) < h.s.IdleTime: // what was under way has been answered meanwhile
		return nil
	case len(h.streams) > 0 && !h.pinged:
		h.pinged = true
		h.out = append(appendHead(h.out, 8, http2.FramePing, 0, 0), "slipway?"...)
		return nil
	}
	h.goAway(http2.ErrCodeNo)
	_ = h.flush()
	return err
}

// finished reports whether nothing more is to come on the connection.
func (h *h2) finished() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over || h.goingAway && len(h.streams) == 0
}

// wake makes the reader check the connection again.
func (h *h2) wake() { h.raw.SetReadDeadline(time.Now()) }

// buffer makes place for a large batch. h.mu is held.
func (h *h2) buffer() {
	if h.outBuf == nil {
		h.outBuf = outs.Get().(*[]byte)
		h.out = append((*h.outBuf)[:0], h.out...)
	}
}

// flush sends the batch. h.mu is held.
func (h *h2) flush() error {
	if len(h.out) == 0 {
		return nil
	}
	h.within(0)
	_, err := h.tls.Write(h.out)
	if h.outBuf != nil && cap(h.out) == outSize {
		*h.outBuf = h.out[:0]
		outs.Put(h.outBuf)
	}
	h.outBuf, h.out = nil, nil
	if err != nil {
		h.over = true
		h.more.Broadcast()
	}
	return err
}

// frame deals with one frame.
func (h *h2) frame(f frame) error {
	if h.open != 0 && (f.kind != http2.FrameContinuation || f.stream != h.open) {
		return connError(http2.ErrCodeProtocol)
	}
	switch f.kind {
	case http2.FrameData, http2.FrameHeaders, http2.FrameContinuation:
		h.useful.Add(int64(len(f.payload)))
		h.overhead += frameHead
	default:
		h.overhead += int64(len(f.raw))
	}
	if h.overhead > h.useful.Load()+1<<20 { // what leads to nothing outweighs the rest
		return connError(http2.ErrCodeEnhanceYourCalm)
	}
	switch f.kind {
	case http2.FrameData:
		return h.data(f)
	case http2.FrameHeaders:
		return h.headers(f)
	case http2.FrameContinuation:
		return h.continuation(f)
	case http2.FramePriority:
		if f.stream == 0 {
			return connError(http2.ErrCodeProtocol)
		}
		if len(f.payload) != 5 {
			return h.endStream(f.stream, http2.ErrCodeFrameSize)
		}
		if binary.BigEndian.Uint32(f.payload)&maxWindow == f.stream {
			return h.endStream(f.stream, http2.ErrCodeProtocol)
		}
		return nil
	case http2.FrameRSTStream:
		return h.rstStream(f)
	case http2.FrameSettings:
		return h.setting(f)
	case http2.FramePushPromise:
		return connError(http2.ErrCodeProtocol)
	case http2.FramePing:
		if len(f.payload) != 8 {
			return connError(http2.ErrCodeFrameSize)
		}
		if f.stream != 0 {
			return connError(http2.ErrCodeProtocol)
		}
		if f.flags&http2.FlagPingAck == 0 {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.out = append(appendHead(h.out, 8, http2.FramePing, http2.FlagPingAck, 0), f.payload...)
			return h.flushLarge()
		}
		return nil
	case http2.FrameGoAway:
		if f.stream != 0 {
			return connError(http2.ErrCodeProtocol)
		}
		if len(f.payload) < 8 {
			return connError(http2.ErrCodeFrameSize)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.goAway(http2.ErrCodeNo)
		return nil
	case http2.FrameWindowUpdate:
		return h.windowUpdate(f)
	}
	return nil // unknown kinds are ignored (section 5.5)
}

// flushLarge sends the batch when it has become large. h.mu is held.
func (h *h2) flushLarge() error {
	if len(h.out) < outSize/2 {
		return nil
	}
	return h.flush()
}

// goAway says once that no further streams are accepted. h.mu is held.
func (h *h2) goAway(code http2.ErrCode) {
	if h.goingAway && code == http2.ErrCodeNo {
		return
	}
	h.goingAway = true
	h.out = appendHead(h.out, 8, http2.FrameGoAway, 0, 0)
	h.out = binary.BigEndian.AppendUint32(h.out, h.lastStream)
	h.out = binary.BigEndian.AppendUint32(h.out, uint32(code))
	if code != http2.ErrCodeNo {
		_ = h.flush() // it is over anyway
	}
}

// startDrain lets the streams under way finish and ends the connection.
func (h *h2) startDrain() {
	h.mu.Lock()
	h.goAway(http2.ErrCodeNo)
	err := h.flush()
	idle := len(h.streams) == 0
	h.mu.Unlock()
	if idle || err != nil {
		h.wake()
	}
}

// endStream refuses a stream (section 5.4.2).
func (h *h2) endStream(id uint32, code http2.ErrCode) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.streams[id]; s != nil {
		if s.lane {
			h.lane.send(appendUint32(nil, http2.FrameRSTStream, id, uint32(http2.ErrCodeCancel)))
		}
		h.forget(s)
	}
	h.rst(id, code)
	return h.flushLarge()
}

// rst sends RST_STREAM, and remembers that frames for the stream may still be under way.
// h.mu is held.
func (h *h2) rst(id uint32, code http2.ErrCode) {
	h.out = appendUint32(h.out, http2.FrameRSTStream, id, uint32(code))
	h.reset[h.resetNext%len(h.reset)] = id
	h.resetNext++
}

// forget takes a stream off the books. h.mu is held.
func (h *h2) forget(s *stream) {
	s.gone = true
	delete(h.streams, s.id)
	switch {
	case s.passed:
		h.lingering++      // what it holds counts until its answer has ended
		h.more.Broadcast() // whoever answers it need not go on
	case s.done != nil:
		s.done()
		s.done = nil
	}
	if i := slices.Index(h.pending, s); i >= 0 {
		h.pending = slices.Delete(h.pending, i, i+1)
	}
}

// unopened reports whether the client has not begun this stream. Those that it began
// after it was told not to are ignored, and so is what follows on them.
func (h *h2) unopened(id uint32) bool {
	return id > h.lastStream && id > h.ignored
}

// data passes a part of a request's body on, or refuses it.
func (h *h2) data(f frame) error {
	if f.stream == 0 || h.unopened(f.stream) {
		return connError(http2.ErrCodeProtocol)
	}
	if _, _, ok := unpad(f); !ok {
		return connError(http2.ErrCodeProtocol)
	}
	h.mu.Lock()
	s := h.streams[f.stream]
	if s != nil && s.lane && !s.sent {
		s.sent = f.flags&http2.FlagDataEndStream != 0
		h.mu.Unlock()
		return h.lane.send(f.raw)
	}
	defer h.mu.Unlock()
	if len(f.payload) > 0 { // no more than a little of it is held, so the connection's window is given back here
		h.out = appendUint32(h.out, http2.FrameWindowUpdate, 0, uint32(len(f.payload)))
	}
	if s != nil && s.passed && !s.sent {
		if part, _, _ := unpad(f); h.received(s, part, f.flags&http2.FlagDataEndStream != 0) {
			return h.flushLarge()
		}
		h.forget(s)
		h.rst(f.stream, http2.ErrCodeProtocol)
		return h.flushLarge()
	}
	h.overhead += int64(len(f.raw))
	if slices.Contains(h.reset[:], f.stream) || f.stream > h.lastStream {
		return h.flushLarge() // it was sent before the client knew
	}
	if s != nil {
		h.forget(s)
	}
	h.rst(f.stream, http2.ErrCodeStreamClosed)
	return h.flushLarge()
}

// rstStream ends a stream for the client.
func (h *h2) rstStream(f frame) error {
	if len(f.payload) != 4 {
		return connError(http2.ErrCodeFrameSize)
	}
	if f.stream == 0 || h.unopened(f.stream) {
		return connError(http2.ErrCodeProtocol)
	}
	// Rapid reset: who takes back most of what was asked is not a browser.
	h.resets++
	if h.resets > 500 && h.resets > int(h.lastStream/4) {
		return connError(http2.ErrCodeEnhanceYourCalm)
	}
	h.mu.Lock()
	s := h.streams[f.stream]
	if s != nil {
		h.forget(s)
		h.more.Broadcast()
	}
	h.mu.Unlock()
	if s != nil && s.lane {
		return h.lane.send(f.raw)
	}
	return nil
}

// setting takes over what the client says of itself.
func (h *h2) setting(f frame) error {
	if f.stream != 0 {
		return connError(http2.ErrCodeProtocol)
	}
	if f.flags&http2.FlagSettingsAck != 0 {
		if len(f.payload) != 0 {
			return connError(http2.ErrCodeFrameSize)
		}
		return nil
	}
	if len(f.payload)%6 != 0 || len(f.payload) > 6*64 {
		return connError(http2.ErrCodeFrameSize)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var forward []byte
	for p := f.payload; len(p) > 0; p = p[6:] {
		id, v := http2.SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])
		switch id {
		case http2.SettingHeaderTableSize:
			// Nothing here uses a table; a decoder whose table shrank wants to hear that.
			h.resize = h.resize || v < 4096
			continue
		case http2.SettingEnablePush:
			if v > 1 {
				return connError(http2.ErrCodeProtocol)
			}
			continue
		case http2.SettingInitialWindowSize:
			if v > maxWindow {
				return connError(http2.ErrCodeFlowControl)
			}
			for _, s := range h.streams {
				s.window += int64(v) - h.initial
				if s.window > maxWindow {
					return connError(http2.ErrCodeFlowControl)
				}
			}
			h.initial = int64(v)
		case http2.SettingMaxFrameSize:
			if v < 16384 || v > 1<<24-1 {
				return connError(http2.ErrCodeProtocol)
			}
			continue // frames of the smallest limit are sent
		case http2.SettingMaxHeaderListSize:
		default:
			continue
		}
		h.settings[id] = v
		forward = append(forward, p[:6]...)
	}
	h.out = appendHead(h.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	if h.lane != nil && len(forward) > 0 {
		if err := h.lane.send(append(appendHead(nil, len(forward), http2.FrameSettings, 0, 0), forward...)); err != nil {
			return err
		}
	}
	if err := h.resume(); err != nil {
		return err
	}
	return h.flushLarge()
}

// windowUpdate lets answers go on (section 6.9).
func (h *h2) windowUpdate(f frame) error {
	if len(f.payload) != 4 {
		return connError(http2.ErrCodeFrameSize)
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
	if f.stream == 0 {
		if n == 0 {
			return connError(http2.ErrCodeProtocol)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.window += n
		if h.window > maxWindow {
			return connError(http2.ErrCodeFlowControl)
		}
		h.more.Broadcast()
		return h.resume()
	}
	if h.unopened(f.stream) {
		return connError(http2.ErrCodeProtocol)
	}
	if n == 0 {
		return h.endStream(f.stream, http2.ErrCodeProtocol)
	}
	h.mu.Lock()
	s := h.streams[f.stream]
	if s == nil {
		h.mu.Unlock()
		return nil // it has ended
	}
	if s.lane {
		h.mu.Unlock()
		return h.lane.send(f.raw)
	}
	s.window += n
	if s.window > maxWindow {
		h.mu.Unlock()
		return h.endStream(f.stream, http2.ErrCodeFlowControl)
	}
	defer h.mu.Unlock()
	return h.resume()
}

// resume goes on with the answers that waited for a window. h.mu is held.
func (h *h2) resume() error {
	for i := 0; i < len(h.pending); {
		s := h.pending[i]
		if err := h.body(s); err != nil {
			return err
		}
		if len(s.body) == 0 && s.passed {
			h.pending = slices.Delete(h.pending, i, i+1)
			h.more.Broadcast() // for whoever has more of it
			continue
		}
		if len(s.body) == 0 {
			h.forget(s) // takes it off pending, too
			continue
		}
		i++
	}
	return nil
}

// body appends as much of an answer as the windows allow. h.mu is held.
func (h *h2) body(s *stream) error {
	for len(s.body) > 0 {
		h.buffer()
		if len(h.out) > outSize*3/4 {
			if err := h.flush(); err != nil {
				return err
			}
			h.buffer()
		}
		n := int(min(int64(len(s.body)), int64(outSize-len(h.out)-frameHead), h.window, s.window))
		if n <= 0 {
			return nil
		}
		var flags http2.Flags
		if n == len(s.body) && !s.more {
			flags = http2.FlagDataEndStream
		}
		h.out = append(appendHead(h.out, n, http2.FrameData, flags, s.id), s.body[:n]...)
		s.body = s.body[n:]
		s.window -= int64(n)
		h.window -= int64(n)
		h.useful.Add(int64(n))
	}
	return nil
}
