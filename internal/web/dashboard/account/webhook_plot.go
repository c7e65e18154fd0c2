package account

import (
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
)

// attemptStretches lists the selectable periods of the chart.
var attemptStretches = []shell.Stretch{
	{Name: "24h", Label: "24 hours", Words: "the last 24 hours", Step: traffic.Hour, N: 24},
	{Name: "7d", Label: "7 days", Words: "the last 7 days", Step: traffic.TwoHours, N: 84},
	{Name: "30d", Label: "30 days", Words: "the last 30 days", Step: traffic.Day, N: 30},
}

// firstStep returns the start of the first bar.
func firstStep(on shell.Stretch, now time.Time) time.Time {
	step := time.Duration(on.Step)
	return now.Truncate(step).Add(-step * time.Duration(on.N-1))
}

// attemptsPlot returns the chart of a webhook's attempts, with successes below failures.
func attemptsPlot(hours []webhook.Hour, on shell.Stretch, now time.Time) shell.Plot {
	step, from := time.Duration(on.Step), firstStep(on, now)
	bars := make([]shell.Bar, on.N)
	for i := range bars {
		bars[i] = shell.Bar{At: db.Time(from.Add(step * time.Duration(i)).UnixMilli()), Values: []int64{0, 0}}
	}
	var ok, bad, most int64
	for _, h := range hours {
		if i := int(h.At.Time().Sub(from) / step); i >= 0 && i < len(bars) && !h.At.Time().Before(from) {
			bars[i].Values[0] += h.Succeeded
			bars[i].Values[1] += h.Failed
			ok, bad = ok+h.Succeeded, bad+h.Failed
			most = max(most, bars[i].Values[0]+bars[i].Values[1])
		}
	}
	for i, b := range bars {
		bars[i].Says = shell.WhenWords(b.At, on.Step) + ": " + attemptsWords(b.Values[0], b.Values[1])
	}
	p := shell.Plot{
		ID:     "attempts",
		Title:  "Attempts",
		Sum:    shell.Thousands(ok + bad),
		Says:   "Attempts over time in " + on.Words + ": " + attemptsWords(ok, bad),
		Series: []shell.PlotSeries{{Name: "Succeeded", Class: "s-ok"}, {Name: "Failed", Class: "s-server"}},
	}
	p.Draw(bars, step, shell.RoundTop(most), shell.Rough)
	return p
}

// attemptsWords describes the numbers of attempts and successes.
func attemptsWords(ok, bad int64) string {
	if ok+bad == 0 {
		return "no attempts"
	}
	share := 100 * float64(ok) / float64(ok+bad)
	text := fmt.Sprintf("%.1f%%", share)
	if share == 100 || share == 0 {
		text = fmt.Sprintf("%.0f%%", share)
	}
	return shell.Pluralize(ok+bad, "attempt") + ", " + text + " succeeded"
}
