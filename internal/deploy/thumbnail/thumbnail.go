// Package thumbnail owns what a site looks like at a glance: its title, what it says of
// itself, its color, an icon and a picture, taken from the files of its release when that
// has become live, and stored.
//
// All of it comes from strangers. Text is cut and cleaned, colors are parsed and written
// anew, raster images are decoded within limits of memory and time and encoded again. An
// SVG icon is not drawn here: a small one of harmless elements is handed on as it is,
// for an <img> (see svg.go). What cannot be read is left out. The package fetches nothing
// and runs nothing: an image on another host is not there.
package thumbnail

import (
	"cmp"
	"context"
	"image"
	"time"
)

// Thumbnail holds what a site looks like. Every field may be empty.
type Thumbnail struct {
	Title string
	Text  string
	Color string // #rrggbb
	Icon  []byte // PNG of IconSize on each side, or a checked SVG: see IconType
	Image []byte // JPEG, ImageWidth by ImageHeight
}

// budget is the time that one thumbnail may take, all its files together.
const budget = 10 * time.Second

// The measures of what is drawn, in pixels.
const (
	IconSize    = 96
	ImageWidth  = 480
	ImageHeight = 252
)

// The most that is read of one file.
const (
	maxPage     = 512 << 10
	maxManifest = 64 << 10
	maxIcon     = 1 << 20
	maxImage    = 4 << 20
)

// Files reads a site's files.
type Files struct {
	// Page returns the beginning of what the site answers at "/", or nothing.
	Page func(limit int64) []byte
	// File returns the whole file at a path without a leading slash, or nothing when
	// there is none or when it is longer than limit.
	File func(path string, limit int64) []byte
}

// Of returns the thumbnail of a site. It takes at most ten seconds; what is not decoded
// by then, or when ctx ends, is left out. The caller asks ctx whether it is complete.
func Of(ctx context.Context, f Files) Thumbnail {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	h := readHead(f.Page(maxPage))
	if h.manifest != "" {
		h.readManifest(f.File(h.manifest, maxManifest))
	}
	p := Thumbnail{
		Title: clean(cmp.Or(h.title, h.ogTitle, h.heading), 80),
		Text:  clean(cmp.Or(h.description, h.heading), 200),
	}
	var dominant rgb
	p.Icon, dominant = findIcon(ctx, h, f)
	for _, at := range h.images {
		if ctx.Err() != nil {
			break
		}
		if img := decode(ctx, f.File(at, maxImage)); img != nil && pictorial(img.Bounds()) {
			p.Image = encodeImage(img)
			break
		}
	}
	p.Color = choose(h.colors, dominant)
	return p
}

// pictorial reports whether an image is one that pages are shown by, and not a logo.
func pictorial(b image.Rectangle) bool {
	return b.Dx() >= 240 && 13*b.Dy() <= 10*b.Dx() && b.Dx() <= 3*b.Dy()
}

// findIcon returns the first icon that can be used, the best ones first, and its color
// where it is known.
func findIcon(ctx context.Context, h head, f Files) ([]byte, rgb) {
	for _, c := range h.iconsInOrder() {
		if ctx.Err() != nil {
			break
		}
		b := c.data
		if c.path != "" {
			b = f.File(c.path, maxIcon)
		}
		if harmlessSVG(b) {
			return b, rgb{}
		}
		if img := decode(ctx, b); img != nil {
			return encodeIcon(img), dominantColor(img)
		}
	}
	return nil, rgb{}
}

// IconType returns the media type of a Thumbnail's icon.
func IconType(icon []byte) string {
	if len(icon) > 0 && icon[0] == 0x89 {
		return "image/png"
	}
	return "image/svg+xml"
}
