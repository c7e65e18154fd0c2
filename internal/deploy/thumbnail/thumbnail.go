// Package thumbnail owns what represents a site in lists: its title, description, color, icon and picture, taken from
// the files of its release when that goes live.
//
// All of it is untrusted. Text is truncated and cleaned, colors are parsed and formatted again, and raster images are
// decoded within limits of memory and time and encoded again. A small, harmless SVG icon is served unchanged for an
// <img> (see svg.go). What can't be read is left out. The package fetches nothing and runs nothing, so images on other
// hosts are ignored.
package thumbnail

import (
	"cmp"
	"context"
	"image"
	"time"
)

// Thumbnail represents a site in lists. Every field may be empty.
type Thumbnail struct {
	Title string
	Text  string
	Color string // #rrggbb
	Icon  []byte // PNG of IconSize pixels per side, or a checked SVG: see IconType
	Image []byte // JPEG, ImageWidth by ImageHeight
}

// budget is the time for one thumbnail with all its files.
const budget = 10 * time.Second

// Sizes in pixels.
const (
	IconSize    = 96
	ImageWidth  = 480
	ImageHeight = 252
)

// Limits in bytes of one file.
const (
	maxPage     = 512 << 10
	maxManifest = 64 << 10
	maxIcon     = 1 << 20
	maxImage    = 4 << 20
)

// Files reads a site's files.
type Files struct {
	// Page returns at most limit bytes of the site's answer at "/", or nothing.
	Page func(limit int64) []byte
	// File returns the file at a path without a leading slash, or nothing if it is missing or longer than limit.
	File func(path string, limit int64) []byte
}

// Of returns the thumbnail of a site, in at most ten seconds. Images that aren't decoded by then, or when ctx ends, are
// left out. The caller must check ctx to know whether it is complete.
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

// pictorial reports whether an image has the shape of a preview picture rather than a logo.
func pictorial(b image.Rectangle) bool {
	return b.Dx() >= 240 && 13*b.Dy() <= 10*b.Dx() && b.Dx() <= 3*b.Dy()
}

// findIcon returns the first usable icon, best first, and its color if known.
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
