// Package thumbnail owns what a site looks like at a glance: its title, what it says of
// itself, its colour, an icon and a picture, taken from the files of its release.
//
// All of it comes from strangers. Text is cut and cleaned, colours are read and written
// anew, pictures are decoded within limits and encoded again, and of SVG the plain parts
// are drawn here, so that what goes out is of our own making and nothing else. What cannot be read is left out. The package
// fetches nothing and runs nothing: a picture that lies on another host is not there.
package thumbnail

import (
	"cmp"
	"image"
)

// Portrait is what a site looks like. Every field may be empty.
type Portrait struct {
	Title  string
	Text   string
	Colour string // #rrggbb
	Icon   []byte // PNG, IconSize on each side
	Image  []byte // JPEG, ImageWidth by ImageHeight
}

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

// Of draws the portrait of a site.
func Of(f Files) Portrait {
	h := readHead(f.Page(maxPage))
	if h.manifest != "" {
		h.readManifest(f.File(h.manifest, maxManifest))
	}
	p := Portrait{
		Title: clean(cmp.Or(h.title, h.ogTitle, h.heading), 80),
		Text:  clean(cmp.Or(h.description, h.heading), 200),
	}
	var dominant rgb
	if img := findIcon(h, f); img != nil {
		dominant = dominantColour(img)
		p.Icon = encodeIcon(img)
	}
	for _, at := range h.images {
		if img := decode(f.File(at, maxImage)); img != nil && pictorial(img.Bounds()) {
			p.Image = encodeImage(img)
			break
		}
	}
	p.Colour = choose(h.colours, dominant)
	return p
}

// pictorial reports whether an image is one that pages are shown by, and not a logo.
func pictorial(b image.Rectangle) bool {
	return b.Dx() >= 240 && 13*b.Dy() <= 10*b.Dx() && b.Dx() <= 3*b.Dy()
}

// findIcon returns the first icon that can be decoded, the best ones first.
func findIcon(h head, f Files) image.Image {
	for _, c := range h.iconsInOrder() {
		b := c.data
		if c.path != "" {
			b = f.File(c.path, maxIcon)
		}
		if img := decode(b); img != nil {
			return img
		}
		if img := decodeSVG(b); img != nil {
			return img
		}
	}
	return nil
}
