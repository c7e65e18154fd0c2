package thumbnail

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
)

// The largest SVG that is handed on, and how deep its elements nest.
const (
	maxSVG      = 48 << 10 // bytes
	maxSVGDepth = 32
)

// svgElements are the elements an icon may hold. use, pattern, marker, image, animations,
// scripts and foreign content are missing: the first three let a few hundred bytes draw
// for ever, the others do more than being displayed.
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

// harmlessSVG reports whether b is an SVG that a browser may be given in an <img>: whole,
// small, of plain elements, and with nothing in it that refers to another address, runs,
// or multiplies what there is to draw. We don't draw SVG ourselves: that took 900 lines,
// and 18 KB of it took minutes.
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
			if style > 0 { // it could hide a word from us by splitting it
				return false
			}
		case xml.Directive: // <!DOCTYPE, with the entities it may define
			return false
		case xml.ProcInst:
			if t.Target != "xml" { // xml-stylesheet loads a file
				return false
			}
		}
	}
}

// harmlessAttr reports whether an attribute only says how something looks. What is inside
// a mask, a clip path or a filter may not be masked again: each level would multiply
// what there is to draw.
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

// harmlessCSS reports whether a style sheet loads nothing, refers to nothing and moves
// nothing. Media queries for dark mode are common in icons.
func harmlessCSS(css string) bool {
	return !strings.ContainsRune(css, '\\') && !strings.Contains(css, "url") && !strings.Contains(css, "animation") &&
		strings.Count(css, "@") == strings.Count(css, "@media")
}
