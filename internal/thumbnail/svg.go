package thumbnail

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"

	"golang.org/x/image/vector"
)

// The most of a drawing that is drawn: more is no icon.
const (
	maxDrawing = 128 << 10 // bytes
	maxParts   = 5000      // elements
	maxShapes  = 2000
	maxPoints  = 20_000
	maxDepth   = 32
)

// decodeSVG draws the plain parts of an SVG icon: shapes, paths, groups, transforms, solid
// colours, strokes, and gradients as their mean colour. The rest is left out: text,
// pictures, references, filters, masks, scripts. Nothing in it can refer to anything, so
// it is drawn in one pass and ends.
func decodeSVG(b []byte) (img image.Image) {
	defer survive(&img)
	if len(b) > maxDrawing || !bytes.Contains(b[:min(len(b), 4096)], []byte("<svg")) {
		return nil
	}
	d := &drawing{out: image.NewRGBA(image.Rect(0, 0, IconSize, IconSize)), means: map[string]rgb{}}
	// What shapes are painted with may stand behind them.
	if d.read(b, (*drawing).paints, true) != nil || d.read(b, (*drawing).shape, false) != nil {
		return nil
	}
	for i := 3; i < len(d.out.Pix); i += 4 {
		if d.out.Pix[i] > 0x40 {
			return d.out
		}
	}
	return nil // what there is to see is made of something else
}

// drawing is an SVG being drawn.
type drawing struct {
	out    *image.RGBA
	rules  rules
	means  map[string]rgb // of gradients, by id
	within string         // the gradient whose stops are being read
	stops  []rgb
	shapes int
	points int
}

// state is what an element inherits.
type state struct {
	at                      matrix
	fill, stroke, current   rgb
	width                   float64
	alpha, fillA, strokeA   float64
	evenOdd, round, skipped bool
}

type element struct {
	name  string
	attrs map[string]string // properties of its style and of rules too
	state state
}

func (e element) number(name string) float64 { return measure(e.attrs[name]) }

// read walks through the elements and calls visit for each, and reads style sheets if it
// is told to.
func (d *drawing) read(b []byte, visit func(*drawing, element), sheets bool) error {
	x := xml.NewDecoder(bytes.NewReader(b))
	x.Strict = false
	x.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	black := rgb{ok: true}
	stack := []state{{at: matrix{1, 0, 0, 1, 0, 0}, fill: black, current: black, width: 1, alpha: 1, fillA: 1, strokeA: 1}}
	rooted, styled, parts := false, false, 0
	for {
		t, err := x.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if parts++; parts > maxParts || len(stack) > maxDepth {
				return errors.New("too much for an icon")
			}
			e := d.element(t, stack[len(stack)-1], !rooted)
			rooted = rooted || e.name == "svg"
			styled = sheets && e.name == "style"
			visit(d, e)
			stack = append(stack, e.state)
		case xml.EndElement:
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			styled = false
		case xml.CharData:
			if styled {
				d.rules.add(string(t))
			}
		}
	}
}

// skipped are elements whose content is not drawn where it stands.
var skipped = map[string]bool{"defs": true, "clipPath": true, "mask": true, "symbol": true, "pattern": true, "marker": true, "filter": true,
	"text": true, "foreignObject": true, "script": true, "style": true, "title": true, "desc": true, "metadata": true}

func (d *drawing) element(t xml.StartElement, s state, root bool) element {
	e := element{name: t.Name.Local, attrs: map[string]string{}}
	for _, a := range t.Attr {
		e.attrs[a.Name.Local] = strings.TrimSpace(a.Value)
	}
	for _, r := range d.rules {
		if r.matches(e) {
			declare(e.attrs, r.text)
		}
	}
	declare(e.attrs, e.attrs["style"])
	s.skipped = s.skipped || skipped[e.name] || e.attrs["display"] == "none" || e.attrs["visibility"] == "hidden"
	if root && e.name == "svg" {
		s.at = frame(e)
	} else {
		s.at = s.at.times(parseTransform(e.attrs["transform"]))
	}
	if c := parseColour(e.attrs["color"]); c.ok {
		s.current = c
	}
	d.paint(e.attrs["fill"], &s.fill, s.current)
	d.paint(e.attrs["stroke"], &s.stroke, s.current)
	if v, ok := e.attrs["stroke-width"]; ok {
		s.width = measure(v)
	}
	share(e.attrs["fill-opacity"], &s.fillA, 1)
	share(e.attrs["stroke-opacity"], &s.strokeA, 1)
	share(e.attrs["opacity"], &s.alpha, s.alpha)
	if v, ok := e.attrs["fill-rule"]; ok {
		s.evenOdd = v == "evenodd"
	}
	if v, ok := e.attrs["stroke-linecap"]; ok {
		s.round = v == "round"
	}
	e.state = s
	return e
}

// paint sets what fill or stroke says; empty is inherited.
func (d *drawing) paint(v string, to *rgb, current rgb) {
	switch {
	case v == "", v == "inherit":
	case v == "none", v == "transparent":
		*to = rgb{}
	case strings.EqualFold(v, "currentColor"):
		*to = current
	case strings.HasPrefix(v, "url("):
		id, _, _ := strings.Cut(v[4:], ")")
		*to = d.means[strings.TrimPrefix(strings.Trim(id, `"' `), "#")]
	default:
		if c := parseColour(v); c.ok {
			*to = c
		}
	}
}

