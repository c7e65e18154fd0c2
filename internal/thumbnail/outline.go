package thumbnail

import (
	"math"
	"strconv"
	"strings"

	"golang.org/x/image/vector"
)

type point struct{ x, y float64 }

// matrix is an affine transform as SVG writes it: a b c d e f.
type matrix [6]float64

func (m matrix) of(p point) point {
	return point{m[0]*p.x + m[2]*p.y + m[4], m[1]*p.x + m[3]*p.y + m[5]}
}

// times is first n, then m.
func (m matrix) times(n matrix) matrix {
	return matrix{m[0]*n[0] + m[2]*n[1], m[1]*n[0] + m[3]*n[1], m[0]*n[2] + m[2]*n[3], m[1]*n[2] + m[3]*n[3],
		m[0]*n[4] + m[2]*n[5] + m[4], m[1]*n[4] + m[3]*n[5] + m[5]}
}

// scale is by how much lengths grow, on the whole.
func (m matrix) scale() float64 { return math.Sqrt(math.Abs(m[0]*m[3] - m[1]*m[2])) }

// parseTransform reads a list of transforms; what it doesn't know changes nothing.
func parseTransform(s string) matrix {
	out := matrix{1, 0, 0, 1, 0, 0}
	for range 16 {
		name, rest, ok := strings.Cut(s, "(")
		if !ok {
			break
		}
		inside, after, _ := strings.Cut(rest, ")")
		s = after
		v := append(numbers(inside, 6), make([]float64, 6)...)
		n := len(v) - 6
		sin, cos := math.Sincos(v[0] * math.Pi / 180)
		switch strings.Trim(name, " ,\n\t") {
		case "matrix":
			if n == 6 {
				out = out.times(matrix(v[:6]))
			}
		case "translate":
			out = out.times(matrix{1, 0, 0, 1, v[0], v[1]})
		case "scale":
			if n == 1 {
				v[1] = v[0]
			}
			out = out.times(matrix{v[0], 0, 0, v[1], 0, 0})
		case "rotate":
			out = out.times(matrix{1, 0, 0, 1, v[1], v[2]}).times(matrix{cos, sin, -sin, cos, 0, 0}).times(matrix{1, 0, 0, 1, -v[1], -v[2]})
		case "skewX":
			out = out.times(matrix{1, 0, math.Tan(v[0] * math.Pi / 180), 1, 0, 0})
		case "skewY":
			out = out.times(matrix{1, math.Tan(v[0] * math.Pi / 180), 0, 1, 0, 0})
		}
	}
	return out
}

// numbers reads at most n numbers, however they are set apart.
func numbers(s string, n int) (out []float64) {
	r := reader{s: s}
	for len(out) < n {
		f, ok := r.number()
		if !ok {
			break
		}
		out = append(out, f)
	}
	return out
}

// reader reads the numbers and commands of a path.
type reader struct{ s string }

func (r *reader) skip() { r.s = strings.TrimLeft(r.s, " ,\t\r\n") }

// number reads "-1.5e3", and of "1.5.5" and "1-2" the first.
func (r *reader) number() (float64, bool) {
	r.skip()
	i, dot, digits := 0, false, false
	for ; i < len(r.s) && i < 40; i++ {
		switch c := r.s[i]; {
		case c >= '0' && c <= '9':
			digits = true
			continue
		case (c == '-' || c == '+') && i == 0:
			continue
		case c == '.' && !dot:
			dot = true
			continue
		case (c == 'e' || c == 'E') && digits && i+1 < len(r.s):
			j := i + 1
			if r.s[j] == '-' || r.s[j] == '+' {
				j++
			}
			for k := j; ; k++ {
				if k == len(r.s) || r.s[k] < '0' || r.s[k] > '9' {
					if k > j {
						i = k
					}
					break
				}
			}
		}
		break
	}
	f, err := strconv.ParseFloat(r.s[:i], 64)
	if !digits || err != nil || f != f {
		return 0, false
	}
	r.s = r.s[i:]
	return max(-1e6, min(1e6, f)), true
}

