package sites

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// A week sums its days and begins on a Monday, except the first one.
func TestWeekly(t *testing.T) {
	t.Parallel()
	begin := db.At(time.Date(2027, 3, 12, 0, 0, 0, 0, time.UTC)) // a Friday
	s := traffic.Series{Step: traffic.Day}
	for i := range 17 {
		s.Points = append(s.Points, traffic.Point{
			At:     begin.Add(time.Duration(i) * 24 * time.Hour),
			Counts: traffic.Counts{OK: 1, Bytes: int64(i)},
		})
	}
	var got []string
	for _, p := range weekly(s).Points {
		got = append(got, fmt.Sprintf("%s: %d", shell.WhenWords(p.At, shell.Week), p.OK))
	}
	if want := "Week from 12 March 2027: 3, Week from 15 March 2027: 7, Week from 22 March 2027: 7"; strings.Join(
		got,
		", ",
	) != want || weekly(s).Total() != s.Total() {
		t.Errorf("%q, %+v", got, weekly(s).Total())
	}
	if n := len(weekly(traffic.Series{}).Points); n != 0 {
		t.Errorf("%d weeks of no days", n)
	}
}

// For any counts, every bar stays within the plot and every coordinate is a number.
func TestPlot(t *testing.T) {
	t.Parallel()
	now := db.At(time.Date(2027, 3, 14, 0, 0, 0, 0, time.UTC))
	for _, n := range []int{1, 30, 400} {
		s := traffic.Series{Step: traffic.Day}
		for i := range n {
			s.Points = append(s.Points, traffic.Point{
				At:     now.Add(time.Duration(i-n) * 24 * time.Hour),
				Counts: traffic.Counts{OK: int64(i) << 40, ServerErrors: 1, Bytes: 1<<62 + int64(i)},
			})
		}
		for _, p := range []shell.Plot{requestsPlot(s, shell.Stretches[4]), pagesPlot(s, shell.Stretches[4]), bytesPlot(s, shell.Stretches[4])} {
			for _, bad := range []string{"NaN", "Inf", `"-`, " -", "e+", "e-"} {
				if strings.Contains(string(p.Bars+p.Days), bad) {
					t.Errorf("%s of %d holds %s", p.ID, n, bad)
				}
			}
		}
	}
	p := requestsPlot(traffic.Series{
		Step:   traffic.Day,
		Points: []traffic.Point{{At: now, Counts: traffic.Counts{OK: 50, ClientErrors: 50}}},
	}, shell.Stretches[2])
	for _, want := range []string{
		`<path class="s-ok" d="M0.08 500h.84v500h-.84z"/>`,
		`<path class="s-client" d="M0.08 0h.84v500h-.84z"/>`,
		"<title>Sun 14 March 2027: 100 requests, 50 4xx</title>",
	} {
		if !strings.Contains(string(p.Bars), want) {
			t.Errorf("%s lacks %s", p.Bars, want)
		}
	}
}
