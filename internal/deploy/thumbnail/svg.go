package thumbnail

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
)

// Limits of an SVG that is served as an icon.
const (
	maxSVG      = 48 << 10 // bytes
	maxSVGDepth = 32
)

// svgElements lists the elements that an icon may have. It excludes use, pattern and marker, because a few hundred
// bytes of them can take forever to draw, and image, animations, scripts and foreign content, because they do more than
// draw.
var svgElements = map[string]bool{
	"svg":            true,
	"g":              true,
	"path":           true,
	"rect":           true,
	"circle":         true,
	"ellipse":        true,
	"line":           true,
	"polyline":       true,
	"polygon":        true,
	"defs":           true,
	"title":          true,
	"desc":           true,
	"metadata":       true,
	"style":          true,
	"linearGradient": true,
	"radialGradient": true,
	"stop":           true,
	"clipPath":       true,
	"mask":           true,
	"filter":         true,
	"feGaussianBlur": true,
	"feOffset":       true,
	"feBlend":        true,
	"feFlood":        true,
	"feColorMatrix":  true,
	"feComposite":    true,
	"feMerge":        true,
	"feMergeNode":    true,
}

// harmlessSVG reports whether b is an SVG that is safe in an <img>: well-formed, small, of plain elements, and without
// references to other addresses, scripts, or constructs that multiply what must be drawn. Slipway doesn't render SVG
// itself: a renderer took 900 lines, and an SVG of 18 KB kept it busy for minutes.
func harmlessSVG(b []byte) bool {
	if len(b) > maxSVG || !bytes.Contains(b[:min(len(b), 4096)], []byte("<svg")) {
		return false
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	depth, within, painted := 0, 0, false // within: depth of the outermost clipPath, mask or filter
	style := 0
	for {
		t, err := d.Token()
		if err == io.EOF {
			return depth == 0 && painted
		}
		if err != nil {
			return false
		}
		switch t := t.(type) {
		case xml.StartElement:
			name := t.Name.Local
			depth++
			if depth > maxSVGDepth || !svgElements[name] || depth == 1 && name != "svg" {
				return false
			}
			for _, a := range t.Attr {
				if !harmlessAttr(a, within > 0) {
					return false
				}
			}
			switch name {
			case "clipPath", "mask", "filter":
				if within == 0 {
					within = depth
				}
			case "style":
				style = depth
			case "path", "rect", "circle", "ellipse", "line", "polyline", "polygon":
				painted = true
			}
		case xml.EndElement:
			if within == depth {
				within = 0
			}
			if style == depth {
				style = 0
			}
			depth--
		case xml.CharData:
			if style > 0 && !harmlessCSS(strings.ToLower(string(t))) {
				return false
			}
		case xml.Comment:
			if style > 0 { // an element could split a word to hide it from the check
				return false
			}
		case xml.Directive: // <!DOCTYPE, which may define entities
			return false
		case xml.ProcInst:
			if t.Target != "xml" { // xml-stylesheet loads a file
				return false
			}
		}
	}
}

// harmlessAttr reports whether an attribute only affects appearance. Masks, clip paths and filters may not be nested:
// each level multiplies what must be drawn.
func harmlessAttr(a xml.Attr, masked bool) bool {
	name, value := strings.ToLower(a.Name.Local), strings.ToLower(a.Value)
	if strings.HasPrefix(name, "on") || strings.ContainsRune(value, '\\') {
		return false
	}
	if name == "href" && !strings.HasPrefix(value, "#") {
		return false
	}
	rest := value
	for {
		_, after, found := strings.Cut(rest, "url(")
		if !found {
			return true
		}
		after = strings.TrimLeft(after, " \"'")
		if masked || !strings.HasPrefix(after, "#") {
			return false
		}
		rest = after
	}
}

// harmlessCSS reports whether a style sheet loads, references and animates nothing. Media queries are allowed: icons
// often have one for dark mode.
func harmlessCSS(css string) bool {
	return !strings.ContainsRune(css, '\\') && !strings.Contains(css, "url") && !strings.Contains(css, "animation") &&
		strings.Count(css, "@") == strings.Count(css, "@media")
}
