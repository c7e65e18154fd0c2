package sites

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// ProgramFigures holds a program's metrics in one step.
type ProgramFigures struct {
	At             db.Time
	Statuses       [4]int64 // 2xx, 3xx, 4xx, 5xx
	P50, P95       time.Duration
	Memory         int64 // maximum in bytes
	CPU            time.Duration
	Wakes, Restart int64
}

func (f ProgramFigures) requests() int64 {
	return f.Statuses[0] + f.Statuses[1] + f.Statuses[2] + f.Statuses[3]
}

// programPlots draws the last 24 hours of a program, or returns nil without activity.
func (d *Pages) programPlots(ctx context.Context, id site.ID) ([]shell.Plot, error) {
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
	draw := func(p shell.Plot, unit func(int64) string, round func(int64) int64, values func(ProgramFigures) []int64,
		says func(ProgramFigures) string,
	) shell.Plot {
		var bars []shell.Bar
		var most int64
		for _, f := range list {
			b := shell.Bar{At: f.At, Values: values(f), Says: shell.WhenWords(f.At, traffic.Step(step)) + ": " + says(f)}
			var sum int64
			for _, v := range b.Values {
				sum += v
			}
			most = max(most, sum)
			bars = append(bars, b)
		}
		p.Draw(bars, step, round(most), unit)
		return p
	}
	ms := func(n int64) string { return shell.Thousands(n) + " ms" }
	seconds := func(n int64) string {
		if n < 1000 {
			return ms(n)
		}
		return shell.Thousands(n/1000) + fmt.Sprintf(".%d s", n%1000/100)
	}
	return []shell.Plot{
		draw(shell.Plot{
			ID: "answers", Title: "Responses of the application", Sum: shell.Thousands(requests),
			Says: fmt.Sprintf("Answers over time by status: %s in the last 24 hours, %s, %s",
				shell.Pluralize(requests, "request"), shell.Pluralize(wakes, "wake"),
				shell.Pluralize(restarts, "restart")),
			Series: []shell.PlotSeries{
				{Name: "2xx", Class: "s-ok"},
				{Name: "3xx", Class: "s-moved"},
				{Name: "4xx", Class: "s-client"},
				{Name: "5xx", Class: "s-server"},
			},
		}, shell.Rough, shell.RoundTop,
			func(f ProgramFigures) []int64 { return f.Statuses[:] },
			func(f ProgramFigures) string {
				return fmt.Sprintf("%s, %s 5xx, %s, %s", shell.Pluralize(f.requests(), "request"),
					shell.Thousands(f.Statuses[3]), shell.Pluralize(f.Wakes, "wake"),
					shell.Pluralize(f.Restart, "restart"))
			}),
		draw(shell.Plot{
			ID:     "latency",
			Title:  "Time to first byte",
			Sum:    "p95 up to " + ms(slowest),
			Says:   "Time to the first byte over time: the 95th percentile was at most " + ms(slowest),
			Series: []shell.PlotSeries{{Name: "p50", Class: "s-pages"}, {Name: "p95", Class: "s-bytes"}},
		}, ms, shell.RoundTop,
			func(f ProgramFigures) []int64 {
				return []int64{f.P50.Milliseconds(), f.P95.Milliseconds() - f.P50.Milliseconds()}
			},
			func(f ProgramFigures) string {
				return fmt.Sprintf("p50 %s, p95 %s", f.P50.Round(100*time.Microsecond), f.P95.Round(100*time.Microsecond))
			}),
		draw(shell.Plot{
			ID: "memory", Title: "Memory", Sum: "up to " + shell.BytesWord(memory), Says: "Memory over time: at most " + shell.BytesWord(memory),
			Series: []shell.PlotSeries{{Name: "Memory", Class: "s-bytes"}},
		}, shell.BytesWord, shell.RoundBytes,
			func(f ProgramFigures) []int64 { return []int64{f.Memory} },
			func(f ProgramFigures) string { return shell.BytesWord(f.Memory) }),
		draw(shell.Plot{
			ID:     "cpu",
			Title:  "Processor time",
			Sum:    seconds(cpu),
			Says:   "Processor time over time: " + seconds(cpu) + " in the last 24 hours",
			Series: []shell.PlotSeries{{Name: "Processor time", Class: "s-pages"}},
		}, seconds, shell.RoundTop,
			func(f ProgramFigures) []int64 { return []int64{f.CPU.Milliseconds()} },
			func(f ProgramFigures) string { return seconds(f.CPU.Milliseconds()) }),
		draw(shell.Plot{
			ID:    "starts",
			Title: "Wakes and restarts",
			Sum:   shell.Thousands(wakes + restarts),
			Says: fmt.Sprintf("Starts over time: %s and %s in the last 24 hours", shell.Pluralize(wakes, "wake"),
				shell.Pluralize(restarts, "restart")),
			Series: []shell.PlotSeries{{Name: "Wakes", Class: "s-ok"}, {Name: "Restarts", Class: "s-server"}},
		}, shell.Rough, shell.RoundTop,
			func(f ProgramFigures) []int64 { return []int64{f.Wakes, f.Restart} },
			func(f ProgramFigures) string {
				return fmt.Sprintf("%s, %s", shell.Pluralize(f.Wakes, "wake"), shell.Pluralize(f.Restart, "restart"))
			}),
	}, nil
}
