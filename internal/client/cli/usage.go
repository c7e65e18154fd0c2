package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type usageCommand struct {
	target
	Site  string `env:"-" help:"Only what this site used: its slug or ID." placeholder:"SITE"`
	Month string `env:"-" help:"Calendar month (UTC). Default: the period that limits count in now." placeholder:"YYYY-MM"`
}

// Run shows the account's usage in a month, and its limits.
func (u usageCommand) Run(ctx context.Context, e *Env) error {
	from := time.Now().UTC()
	if u.Month != "" {
		var err error
		if from, err = time.Parse("2006-01", u.Month); err != nil {
			return fmt.Errorf("--month=%s is no month such as 2027-01", u.Month)
		}
	}
	from = time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC)
	c, err := u.client(e)
	if err != nil {
		return failure(err)
	}
	query := url.Values{} // without a month: the limits' current period, usually the calendar month
	if u.Month != "" {
		query = url.Values{"from": {from.Format(time.DateOnly)}, "to": {from.AddDate(0, 1, 0).Format(time.DateOnly)}}
	}
	if u.Site != "" {
		s, err := siteNamed(ctx, c, u.Site)
		if err != nil {
			return failure(err)
		}
		query.Set("siteId", s.ID)
	}
	answer, err := c.Do(ctx, http.MethodGet, "/usage?"+query.Encode(), nil)
	if err != nil {
		return failure(err)
	}
	if u.JSON {
		return e.json(answer)
	}
	var used struct {
		Totals []struct {
			Meter    string
			Quantity int64
		}
	}
	if err := json.Unmarshal(answer, &used); err != nil {
		return err
	}
	var account struct {
		Limits map[string]struct{ Limit *int64 }
	}
	if now := time.Now().UTC(); u.Site == "" && from.Year() == now.Year() && from.Month() == now.Month() {
		answer, err := c.Do(ctx, http.MethodGet, "/account", nil)
		if err != nil {
			return failure(err)
		}
		if err := json.Unmarshal(answer, &account); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, t := range used.Totals {
		row := []string{t.Meter, e.quantity(t.Meter, t.Quantity), ""}
		name, each := t.Meter, int64(1)
		if t.Meter == "build.ms" {
			name, each = "build.minutes", time.Minute.Milliseconds()
		}
		if l := account.Limits[name].Limit; l != nil {
			row[2] = e.quantity(t.Meter, *l*each)
		}
		rows = append(rows, row)
	}
	e.table([]string{"meter", "used", "limit"}, rows)
	return nil
}

// quantity formats a quantity on a terminal; elsewhere it prints the raw number.
func (e *Env) quantity(meter string, n int64) string {
	if !e.TTY {
		return strconv.FormatInt(n, 10)
	}
	scaled := func(f float64, step float64, units ...string) string {
		i := 0
		for ; f >= step && i < len(units)-1; i++ {
			f /= step
		}
		if i == 0 {
			return fmt.Sprintf("%.0f %s", f, units[0])
		}
		return fmt.Sprintf("%.1f %s", f, units[i])
	}
	switch meter {
	case "bandwidth.bytes":
		return scaled(float64(n), 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case "storage.byte_hours", "backup.byte_hours":
		return scaled(float64(n), 1024, "B hours", "KiB hours", "MiB hours", "GiB hours", "TiB hours")
	case "memory.mib_seconds":
		return fmt.Sprintf("%.1f GiB hours", float64(n)/1024/3600)
	case "build.ms", "cpu.ms":
		return (time.Duration(n) * time.Millisecond).Round(time.Second).String()
	}
	return strconv.FormatInt(n, 10)
}
