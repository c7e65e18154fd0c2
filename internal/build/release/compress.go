package release

import (
	"bytes"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	compressMin = 256      // bytes; smaller files don't benefit
	compressMax = 16 << 20 // bytes; larger files are served uncompressed
)

// effort is a set of compression levels, chosen by the bytes of text that a release has had so far. The first
// megabytes, for most sites all of them, are compressed best, and huge releases don't take too long. Measured on one
// core with 128 KiB of text: brotli 5, 4, 2 at 34, 45, 69 MB/s with ratios 0.22, 0.24, 0.26; gzip 9, 6, 4 at 26, 98,
// 148 MB/s with ratios 0.27, 0.26, 0.26, so gzip 9 has no advantage over 6. zstd's default costs about as much as gzip
// 4.
type effort struct {
	brotli, gzip int
	zstd         zstd.EncoderLevel
}

var efforts = [...]effort{{5, 6, zstd.SpeedBetterCompression}, {4, 6, zstd.SpeedDefault}, {2, 4, zstd.SpeedFastest}}

func effortFor(offered int64) int {
	switch {
	case offered <= 8<<20:
		return 0
	case offered <= 64<<20:
		return 1
	default:
		return 2
	}
}

// packer is a set of encoders of one effort. They hold megabytes and are faster to reset than to make, so they are
// pooled.
type packer struct {
	brotli *brotli.Writer
	gzip   *gzip.Writer
	zstd   *zstd.Encoder
	out    bytes.Buffer
}

var packers [len(efforts)]sync.Pool

// Compress returns a page's compressed variants, for a page that is made while a visitor waits. Variants that aren't at
// least 10% smaller are nil.
func Compress(page []byte) (br, gz, zs []byte) {
	if len(page) < compressMin || len(page) > compressMax {
		return nil, nil, nil
	}
	return compress(page, 1)
}

// Compressible reports whether files of this media type usually compress well.
func Compressible(kind string) bool { return textual(kind) }

// CompressAs returns a text in one coding (br, zstd or gzip), for a text that is compressed while a visitor waits; nil
// if it isn't at least 10% smaller.
func CompressAs(coding string, b []byte) []byte {
	const level = 1
	p := packerOf(level)
	defer packers[level].Put(p)
	switch coding {
	case "br":
		return p.pack(p.brotli, b)
	case "zstd":
		return p.pack(p.zstd, b)
	case "gzip":
		return p.pack(p.gzip, b)
	}
	return nil
}

// compress returns the variants of b that are at least 10% smaller.
func compress(b []byte, level int) (br, gz, zs []byte) {
	p := packerOf(level)
	defer packers[level].Put(p)
	return p.pack(p.brotli, b), p.pack(p.gzip, b), p.pack(p.zstd, b)
}

func packerOf(level int) *packer {
	p, _ := packers[level].Get().(*packer)
	if p == nil {
		z, _ := gzip.NewWriterLevel(nil, efforts[level].gzip)
		// Browsers support windows of up to 8 MiB (RFC 9659); a smaller one needs less memory.
		s, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(efforts[level].zstd), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
		p = &packer{brotli: brotli.NewWriterLevel(nil, efforts[level].brotli), gzip: z, zstd: s}
	}
	return p
}

func (p *packer) pack(w interface {
	io.WriteCloser
	Reset(io.Writer)
}, b []byte,
) []byte {
	p.out.Reset()
	w.Reset(&p.out)
	w.Write(b) // writes to a bytes.Buffer don't fail
	w.Close()
	if p.out.Len() > len(b)-len(b)/10 {
		return nil
	}
	return bytes.Clone(p.out.Bytes())
}
