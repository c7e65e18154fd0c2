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

// h2 is an HTTP/2 connection. One goroutine reads frames and answers plain requests. If there is a lane, a second one
// copies net/http's responses to the client.
type h2 struct {
	*conn
	in       *[]byte
	n        int // bytes used in in
	dec      *hpack.Decoder
	fields   []hpack.HeaderField
	held     *headerBytes // memory of running requests' headers
	size     int          // size of the current request's fields
	block    []byte
	open     uint32 // stream with an unfinished header block, or 0
	openEnd  bool   // that block ends the stream
	pieces   int    // CONTINUATION frames of that block
	lane     *lane
	overhead int64        // bytes of frames without effect
	useful   atomic.Int64 // bytes of frames with an effect
	resets   int
	pinged   bool
	asked    bool      // a request arrived since active was set
	active   time.Time // when a request was last running
	late     time.Time // deadline of the frame or header block being read
	first    [512]byte // read buffer of an idle connection
	buf      []byte    // scratch buffer for strings
	tagBuf   []byte    // for an entity tag

	mu      sync.Mutex // guards the fields below, and writing
	more    sync.Cond  // signals that a window grew, or that a stream or the connection ended
	out     []byte
	outBuf  *[]byte   // backing array of out if it is large
	stalled bool      // a response of net/http waits for the connection's window
	waiting time.Time // start of the wait
	window  int64     // send window of the connection
	initial int64     // initial send window of a stream
	// share: none, one connection's
	settings map[http2.SettingID]uint32
	resize   bool // the next header block must begin with a table size update
	// share: none, one connection's: as many streams as its settings allow
	streams    map[uint32]*stream
	lingering  int        // requests that Hosts.Pass still answers after their streams ended
	reset      [16]uint32 // streams that we reset recently
	resetNext  int
	pending    []*stream // our responses that wait for a window
	lastStream uint32
	ignored    uint32 // highest stream opened after goingAway
	goingAway  bool
	over       bool
	flushing   bool // a goroutine is about to send the batch
}

// stream is a running request.
type stream struct {
	id     uint32
	window int64     // send window for our own responses
	body   []byte    // unsent part of the body
	late   time.Time // deadline for sending it
	lane   bool      // net/http answers
	passed bool      // Hosts.Pass answers
	more   bool      // the response has more body than buffered here
	left   int64     // bytes of the request body still to come; body holds the rest until then
	sent   bool      // the client has sent the whole request
	gone   bool
	done   func() // releases the counted header bytes; nil for our own responses
}

// connError ends a connection (RFC 9113 §5.4.1).
type connError http2.ErrCode

func (e connError) Error() string { return http2.ErrCode(e).String() }

var errOver = errors.New("the connection is over")

// newH2 prepares an HTTP/2 connection; it may be drained at once. SETTINGS is the first frame it sends.
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

