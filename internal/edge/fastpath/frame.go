package fastpath

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHead  = 9
	maxFrame   = 16 << 10 // our limit, the smallest that a peer may set
	maxStreams = 128      // concurrent requests per connection
	maxBlock   = 64 << 10 // bytes of a compressed header block
	maxFields  = 64 << 10 // bytes of its decompressed fields
	maxWindow  = 1<<31 - 1
)

// frame is a frame as read (RFC 9113 §4.1). payload points into the read buffer.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
	raw     []byte // including the frame header
}

// readFrame returns the first frame of b. ok is false if b has no complete frame; long reports a frame over the limit.
func readFrame(b []byte) (f frame, ok, long bool) {
	if len(b) < frameHead {
		return f, false, false
	}
	n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if n > maxFrame {
		return f, false, true
	}
	if len(b) < frameHead+n {
		return f, false, false
	}
	f.kind, f.flags = http2.FrameType(b[3]), http2.Flags(b[4])
	f.stream = binary.BigEndian.Uint32(b[5:]) & maxWindow
	f.raw = b[:frameHead+n]
	f.payload = f.raw[frameHead:]
	return f, true, false
}

// appendHead appends a frame header.
func appendHead(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendUint32(b []byte, kind http2.FrameType, stream, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, 4, kind, 0, stream), v)
}

// appendBlock appends a header block as one HEADERS frame and as many CONTINUATION frames as needed.
func appendBlock(b []byte, stream uint32, block []byte, end bool) []byte {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(appendHead(b, n, kind, flags, stream), block[:n]...)
		block = block[n:]
		if len(block) == 0 {
			return b
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// unpad removes padding and priority from the payload of HEADERS or DATA. ok is false if the frame is too short for its
// flags.
func unpad(f frame) (payload []byte, depends uint32, ok bool) {
	p := f.payload
	pad := 0
	if f.flags&http2.FlagDataPadded != 0 {
		if len(p) == 0 {
			return nil, 0, false
		}
		pad, p = int(p[0]), p[1:]
	}
	if f.kind == http2.FrameHeaders && f.flags&http2.FlagHeadersPriority != 0 {
		if len(p) < 5 {
			return nil, 0, false
		}
		depends, p = binary.BigEndian.Uint32(p)&maxWindow, p[5:]
	}
	if pad > len(p) {
		return nil, 0, false
	}
	return p[:len(p)-pad], depends, true
}
