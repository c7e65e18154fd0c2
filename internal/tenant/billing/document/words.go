package document

import (
	"strconv"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// Span formats a period, with times of day unless both ends are midnight.
func Span(from, to db.Time) string {
	form := time.DateOnly
	if !midnight(from) || !midnight(to) {
		form = "2006-01-02 15:04"
	}
	return from.Time().UTC().Format(form) + " to " + to.Time().UTC().Format(form) + " UTC"
}

func midnight(t db.Time) bool { return t%db.Time((24*time.Hour).Milliseconds()) == 0 }

// Quantity formats a quantity of a meter for people.
func Quantity(m usage.Meter, n int64) string {
	scaled := func(name, unit string, per int64) string {
		hundredths, err := money.MulDiv(n, 100, per)
		if err != nil {
			return name + ": " + strconv.FormatInt(n, 10)
		}
		return name + ": " + money.Currency("").Decimal(hundredths) + " " + unit
	}
	switch m {
	case usage.Bandwidth:
		return scaled("Bandwidth", "GiB", 1<<30)
	case usage.Requests:
		return "Requests: " + strconv.FormatInt(n, 10)
	case usage.Build:
		return scaled("Build time", "minutes", 60_000)
	case usage.Storage:
		return scaled("Storage", "GiB hours", 1<<30)
	case usage.Backups:
		return scaled("Backups", "GiB hours", 1<<30)
	case usage.Memory:
		return scaled("Memory", "GiB hours", 1024*3600)
	case usage.CPU:
		return scaled("CPU time", "hours", 3_600_000)
	}
	return string(m) + ": " + strconv.FormatInt(n, 10)
}