// read sends the batch and waits for more frames, with a deadline.
func (h *h2) read() error {
	now := time.Now()
	h.mu.Lock()
	for i := 0; i < len(h.pending); {
		if s := h.pending[i]; !s.late.After(now) {
			h.forget(s) // also removes it from pending
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
	wait := h.s.IdleTime - now.Sub(h.active) // only requests extend the idle time
	if !idle {                               // net/http is probably working; check that the client is alive
		wait = h.s.IdleTime / 4
	}
	if h.n == 0 && h.open == 0 {
		h.late = time.Time{}
	} else { // in the middle of a frame or header block
		if h.late.IsZero() {
			h.late = now.Add(h.s.HeaderTime)
			if h.n > 3 && http2.FrameType((*h.in)[3]) == http2.FrameData {
				h.late = now.Add(h.s.WriteTime) // part of a request body, which may arrive slowly
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
	if h.readBy.Sub(by).Abs() > wait/4 { // moving the deadline is expensive
		h.readBy = by
		h.raw.SetReadDeadline(by)
	}
	if h.finished() { // wake may have come before the deadline was changed
		return errOver
	}
	n, err := 0, error(nil)
	if idle && h.n == 0 && h.open == 0 {
		ins.Put(h.in) // an idle connection holds no buffer
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
	h.readBy = time.Time{} // wake may have set it
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over, h.goingAway && len(h.streams) == 0:
		return errOver
	case h.drained.Load(), h.stalled, len(h.pending) > 0, h.n > 0, h.open != 0:
		return nil // read checks the deadlines
	case time.Until(by) > wait/2: // wake, for something done meanwhile
		return nil
	case len(h.streams) == 0 && time.Since(h.active) < h.s.IdleTime: // running requests have finished meanwhile
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

// finished reports whether the connection has nothing more to do.
func (h *h2) finished() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over || h.goingAway && len(h.streams) == 0
}

// wake makes the reader check the connection's state.
func (h *h2) wake() { h.raw.SetReadDeadline(time.Now()) }

// buffer makes room for a large batch. The caller holds h.mu.
func (h *h2) buffer() {
	if h.outBuf == nil {
		h.outBuf = outs.Get().(*[]byte)
		h.out = append((*h.outBuf)[:0], h.out...)
	}
}

// flush sends the batch. The caller holds h.mu.
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

// frame handles one frame.
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
	if h.overhead > h.useful.Load()+1<<20 { // too many frames without effect
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
	return nil // ignore unknown frame types (RFC 9113 §5.5)
}

// flushLarge sends the batch if it is large. The caller holds h.mu.
func (h *h2) flushLarge() error {
	if len(h.out) < outSize/2 {
		return nil
	}
	return h.flush()
}

// goAway sends GOAWAY once. The caller holds h.mu.
func (h *h2) goAway(code http2.ErrCode) {
	if h.goingAway && code == http2.ErrCodeNo {
		return
	}
	h.goingAway = true
	h.out = appendHead(h.out, 8, http2.FrameGoAway, 0, 0)
	h.out = binary.BigEndian.AppendUint32(h.out, h.lastStream)
	h.out = binary.BigEndian.AppendUint32(h.out, uint32(code))
	if code != http2.ErrCodeNo {
		_ = h.flush() // the connection ends anyway
	}
}

// startDrain lets running streams finish, then ends the connection.
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

// endStream resets a stream (RFC 9113 §5.4.2).
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

// rst sends RST_STREAM and remembers that frames for the stream may still arrive. The caller holds h.mu.
func (h *h2) rst(id uint32, code http2.ErrCode) {
	h.out = appendUint32(h.out, http2.FrameRSTStream, id, uint32(code))
	h.reset[h.resetNext%len(h.reset)] = id
	h.resetNext++
}

// forget removes a stream. The caller holds h.mu.
func (h *h2) forget(s *stream) {
	s.gone = true
	delete(h.streams, s.id)
	switch {
	case s.passed:
		h.lingering++      // its memory counts until its answer function returns
		h.more.Broadcast() // wake its writer, which can stop
	case s.done != nil:
		s.done()
		s.done = nil
	}
	if i := slices.Index(h.pending, s); i >= 0 {
		h.pending = slices.Delete(h.pending, i, i+1)
	}
}

// unopened reports whether the client hasn't opened this stream. Streams opened after GOAWAY are ignored, and so are
// their frames.
func (h *h2) unopened(id uint32) bool {
	return id > h.lastStream && id > h.ignored
}

// data stores or forwards a part of a request's body, or refuses it.
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
	if len(f.payload) > 0 { // little of it is buffered, so return the connection's window now
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
		return h.flushLarge() // sent before the client saw the reset
	}
	if s != nil {
		h.forget(s)
	}
	h.rst(f.stream, http2.ErrCodeStreamClosed)
	return h.flushLarge()
}

// rstStream handles RST_STREAM.
func (h *h2) rstStream(f frame) error {
	if len(f.payload) != 4 {
		return connError(http2.ErrCodeFrameSize)
	}
	if f.stream == 0 || h.unopened(f.stream) {
		return connError(http2.ErrCodeProtocol)
	}
	// Rapid reset attack (CVE-2023-44487): browsers don't cancel most of their requests.
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

// setting applies a SETTINGS frame.
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
			// Our encoder uses no dynamic table, but the peer's decoder expects an update after shrinking its table.
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
			continue // we only send frames of the minimum size
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

// windowUpdate handles WINDOW_UPDATE (RFC 9113 §6.9).
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
		return nil // the stream has ended
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

// resume continues responses that waited for a window. The caller holds h.mu.
func (h *h2) resume() error {
	for i := 0; i < len(h.pending); {
		s := h.pending[i]
		if err := h.body(s); err != nil {
			return err
		}
		if len(s.body) == 0 && s.passed {
			h.pending = slices.Delete(h.pending, i, i+1)
			h.more.Broadcast() // for the goroutine that has more of it
			continue
		}
		if len(s.body) == 0 {
			h.forget(s) // also removes it from pending
			continue
		}
		i++
	}
	return nil
}

// body sends as much of a response as the windows allow. The caller holds h.mu.
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
