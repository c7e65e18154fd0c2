package dashboard

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
)

// ProgramFigures are those of a site's program in one step.
type ProgramFigures struct {
	At             db.Time
	Statuses       [4]int64 // 2xx, 3xx, 4xx, 5xx
	P50, P95       time.Duration
	Memory         int64 // bytes, the most
	CPU            time.Duration
	Wakes, Restart int64
}

func (f ProgramFigures) requests() int64 {
	return f.Statuses[0] + f.Statuses[1] + f.Statuses[2] + f.Statuses[3]
}

// programPlots draws the last 24 hours of a program; nothing where it did nothing.
func (d *Dashboard) programPlots(ctx context.Context, id site.ID) ([]plot, error) {
	list, step, err := d.Programs.Figures(ctx, id)
	if err != nil {
		return nil, err
	}
	var requests, memory, slowest, wakes, restarts, cpu int64
	for _, f := range list {
		requests, wakes, restarts = requests+f.requests(), wakes+f.Wakes, restarts+f.Restart
		memory, slowest, cpu = max(memory, f.Memory), max(slowest, f.P95.Milliseconds()), cpu+f.CPU.Milliseconds()
	}
	if requests+memory+wakes+restarts+cpu == 0 {
		return nil, nil
	}
	draw := func(p plot, unit func(int64) string, round func(int64) int64, values func(ProgramFigures) []int64, says func(ProgramFigures) string) plot {
		var bars []bar
		var most int64
		for _, f := range list {
			b := bar{At: f.At, Values: values(f), Says: whenWords(f.At, traffic.Step(step)) + ": " + says(f)}
			var sum int64
			for _, v := range b.Values {
				sum += v
			}
			most = max(most, sum)
			bars = append(bars, b)
		}
		p.draw(bars, step, round(most), unit)
		return p
	}
	ms := func(n int64) string { return thousands(n) + " ms" }
	seconds := func(n int64) string {
		if n < 1000 {
			return ms(n)
		}
		return thousands(n/1000) + fmt.Sprintf(".%d s", n%1000/100)
	}
	return []plot{
		draw(plot{
			ID: "answers", Title: "Responses of the application", Sum: thousands(requests),
			Says: fmt.Sprintf(
				"Answers over time by status: %s in the last 24 hours, %s, %s",
				pluralize(requests, "request"),
				pluralize(wakes, "wake"),
				pluralize(restarts, "restart"),
			),
			Series: []plotSeries{{"2xx", "s-ok"}, {"3xx", "s-moved"}, {"4xx", "s-client"}, {"5xx", "s-server"}},
		}, rough, roundTop,
			func(f ProgramFigures) []int64 { return f.Statuses[:] },
			func(f ProgramFigures) string {
				return fmt.Sprintf(
					"%s, %s 5xx, %s, %s",
					pluralize(f.requests(), "request"),
					thousands(f.Statuses[3]),
					pluralize(f.Wakes, "wake"),
					pluralize(f.Restart, "restart"),
				)
			}),
		draw(plot{
			ID:     "latency",
			Title:  "Time to first byte",
			Sum:    "p95 up to " + ms(slowest),
			Says:   "Time to the first byte over time: the 95th percentile was at most " + ms(slowest),
			Series: []plotSeries{{"p50", "s-pages"}, {"p95", "s-bytes"}},
		}, ms, roundTop,
			func(f ProgramFigures) []int64 {
				return []int64{f.P50.Milliseconds(), f.P95.Milliseconds() - f.P50.Milliseconds()}
			},
			func(f ProgramFigures) string {
				return fmt.Sprintf("p50 %s, p95 %s", f.P50.Round(100*time.Microsecond), f.P95.Round(100*time.Microsecond))
			}),
		draw(plot{
			ID: "memory", Title: "Memory", Sum: "up to " + bytesWord(memory), Says: "Memory over time: at most " + bytesWord(memory),
			Series: []plotSeries{{"Memory", "s-bytes"}},
		}, bytesWord, roundBytes,
			func(f ProgramFigures) []int64 { return []int64{f.Memory} },
			func(f ProgramFigures) string { return bytesWord(f.Memory) }),
		draw(plot{
			ID:     "cpu",
			Title:  "Processor time",
			Sum:    seconds(cpu),
			Says:   "Processor time over time: " + seconds(cpu) + " in the last 24 hours",
			Series: []plotSeries{{"Processor time", "s-pages"}},
		}, seconds, roundTop,
			func(f ProgramFigures) []int64 { return []int64{f.CPU.Milliseconds()} },
			func(f ProgramFigures) string { return seconds(f.CPU.Milliseconds()) }),
		draw(plot{
			ID:    "starts",
			Title: "Wakes and restarts",
			Sum:   thousands(wakes + restarts),
			Says: fmt.Sprintf(
				"Starts over time: %s and %s in the last 24 hours",
				pluralize(wakes, "wake"),
				pluralize(restarts, "restart"),
			),
			Series: []plotSeries{{"Wakes", "s-ok"}, {"Restarts", "s-server"}},
		}, rough, roundTop,
			func(f ProgramFigures) []int64 { return []int64{f.Wakes, f.Restart} },
			func(f ProgramFigures) string {
				return fmt.Sprintf("%s, %s", pluralize(f.Wakes, "wake"), pluralize(f.Restart, "restart"))
			}),
	}, nil
}
