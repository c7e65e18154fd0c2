package cron_test

import (
	"fmt"
	"time"

	"slipway/internal/platform/cron"
)

func ExampleSchedule_Next() {
	s, err := cron.Parse("30 4 * * mon")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	// Output: 2026-01-05 04:30:00 +0000 UTC
}
