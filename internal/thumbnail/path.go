package thumbnail

// path draws the data of a path (SVG 2, chapter 9). It ends at the first mistake, as
// browsers do.
func (p *pen) path(data string) {
	r := reader{s: data}
	var at, begin, last point // where the pen is, where the part began, the last control point
	var command, before byte
	read := func(n int) ([]float64, bool) {
		out := make([]float64, n)
		for i := range out {
			f, ok := r.number()
			if !ok {
				return nil, false
			}
			out[i] = f
		}
		return out, true
	}
	for p.left > 0 {
		r.skip()
		if r.s == "" {
			return
		}
		if c := r.s[0]; c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			command, r.s = c, r.s[1:]
		} else if command == 0 || command == 'Z' || command == 'z' {
			return
		}
		from := point{}
		if command >= 'a' {
			from = at
		}
		pt := func(v []float64, i int) point { return point{from.x + v[i], from.y + v[i+1]} }
		upper := command &^ 0x20
		if len(p.lines) == 0 && upper != 'M' {
			return
		}
		mirrored := point{2*at.x - last.x, 2*at.y - last.y}
		switch upper {
		case 'M':
			v, ok := read(2)
			if !ok {
				return
			}
			at = pt(v, 0)
			begin = at
			p.move(at)
			command = 'L' | command&0x20 // further pairs are lines
		case 'L':
			v, ok := read(2)
			if !ok {
				return
			}
			at = pt(v, 0)
			p.to(at)
		case 'H':
			v, ok := read(1)
			if !ok {
				return
			}
			at.x = from.x + v[0]
			p.to(at)
		case 'V':
			v, ok := read(1)
			if !ok {
				return
			}
			at.y = from.y + v[0]
			p.to(at)
		case 'C', 'S':
			n := 6
			if upper == 'S' {
				n = 4
			}
			v, ok := read(n)
			if !ok {
				return
			}
			one := mirrored
			if upper == 'C' {
				one = pt(v, 0)
			} else if before != 'C' && before != 'S' {
				one = at
			}
			last = pt(v, n-4)
			to := pt(v, n-2)
			p.curve(at, one, last, to)
			at = to
		case 'Q', 'T':
			n := 4
			if upper == 'T' {
				n = 2
			}
			v, ok := read(n)
			if !ok {
				return
			}
			if upper == 'Q' {
				last = pt(v, 0)
			} else if last = mirrored; before != 'Q' && before != 'T' {
				last = at
			}
			to := pt(v, n-2)
			third := func(a, b float64) float64 { return a + (b-a)*2/3 }
			p.curve(at, point{third(at.x, last.x), third(at.y, last.y)}, point{third(to.x, last.x), third(to.y, last.y)}, to)
			at = to
		case 'A':
			v, ok := read(3)
			large, ok1 := r.flag()
			sweep, ok2 := r.flag()
			to, ok3 := read(2)
			if !ok || !ok1 || !ok2 || !ok3 {
				return
			}
			end := pt(to, 0)
			p.arc(at, v[0], v[1], v[2], large, sweep, end)
			at = end
		case 'Z':
			p.close()
			at = begin
		default:
			return
		}
		before = upper
	}
}
