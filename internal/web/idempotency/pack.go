package idempotency

import (
	"errors"

	"github.com/klauspost/compress/zstd"
)

// How an answer is stored: its first byte says which way. Older rows have neither.
const (
	packedPlain = 0x00
	packedZstd  = 0x01 // zstd (RFC 8878) with the request's body as raw dictionary
)

// Answers below minPack are stored as they are. No answer is larger than maxAnswer.
const (
	minPack   = 512
	maxAnswer = 32 << 20
)

const dictionary = 1 // its id in the frame: not 0, which means none

// pack makes an answer small: what it repeats of the request is a reference to it, for
// the request is there again whenever the answer is read.
func pack(answer, request []byte) ([]byte, error) {
	if len(answer) < minPack {
		return append([]byte{packedPlain}, answer...), nil
	}
	// weaker ones lose sight of a large dictionary
	o := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression)}
	if len(request) >= 8 { // fewer bytes are no dictionary
		o = append(o, zstd.WithEncoderDictRaw(dictionary, request))
	}
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.EncodeAll(answer, []byte{packedZstd}), nil
}

func unpack(b, request []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errors.New("the stored answer is empty")
	}
	switch b[0] {
	case packedPlain:
		return b[1:], nil
	case packedZstd:
		o := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxAnswer)}
		if len(request) >= 8 {
			o = append(o, zstd.WithDecoderDictRaw(dictionary, request))
		}
		d, err := zstd.NewReader(nil, o...)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(b[1:], nil)
	}
	return b, nil
}
