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

// The largest image that is decoded: a header can claim any size.
const (
	maxPixels = 6 << 20
	maxSide   = 8192
	// A progressive JPEG is decoded scan by scan, and a scan may take only a few bytes. Encoders write about ten.
	maxScans    = 64
	maxScanning = 16 * maxPixels // pixels of all scans together
)

// format is an image format, identified by its first bytes.
type format struct {
	begins string // '?' matches any byte
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}

// The beginning of a JPEG, and the marker of a scan (ITU T.81, table B.1), which doesn't occur elsewhere in image data.
const (
	jpegBegins  = "\xff\xd8\xff"
	startOfScan = "\xff\xda"
)

func fits(c image.Config) bool {
	return c.Width > 0 && c.Height > 0 && c.Width <= maxSide && c.Height <= maxSide && c.Width*c.Height <= maxPixels
}

// drawable reports whether an image has a plausible number of scans.
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

// patient reads an image in small portions until ctx ends. The image's size limits a decoder's work between two reads.
// Without patient, a progressive JPEG of 4 MiB with scans of ten bytes would keep the decoder busy for minutes.
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

// decode returns the image, or nil if it is invalid or too large. The format is detected from its content.
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
		// A frame may be larger than the header claims.
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

// recoverDecode ignores an image whose decoder panics. No such image is known, but images are untrusted.
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

// encodeIcon scales an icon into a square and writes it as a PNG.
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
		scaler = draw.NearestNeighbor // keeps a tiny icon crisp
	}
	scaler.Scale(out, at, img, b, draw.Over, nil)
	var buf bytes.Buffer
	if (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out) != nil {
		return nil
	}
	return buf.Bytes()
}

// encodeImage crops a picture to the common size, on a white background, and writes it as a JPEG.
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
