package thumbnail

import (
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
)

// decodeICO returns the largest image of an icon file, or nil. The format is Microsoft's ICO: a table of images, each a
// PNG or a bitmap without its file header, of twice the height, with a mask of one bit per pixel below. Sizes in the
// file are never trusted: docs/adr/0028-small-readers.md.
func decodeICO(ctx context.Context, b []byte) image.Image {
	if len(b) < 6 {
		return nil
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	var best image.Image
	for i := range min(n, 32) {
		e := 6 + 16*i
		if e+16 > len(b) || ctx.Err() != nil {
			break
		}
		size, at := uint64(binary.LittleEndian.Uint32(b[e+8:])), uint64(binary.LittleEndian.Uint32(b[e+12:]))
		if at+size > uint64(len(b)) {
			continue
		}
		if img := decodeEntry(ctx, b[at:at+size]); img != nil && (best == nil || img.Bounds().Dx() > best.Bounds().Dx()) {
			best = img
		}
	}
	return best
}

func decodeEntry(ctx context.Context, b []byte) image.Image {
	if begins(b, "\x89PNG\r\n\x1a\n") {
		c, err := png.DecodeConfig(&patient{ctx, b})
		if err != nil || c.Width > 1024 || c.Height > 1024 {
			return nil
		}
		img, err := png.Decode(&patient{ctx, b})
		if err != nil {
			return nil
		}
		return img
	}
	return decodeBitmap(b)
}

// decodeBitmap reads an uncompressed BITMAPINFOHEADER image of an icon.
func decodeBitmap(b []byte) image.Image {
	if len(b) < 40 {
		return nil
	}
	le := binary.LittleEndian
	header, w, h2 := int(le.Uint32(b)), int(int32(le.Uint32(b[4:]))), int(int32(le.Uint32(b[8:])))
	bits, compression, colors := int(le.Uint16(b[14:])), le.Uint32(b[16:]), int(le.Uint32(b[32:]))
	h := h2 / 2
	if header < 40 || header > len(b) || w < 1 || h < 1 || w > 256 || h > 256 || compression != 0 {
		return nil
	}
	var palette []byte
	pixels := b[header:]
	switch bits {
	case 1, 4, 8:
		if colors <= 0 || colors > 1<<bits {
			colors = 1 << bits
		}
		if len(pixels) < 4*colors {
			return nil
		}
		palette, pixels = pixels[:4*colors], pixels[4*colors:]
	case 24, 32:
	default:
		return nil
	}
	stride, maskStride := (w*bits+31)/32*4, (w+31)/32*4
	if len(pixels) < stride*h {
		return nil
	}
	mask := pixels[stride*h:]
	if len(mask) < maskStride*h {
		mask = nil
	}
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	seen := false // whether any alpha is not 0; if all are 0, the image has no alpha
	for y := range h {
		line := pixels[stride*(h-1-y):]
		for x := range w {
			c := color.NRGBA{A: 255}
			switch bits {
			case 32:
				c = color.NRGBA{line[4*x+2], line[4*x+1], line[4*x], line[4*x+3]}
				seen = seen || c.A != 0
			case 24:
				c.R, c.G, c.B = line[3*x+2], line[3*x+1], line[3*x]
			default:
				per := 8 / bits
				i := int(line[x/per]>>(8-bits-x%per*bits)) & (1<<bits - 1)
				if i >= colors {
					return nil
				}
				c.R, c.G, c.B = palette[4*i+2], palette[4*i+1], palette[4*i]
			}
			out.SetNRGBA(x, y, c)
		}
	}
	if bits == 32 && seen {
		return out
	}
	for y := range h {
		for x := range w {
			i := out.PixOffset(x, y) + 3
			out.Pix[i] = 255
			if mask != nil && mask[maskStride*(h-1-y)+x/8]>>(7-x%8)&1 == 1 {
				out.Pix[i] = 0
			}
		}
	}
	return out
}