// flag reads the 0 or 1 of an arc, which may stand without a space behind it.
func (r *reader) flag() (bool, bool) {
	r.skip()
	if r.s == "" || r.s[0] != '0' && r.s[0] != '1' {
		return false, false
	}
	on := r.s[0] == '1'
	r.s = r.s[1:]
	return on, true
}

// line is one part of an outline, made of straight lines.
type line struct {
	points []point
	closed bool
}

// pen draws outlines.
type pen struct {
	lines []line
	left  int // points that may still be drawn
}

func (p *pen) move(to point) { p.lines = append(p.lines, line{points: []point{to}}); p.left-- }

func (p *pen) to(q point) {
	if p.left <= 0 || len(p.lines) == 0 {
		return
	}
	l := &p.lines[len(p.lines)-1]
	if l.closed { // what goes on behind a Z begins where that began
		p.move(l.points[0])
		l = &p.lines[len(p.lines)-1]
	}
	l.points = append(l.points, q)
	p.left--
}

func (p *pen) close() {
	if n := len(p.lines); n > 0 {
		p.lines[n-1].closed = true
	}
}

func (p *pen) curve(a, b, c, d point) {
	const n = 12
	for i := 1; i <= n; i++ {
		t := float64(i) / n
		u := 1 - t
		at := func(a, b, c, d float64) float64 { return u*u*u*a + 3*u*u*t*b + 3*u*t*t*c + t*t*t*d }
		p.to(point{at(a.x, b.x, c.x, d.x), at(a.y, b.y, c.y, d.y)})
	}
}

// arc draws an elliptic arc as SVG gives it (SVG 2, appendix B.2).
func (p *pen) arc(from point, rx, ry, turned float64, large, sweep bool, to point) {
	rx, ry = math.Abs(rx), math.Abs(ry)
	if rx < 1e-6 || ry < 1e-6 || from == to {
		p.to(to)
		return
	}
	sin, cos := math.Sincos(turned * math.Pi / 180)
	hx, hy := (from.x-to.x)/2, (from.y-to.y)/2
	x, y := cos*hx+sin*hy, cos*hy-sin*hx
	if l := x*x/(rx*rx) + y*y/(ry*ry); l > 1 {
		rx, ry = rx*math.Sqrt(l), ry*math.Sqrt(l)
	}
	f := math.Sqrt(max(0, (rx*rx*ry*ry-rx*rx*y*y-ry*ry*x*x)/(rx*rx*y*y+ry*ry*x*x)))
	if large == sweep {
		f = -f
	}
	cx, cy := f*rx*y/ry, -f*ry*x/rx
	begin, end := math.Atan2((y-cy)/ry, (x-cx)/rx), math.Atan2((-y-cy)/ry, (-x-cx)/rx)
	turn := end - begin
	switch {
	case sweep && turn < 0:
		turn += 2 * math.Pi
	case !sweep && turn > 0:
		turn -= 2 * math.Pi
	}
	n := max(1, int(math.Ceil(math.Abs(turn)/(math.Pi/16))))
	for i := 1; i < n; i++ {
		s, c := math.Sincos(begin + turn*float64(i)/float64(n))
		ex, ey := rx*c+cx, ry*s+cy
		p.to(point{cos*ex - sin*ey + (from.x+to.x)/2, sin*ex + cos*ey + (from.y+to.y)/2})
	}
	p.to(to)
}

func (p *pen) ellipse(cx, cy, rx, ry float64) {
	if rx <= 0 || ry <= 0 {
		return
	}
	p.move(point{cx + rx, cy})
	p.arc(point{cx + rx, cy}, rx, ry, 0, false, true, point{cx - rx, cy})
	p.arc(point{cx - rx, cy}, rx, ry, 0, false, true, point{cx + rx, cy})
	p.close()
}

