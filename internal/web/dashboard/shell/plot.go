package shell

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
)

// Plot is a bar chart rendered on the server. Widths are relative and texts are outside the stretched part, so that one
// drawing fits every screen.
type Plot struct {
	ID     string // unique in the page
	Title  string
	Sum    string // the total in words
	Series []PlotSeries
	Says   string // description for screen readers
	Empty  bool   // whether all values are zero
	Tops   []string
	Bars   template.HTML
	Days   template.HTML // labels below the bars
}

// PlotSeries is one of the stacked series with its CSS class.
type PlotSeries struct{ Name, Class string }

// Bar holds the values of one time step, one per series from the bottom up.
type Bar struct {
	At     db.Time
	Values []int64
	Says   string
}

// Draw renders bars of one step each. unit formats the axis values.
func (p *Plot) Draw(bars []Bar, step time.Duration, top int64, unit func(int64) string) {
	p.Tops = []string{unit(top), unit(top / 2), "0"}
	if top < 2 {
		p.Tops = []string{unit(top), "", "0"}
	}
	// One path per series, with bars 1 wide in a plot 1000 high, and rectangles above for the pointer. Separate
	// elements for each value would double the page's size.
	paths := make([]strings.Builder, len(p.Series))
	var hits strings.Builder
	for i, x := range bars {
		fmt.Fprintf(&hits, `<g><title>%s</title><path d="M%d 0h1v1000h-1z"/></g>`, template.HTMLEscapeString(x.Says), i)
		from := 1000
		for s, v := range x.Values {
			if v <= 0 {
				continue
			}
			tall := max(int(math.Round(1000*float64(v)/float64(top))), 7) // keep small values visible
			from = max(0, from-tall)
			fmt.Fprintf(&paths[s], "M%s %dh.84v%dh-.84z", number(float64(i)+.08), from, tall)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d 1000" preserveAspectRatio="none">`, max(1, len(bars)))
	p.Empty = true
	for s := range paths {
		if d := paths[s].String(); d != "" {
			p.Empty = false
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, p.Series[s].Class, d)
		}
	}
	b.WriteString(hits.String() + `</svg>`)
	p.Bars = template.HTML(b.String()) // generated numbers and classes, escaped texts
	p.Days = ticks(bars, step)
}

// number formats a number with at most two decimals.
func number(f float64) string { return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) }

// ticks labels round times below the bars.
func ticks(bars []Bar, step time.Duration) template.HTML {
	span := step * time.Duration(len(bars))
	each, format := 4*time.Hour, "15:04"
	switch {
	case span > 200*24*time.Hour:
		each, format = 0, "Jan" // months differ in length
	case span > 45*24*time.Hour:
		each, format = 14*24*time.Hour, "2 Jan"
	case span > 10*24*time.Hour:
		each, format = 5*24*time.Hour, "2 Jan"
	case span > 2*24*time.Hour:
		each, format = 24*time.Hour, "Mon 2"
	}
	var b strings.Builder
	class := "" // class of every second tick, hidden on narrow screens
	for i, x := range bars {
		at := x.At.Time()
		round := each > 0 && at.Unix()%int64(each/time.Second) == 0
		if each == 0 {
			round = i > 0 && at.Month() != bars[i-1].At.Time().Month()
		}
		left := 100 * float64(i) / float64(len(bars))
		if round && left < 93 {
			fmt.Fprintf(&b, `<text%s x="%s%%" y="13">%s</text>`, class, number(left), at.Format(format))
			if class == "" {
				class = ` class="second"`
			} else {
				class = ""
			}
		}
	}
	return template.HTML(b.String())
}

// RoundTop returns the smallest round number not below n, for the top of an axis.
func RoundTop(n int64) int64 {
	if n <= 4 {
		return max(n, 1)
	}
	size := int64(math.Pow(10, math.Floor(math.Log10(float64(n)))))
	for _, f := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100} {
		if top := size * f / 10; top >= n {
			return top
		}
	}
	return n
}

// RoundBytes is [RoundTop] in the unit in which bytes are displayed.
func RoundBytes(n int64) int64 {
	unit := int64(1)
	for n/unit >= 1024 && unit < 1<<40 {
		unit <<= 10
	}
	return RoundTop((n+unit-1)/unit) * unit
}

// Thousands formats a number with separators: 1,204.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rough formats a number briefly: 999, 1.2k, 34k, 5.6M.
func Rough(n int64) string {
	f, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, u
	}
	if unit == "" || f >= 99.95 {
		return fmt.Sprintf("%.0f%s", f, unit)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + unit
}

// Pluralize returns a number with its noun in singular or plural.
func Pluralize(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(n) + " " + noun + "s"
}

// Spark is a day of requests as a sparkline on a card.
type Spark struct {
	Requests int64
	Line     template.HTMLAttr // of the line and the area below
	Area     template.HTMLAttr
	Says     string
}

// SparkOf draws a day. Line is empty without visits.
func SparkOf(s traffic.Series) Spark {
	out := Spark{Requests: s.Total().Requests()}
	out.Says = Pluralize(out.Requests, "request") + " in the last 24 hours"
	if out.Requests == 0 || len(s.Points) < 2 {
		return out
	}
	points := s.Points
	if n := len(points); n > 2 && points[n-1].Requests() < points[n-2].Requests() {
		points = points[:n-1] // omit the current hour, which is incomplete and would always end in a drop
	}
	var top int64 = 1
	for _, p := range points {
		top = max(top, p.Requests())
	}
	var line strings.Builder
	for i, p := range points {
		if i > 0 {
			line.WriteByte('L')
		}
		fmt.Fprintf(&line, "%s %s", number(100*float64(i)/float64(len(points)-1)), number(22-20*float64(p.Requests())/float64(top)))
	}
	out.Line = template.HTMLAttr(`d="M` + line.String() + `"`)
	out.Area = template.HTMLAttr(`d="M0 24L` + line.String() + `L100 24Z"`)
	return out
}

// Enumerate joins words with commas and "and".
func Enumerate(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}
