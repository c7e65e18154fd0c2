package thumbnail

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"
)

// The largest image that is decoded: a header may promise more than any memory holds.
const (
	maxPixels = 6 << 20
	maxSide   = 8192
	// A progressive JPEG is drawn scan by scan, and a scan may be a few bytes long: encoders
	// write about ten of them.
	maxScans    = 64
	maxScanning = 16 * maxPixels // pixels of all scans together
)

// format is one kind of image, known by how it begins.
type format struct {
	begins string // '?' stands for any byte
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}

// How a JPEG begins, and the marker of a scan (ITU T.81, table B.1), which occurs nowhere else in
// what is drawn.
const (
	jpegBegins  = "\xff\xd8\xff"
	startOfScan = "\xff\xda"
)

func fits(c image.Config) bool {
	return c.Width > 0 && c.Height > 0 && c.Width <= maxSide && c.Height <= maxSide && c.Width*c.Height <= maxPixels
}

// drawable reports whether an image has no more scans than its encoder had reason to write.
func drawable(b []byte, c image.Config) bool {
	n := bytes.Count(b, []byte(startOfScan))
	return !begins(b, jpegBegins) || n <= maxScans && n*c.Width*c.Height <= maxScanning
}

func formats() []format {
	return []format{
		{"\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode},
		{jpegBegins, jpeg.DecodeConfig, jpeg.Decode},
		{"GIF8?a", gif.DecodeConfig, gif.Decode},
		{"RIFF????WEBPVP8", webp.DecodeConfig, webp.Decode},
	}
}

// patient reads an image in small portions until ctx ends. A decoder's work between two
// reads is bounded by the size of the image; without an end to the reading a progressive
// JPEG of 4 MiB, each of whose scans is ten bytes long, keeps it busy for many minutes.
type patient struct {
	ctx context.Context
	b   []byte
}

func (p *patient) Read(into []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(into[:min(len(into), 256)], p.b)
	p.b = p.b[n:]
	return n, nil
}

// decode returns the image, or nil for what is none, is too large, or is broken. What it
// is called plays no part.
func decode(ctx context.Context, b []byte) (img image.Image) {
	defer recoverDecode(&img)
	for _, f := range formats() {
		if !begins(b, f.begins) {
			continue
		}
		c, err := f.config(&patient{ctx, b})
		if err != nil || !fits(c) {
			return nil
		}
		if !drawable(b, c) {
			return nil
		}
		img, err := f.decode(&patient{ctx, b})
		// A frame may be larger than the header said.
		if err != nil || !fits(image.Config{Width: img.Bounds().Dx(), Height: img.Bounds().Dy()}) {
			return nil
		}
		return img
	}
	if begins(b, "\x00\x00\x01\x00") {
		return decodeICO(ctx, b)
	}
	return nil
}

// recoverDecode drops an image at which a decoder panicked. None is known to, but a
// hostile image must not be the proof that one does.
func recoverDecode(img *image.Image) {
	if recover() != nil {
		*img = nil
	}
}

func begins(b []byte, with string) bool {
	if len(b) < len(with) {
		return false
	}
	for i := range len(with) {
		if with[i] != '?' && with[i] != b[i] {
			return false
		}
	}
	return true
}

// encodeIcon draws an icon into a square, whole, and writes it as PNG.
func encodeIcon(img image.Image) []byte {
	out := image.NewNRGBA(image.Rect(0, 0, IconSize, IconSize))
	b := img.Bounds()
	w, h := IconSize, IconSize
	if b.Dx() > b.Dy() {
		h = max(1, IconSize*b.Dy()/b.Dx())
	} else {
		w = max(1, IconSize*b.Dx()/b.Dy())
	}
	at := image.Rect(0, 0, w, h).Add(image.Pt((IconSize-w)/2, (IconSize-h)/2))
	scaler := draw.Scaler(draw.CatmullRom)
	if w%b.Dx() == 0 && b.Dx() <= 32 {
		scaler = draw.NearestNeighbor // a tiny icon stays crisp
	}
	scaler.Scale(out, at, img, b, draw.Over, nil)
	var buf bytes.Buffer
	if (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out) != nil {
		return nil
	}
	return buf.Bytes()
}

// encodeImage draws the middle of a picture in the measures of all, on white, and writes
// it as JPEG.
func encodeImage(img image.Image) []byte {
	out := image.NewRGBA(image.Rect(0, 0, ImageWidth, ImageHeight))
	draw.Draw(out, out.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	from := img.Bounds()
	if w := from.Dy() * ImageWidth / ImageHeight; w < from.Dx() {
		from.Min.X += (from.Dx() - w) / 2
		from.Max.X = from.Min.X + w
	} else if h := from.Dx() * ImageHeight / ImageWidth; h < from.Dy() {
		from.Min.Y += (from.Dy() - h) / 2
		from.Max.Y = from.Min.Y + h
	}
	draw.CatmullRom.Scale(out, out.Bounds(), img, from, draw.Over, nil)
	var buf bytes.Buffer
	if jpeg.Encode(&buf, out, &jpeg.Options{Quality: 78}) != nil {
		return nil
	}
	return buf.Bytes()
}