// share reads an opacity.
func share(v string, to *float64, of float64) {
	number, percent := strings.CutSuffix(v, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || f != f {
		return
	}
	if percent {
		f /= 100
	}
	*to = of * max(0, min(1, f))
}

// measure reads a length; what is no number is 0.
func measure(v string) float64 {
	f, err := strconv.ParseFloat(strings.TrimRight(strings.TrimSpace(v), "abcdefghijklmnopqrstuvwxyz%"), 64)
	if err != nil || f != f {
		return 0
	}
	return max(-1e6, min(1e6, f))
}

// frame places a drawing's own measures in the icon.
func frame(e element) matrix {
	box := numbers(e.attrs["viewBox"], 4)
	if len(box) < 4 || box[2] <= 0 || box[3] <= 0 {
		box = []float64{0, 0, e.number("width"), e.number("height")}
	}
	if box[2] <= 0 || box[3] <= 0 {
		box = []float64{0, 0, 100, 100}
	}
	f := min(IconSize/box[2], IconSize/box[3])
	return matrix{f, 0, 0, f, (IconSize-f*box[2])/2 - f*box[0], (IconSize-f*box[3])/2 - f*box[1]}
}

// paints notes the mean colours of gradients. Stops stand right inside of them.
func (d *drawing) paints(e element) {
	switch e.name {
	case "linearGradient", "radialGradient":
		d.within, d.stops = e.attrs["id"], nil
		// It may have the stops of one before it.
		if c, ok := d.means[strings.TrimPrefix(e.attrs["href"], "#")]; ok && len(d.means) < maxShapes {
			d.means[d.within] = c
		}
	case "stop":
		c := parseColour(e.attrs["stop-color"])
		if !c.ok || len(d.stops) > 64 || len(d.means) > maxShapes {
			return
		}
		d.stops = append(d.stops, c)
		var r, g, b int
		for _, s := range d.stops {
			r, g, b = r+int(s.r), g+int(s.g), b+int(s.b)
		}
		n := len(d.stops)
		d.means[d.within] = rgb{uint8(r / n), uint8(g / n), uint8(b / n), true}
	}
}

// shape draws an element.
func (d *drawing) shape(e element) {
	s := e.state
	if s.skipped {
		return
	}
	p := outline(e, maxPoints-d.points)
	if len(p) == 0 || d.shapes >= maxShapes {
		return
	}
	d.shapes++
	for i := range p {
		d.points += len(p[i].points)
		for j, q := range p[i].points {
			p[i].points[j] = s.at.of(q)
		}
	}
	if s.fill.ok {
		if s.evenOdd {
			alternate(p)
		}
		d.cover(s.fill, s.alpha*s.fillA, func(r *vector.Rasterizer) {
			for _, l := range p {
				polygon(r, l.points)
			}
		})
	}
	if width := s.width * s.at.scale(); s.stroke.ok && width > 0 {
		d.cover(s.stroke, s.alpha*s.strokeA, func(r *vector.Rasterizer) {
			for _, l := range p {
				stroke(r, l, min(width, 2*IconSize), s.round)
			}
		})
	}
}

// cover paints what trace outlines.
func (d *drawing) cover(c rgb, alpha float64, trace func(*vector.Rasterizer)) {
	r := vector.NewRasterizer(IconSize, IconSize)
	trace(r)
	r.Draw(d.out, d.out.Bounds(), image.NewUniform(color.NRGBA{c.r, c.g, c.b, uint8(math.Round(255 * alpha))}), image.Point{})
}

// rule is one of a style sheet; text are its declarations.
type rule struct{ selector, text string }

type rules []rule

// add reads the simple rules of a style sheet: an element, a class or an id alone. Rules
// for some screens only, and everything else, are left out.
func (rs *rules) add(css string) {
	for len(*rs) < 200 {
		selectors, rest, ok := strings.Cut(css, "{")
		if !ok {
			return
		}
		if strings.Contains(selectors, "@") {
			depth, i := 1, 0
			for ; i < len(rest) && depth > 0; i++ {
				switch rest[i] {
				case '{':
					depth++
				case '}':
					depth--
				}
			}
			css = rest[i:]
			continue
		}
		text, after, _ := strings.Cut(rest, "}")
		css = after
		if len(text) > 1000 {
			continue // it would be read for every element
		}
		for one := range strings.SplitSeq(selectors, ",") {
			*rs = append(*rs, rule{strings.TrimSpace(one), text})
		}
	}
}

func (r rule) matches(e element) bool {
	switch {
	case strings.HasPrefix(r.selector, "."):
		for class := range strings.FieldsSeq(e.attrs["class"]) {
			if class == r.selector[1:] {
				return true
			}
		}
		return false
	case strings.HasPrefix(r.selector, "#"):
		return e.attrs["id"] == r.selector[1:]
	}
	return r.selector == e.name || r.selector == "*"
}

// declare puts declarations among the attributes.
func declare(attrs map[string]string, text string) {
	for one := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(one, ":"); ok {
			attrs[strings.TrimSpace(name)] = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "!important"))
		}
	}
}
