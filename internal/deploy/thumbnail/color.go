package thumbnail

import (
	"fmt"
	"image"
	"strconv"
	"strings"
)

// rgb is a color; ok is false if there is none.
type rgb struct {
	r, g, b uint8
	ok      bool
}

// String formats the color as #rrggbb.
func (c rgb) String() string {
	if !c.ok {
		return ""
	}
	return fmt.Sprintf("#%02x%02x%02x", c.r, c.g, c.b)
}

// vivid reports whether a color isn't a shade of gray.
func (c rgb) vivid() bool {
	return c.ok && int(max(c.r, c.g, c.b))-int(min(c.r, c.g, c.b)) >= 28
}

// choose returns the first vivid color of those the page names, or else the icon's.
func choose(named []string, icon rgb) string {
	var grey rgb
	for _, s := range named {
		c := parseColor(s)
		if c.vivid() {
			return c.String()
		}
		if c.ok && !grey.ok && (c.r < 0xe0 || c.g < 0xe0 || c.b < 0xe0) {
			grey = c
		}
	}
	if icon.ok && (icon.vivid() || !grey.ok) {
		return icon.String()
	}
	return grey.String()
}

// colorNames are the CSS color names that themes commonly use.
var colorNames = map[string]string{
	"black":         "#000000",
	"white":         "#ffffff",
	"red":           "#ff0000",
	"green":         "#008000",
	"blue":          "#0000ff",
	"navy":          "#000080",
	"teal":          "#008080",
	"purple":        "#800080",
	"orange":        "#ffa500",
	"tomato":        "#ff6347",
	"crimson":       "#dc143c",
	"gold":          "#ffd700",
	"yellow":        "#ffff00",
	"gray":          "#808080",
	"grey":          "#808080",
	"rebeccapurple": "#663399",
	"indigo":        "#4b0082",
	"maroon":        "#800000",
	"olive":         "#808000",
	"lime":          "#00ff00",
	"aqua":          "#00ffff",
	"cyan":          "#00ffff",
	"fuchsia":       "#ff00ff",
	"magenta":       "#ff00ff",
	"silver":        "#c0c0c0",
	"pink":          "#ffc0cb",
	"coral":         "#ff7f50",
	"salmon":        "#fa8072",
	"royalblue":     "#4169e1",
	"steelblue":     "#4682b4",
	"darkgreen":     "#006400",
	"darkblue":      "#00008b",
}

// parseColor parses the usual CSS colors: a name, #rgb, #rrggbb or rgb(…). Alpha is ignored.
func parseColor(s string) rgb {
	s = strings.ToLower(strings.TrimSpace(s))
	if hex, ok := colorNames[s]; ok {
		s = hex
	}
	if hex, ok := strings.CutPrefix(s, "#"); ok {
		if len(hex) == 3 || len(hex) == 4 {
			hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
		}
		if len(hex) != 6 && len(hex) != 8 {
			return rgb{}
		}
		n, err := strconv.ParseUint(hex[:6], 16, 32)
		if err != nil {
			return rgb{}
		}
		return rgb{uint8(n >> 16), uint8(n >> 8), uint8(n), true}
	}
	inside, ok := strings.CutPrefix(strings.Replace(s, "rgba(", "rgb(", 1), "rgb(")
	if !ok || len(inside) > 60 {
		return rgb{}
	}
	parts := strings.FieldsFunc(strings.TrimSuffix(inside, ")"), func(r rune) bool { return r == ' ' || r == ',' || r == '/' })
	if len(parts) < 3 {
		return rgb{}
	}
	var v [3]uint8
	for i := range v {
		number, percent := strings.CutSuffix(parts[i], "%")
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || f != f {
			return rgb{}
		}
		if percent {
			f *= 2.55
		}
		v[i] = uint8(max(0, min(255, f)))
	}
	return rgb{v[0], v[1], v[2], true}
}

// dominantColor returns the most common color of an icon. Vivid colors have more weight than a white or black
// background.
func dominantColor(img image.Image) rgb {
	type bin struct{ weight, r, g, b uint64 }
	var bins [4096]bin // four bits of each channel
	bounds := img.Bounds()
	stepX, stepY := max(1, bounds.Dx()/64), max(1, bounds.Dy()/64)
	for y := bounds.Min.Y; y < bounds.Max.Y; y += stepY {
		for x := bounds.Min.X; x < bounds.Max.X; x += stepX {
			r, g, b, a := img.At(x, y).RGBA()
			if a < 0x8000 {
				continue
			}
			r, g, b = r*0xff/a, g*0xff/a, b*0xff/a
			weight := uint64(1 + (max(r, g, b)-min(r, g, b))/4)
			at := &bins[min(r, 255)>>4<<8|min(g, 255)>>4<<4|min(b, 255)>>4]
			at.weight += weight
			at.r, at.g, at.b = at.r+weight*uint64(r), at.g+weight*uint64(g), at.b+weight*uint64(b)
		}
	}
	best := 0
	for i := range bins {
		if bins[i].weight > bins[best].weight {
			best = i
		}
	}
	w := bins[best].weight
	if w == 0 {
		return rgb{}
	}
	return rgb{uint8(min(255, bins[best].r/w)), uint8(min(255, bins[best].g/w)), uint8(min(255, bins[best].b/w)), true}
}
