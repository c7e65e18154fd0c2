package configure

import (
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
)

// The calendar shows for each day whether it has a verified backup.
func TestCalendar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC) // a Wednesday
	at := func(days int) db.Time { return db.At(now.AddDate(0, 0, -days)) }
	weeks := calendar([]backup.Backup{
		{Status: backup.Completed, VerifiedAt: at(0), CreatedAt: at(0)},
		{Status: backup.Completed, CreatedAt: at(1)},
		{Status: backup.Completed, VerifiedAt: at(2), CreatedAt: at(2)},
		{Status: backup.Failed, CreatedAt: at(2)},
	}, now)
	last := weeks[len(weeks)-1]
	for i, want := range []backupDay{
		{"2026-03-16", 16, "ok", "1 failed, 1 verified", false},
		{"2026-03-17", 17, "wait", "1 not verified", false},
		{"2026-03-18", 18, "ok", "1 verified", false},
		{"2026-03-19", 19, "", "no backup", true},
	} {
		if last[i] != want {
			t.Errorf("day %d is %+v, want %+v", i, last[i], want)
		}
	}
	if len(weeks) != calendarWeeks || weeks[0][0].Date != "2026-02-09" {
		t.Errorf("%d weeks from %s", len(weeks), weeks[0][0].Date)
	}
}
