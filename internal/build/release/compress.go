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
	compressMin = 256      // bytes: below it nothing is gained
	compressMax = 16 << 20 // bytes: above it a file is served as it is
)

// effort is a set of compression levels, chosen by how much text a release has offered
// so far, so that its first megabytes (for most sites, all of it) are as small as
// possible and a giant doesn't hold up its own publishing. Measured here on one core,
// 128 KiB of text: brotli 5, 4, 2 at 34, 45, 69 MB/s with ratios 0.22, 0.24, 0.26; gzip
// 9, 6, 4 at 26, 98, 148 MB/s with ratios 0.27, 0.26, 0.26. So gzip 9 buys nothing over
// 6 with this encoder. zstd's default costs about as much as gzip 4.
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

// packer is a set of encoders at one effort. They hold megabytes and are cleared
// faster than made, hence the pools.
type packer struct {
	brotli *brotli.Writer
	gzip   *gzip.Writer
	zstd   *zstd.Encoder
	out    bytes.Buffer
}

var packers [len(efforts)]sync.Pool

// Compress returns a page's variants, for one that is made while a visitor waits: those that
// are smaller by a tenth at least, the others are nil.
func Compress(page []byte) (br, gz, zs []byte) {
	if len(page) < compressMin || len(page) > compressMax {
		return nil, nil, nil
	}
	return compress(page, 1)
}

// Compressible reports whether a file of this media type is likely to become smaller.
func Compressible(kind string) bool { return textual(kind) }

// CompressAs returns a text in one coding (br, zstd or gzip), for one that is compressed while
// a visitor waits; nil where it would not be smaller by a tenth at least.
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

// compress returns the variants of b that are smaller by a tenth at least.
func compress(b []byte, level int) (br, gz, zs []byte) {
	p := packerOf(level)
	defer packers[level].Put(p)
	return p.pack(p.brotli, b), p.pack(p.gzip, b), p.pack(p.zstd, b)
}

func packerOf(level int) *packer {
	p, _ := packers[level].Get().(*packer)
	if p == nil {
		z, _ := gzip.NewWriterLevel(nil, efforts[level].gzip) // the levels above are valid
		// Browsers take windows of up to 8 MiB (RFC 9659); one less holds less memory.
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
	w.Write(b) // a bytes.Buffer takes everything
	w.Close()
	if p.out.Len() > len(b)-len(b)/10 {
		return nil
	}
	return bytes.Clone(p.out.Bytes())
}