// outline returns what a shape looks like, of at most so many points.
func outline(e element, most int) []line {
	p := &pen{left: most}
	n := e.number
	switch e.name {
	case "path":
		p.path(e.attrs["d"])
	case "rect":
		p.rect(n("x"), n("y"), n("width"), n("height"), n("rx"), n("ry"))
	case "circle":
		p.ellipse(n("cx"), n("cy"), n("r"), n("r"))
	case "ellipse":
		p.ellipse(n("cx"), n("cy"), n("rx"), n("ry"))
	case "line":
		p.move(point{n("x1"), n("y1")})
		p.to(point{n("x2"), n("y2")})
	case "polyline", "polygon":
		v := numbers(e.attrs["points"], 2*most)
		for i := 0; i+1 < len(v); i += 2 {
			if i == 0 {
				p.move(point{v[0], v[1]})
			} else {
				p.to(point{v[i], v[i+1]})
			}
		}
		if e.name == "polygon" {
			p.close()
		}
	}
	return p.lines
}

func (p *pen) rect(x, y, w, h, rx, ry float64) {
	if w <= 0 || h <= 0 {
		return
	}
	if rx <= 0 {
		rx = ry
	}
	if ry <= 0 {
		ry = rx
	}
	rx, ry = max(0, min(rx, w/2)), max(0, min(ry, h/2))
	corner := func(from, to point) {
		p.to(from)
		if rx > 0 {
			p.arc(from, rx, ry, 0, false, true, to)
		}
	}
	p.move(point{x + rx, y})
	corner(point{x + w - rx, y}, point{x + w, y + ry})
	corner(point{x + w, y + h - ry}, point{x + w - rx, y + h})
	corner(point{x + rx, y + h}, point{x, y + h - ry})
	corner(point{x, y + ry}, point{x + rx, y})
	p.close()
}

// polygon traces a closed outline. What lies far outside is drawn in: it can't be seen.
func polygon(r *vector.Rasterizer, points []point) {
	for i, q := range points {
		x, y := float32(max(-1000, min(1000, q.x))), float32(max(-1000, min(1000, q.y)))
		if i == 0 {
			r.MoveTo(x, y)
		} else {
			r.LineTo(x, y)
		}
	}
	r.ClosePath()
}

// stroke traces a line of some width: a box for each piece and a disc for each joint, all
// of them turning the same way, so that where they overlap nothing is taken out.
func stroke(r *vector.Rasterizer, l line, width float64, round bool) {
	points := l.points
	if l.closed {
		points = append(points[:len(points):len(points)], points[0])
	}
	h := width / 2
	for i, q := range points {
		if i > 0 {
			p := points[i-1]
			length := math.Hypot(q.x-p.x, q.y-p.y)
			if length > 1e-9 {
				nx, ny := -(q.y-p.y)/length*h, (q.x-p.x)/length*h
				polygon(r, []point{{p.x + nx, p.y + ny}, {q.x + nx, q.y + ny}, {q.x - nx, q.y - ny}, {p.x - nx, p.y - ny}})
			}
		}
		inside := i > 0 && i < len(points)-1
		if h > .6 && (inside || round || l.closed) {
			disc := make([]point, 12)
			for k := range disc {
				sin, cos := math.Sincos(-2 * math.Pi * float64(k) / float64(len(disc)))
				disc[k] = point{q.x + h*cos, q.y + h*sin}
			}
			polygon(r, disc)
		}
	}
}

// alternate turns the parts of an outline so that what is drawn the other way round is a
// hole where the even-odd rule has one.
func alternate(lines []line) {
	if len(lines) > 64 {
		return
	}
	for i, l := range lines {
		depth := 0
		for j, other := range lines {
			if i != j && contains(other.points, l.points[0]) {
				depth++
			}
		}
		if (area(l.points) > 0) != (depth%2 == 0) {
			for a, b := 0, len(l.points)-1; a < b; a, b = a+1, b-1 {
				l.points[a], l.points[b] = l.points[b], l.points[a]
			}
		}
	}
}

func area(points []point) (sum float64) {
	for i, p := range points {
		q := points[(i+1)%len(points)]
		sum += p.x*q.y - q.x*p.y
	}
	return sum
}

func contains(points []point, at point) (in bool) {
	for i, p := range points {
		q := points[(i+1)%len(points)]
		if (p.y > at.y) != (q.y > at.y) && at.x < (q.x-p.x)*(at.y-p.y)/(q.y-p.y)+p.x {
			in = !in
		}
	}
	return in
}
