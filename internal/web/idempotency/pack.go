package idempotency

import (
	"errors"

	"github.com/klauspost/compress/zstd"
)

// The first byte of a stored response is its encoding. Older rows have none.
const (
	packedPlain = 0x00
	packedZstd  = 0x01 // zstd (RFC 8878) with the request's body as a raw dictionary
)

// Responses shorter than minPack are stored uncompressed. None is longer than maxAnswer.
const (
	minPack   = 512
	maxAnswer = 32 << 20
)

const dictionary = 1 // ID in the frame; 0 would mean no dictionary

// pack compresses a response with the request as dictionary, since the request is available whenever the response is
// read.
func pack(answer, request []byte) ([]byte, error) {
	if len(answer) < minPack {
		return append([]byte{packedPlain}, answer...), nil
	}
	// Lower levels don't use all of a large dictionary.
	o := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression)}
	if len(request) >= 8 { // minimum length of a dictionary
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
