package backup

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// After a year of daily backups, pruned each day, the last seven days, four weeks and three months are kept, and always
// the newest backup.
func TestKept(t *testing.T) {
	t.Parallel()
	s := Schedule{Every: "daily", At: "03:00", Keep: Keep{Daily: 7, Weekly: 4, Monthly: 3}}
	var list []Backup // newest first
	at := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	for day := range 365 {
		now := at.AddDate(0, 0, day)
		list = append([]Backup{{ID: ID(fmt.Sprint(day)), Status: Completed, CreatedAt: db.At(now)}}, list...)
		keep := s.kept(list, now.Add(time.Hour))
		left := list[:0:0]
		for _, b := range list {
			if keep[b.ID] {
				left = append(left, b)
			}
		}
		list = left
		if len(list) > 7+4+3 {
			t.Fatalf("day %d: %d stay", day, len(list))
		}
	}
	now := at.AddDate(0, 0, 364)
	var ages []int
	for _, b := range list {
		ages = append(ages, int(now.Sub(b.CreatedAt.Time()).Hours()/24))
	}
	if ages[0] != 0 || ages[6] != 6 || len(ages) < 10 || ages[len(ages)-1] < 56 || ages[len(ages)-1] > 92 {
		t.Errorf("ages in days: %v", ages)
	}
	old := []Backup{{ID: "a", Status: Completed, CreatedAt: db.At(at)}}
	if !s.kept(old, now)["a"] {
		t.Error("the only backup is deleted because it is old")
	}
	if (Schedule{Every: "daily"}).kept(append(list[:1:1], old...), now)["a"] {
		t.Error("an old backup stays although nothing keeps it")
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 11, 25, 14, 30, 0, 0, time.UTC) // a Wednesday
	for every, want := range map[string]time.Time{
		"hourly": time.Date(2026, 11, 25, 15, 10, 0, 0, time.UTC),
		"daily":  time.Date(2026, 11, 26, 3, 10, 0, 0, time.UTC),
		"weekly": time.Date(2026, 11, 29, 3, 10, 0, 0, time.UTC),
	} {
		s := Schedule{Every: every, At: "03:10"}
		got := s.next("site_x", after)
		if d := got.Sub(want); d < 0 || d >= 15*time.Minute {
			t.Errorf("%s: %s, want within 15 minutes of %s", every, got, want)
		}
		if again := s.next("site_x", got); again.Sub(got) != s.interval() {
			t.Errorf("%s: then %s", every, again)
		}
	}
}

// A due backup starts once, however many nodes check, and so does one that fell due while none ran.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("daily", map[string]string{"index.html": "x"})
	every := "daily"
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.ScheduleTx(t.Context(), tx, anna, s.ID, SchedulePatch{Every: &every})
		return err
	}))
	for range 3 {
		ok(t, w.begins(t.Context(), time.Now().Add(72*time.Hour)))
	}
	list, total, err := w.List(t.Context(), anna, Filter{Site: s.ID, Page: 1, Limit: 10})
	if err != nil || total != 1 || list[0].Type != Scheduled {
		t.Fatalf("%+v, %d, %v", list, total, err)
	}
	if b := w.ended(list[0].ID); b.VerifiedAt == 0 {
		t.Errorf("%+v", b)
	}
	for _, bad := range []SchedulePatch{
		{Every: ptr("yearly")},
		{At: ptr("25:00")},
		{At: ptr("3")},
		{Daily: ptr(-1)},
		{Monthly: ptr(1000)},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.ScheduleTx(t.Context(), tx, anna, s.ID, bad)
			return err
		})
		if err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// Schedules can be read for fewer or more sites than the owner has schedules.
func TestSchedulesOfSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []site.ID
	for i := range 4 {
		s := w.site(fmt.Sprint("site-", i), map[string]string{"index.html": "x"})
		ids = append(ids, s.ID)
		if i == 3 {
			break // it has no schedule of its own
		}
		ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.ScheduleTx(t.Context(), tx, anna, s.ID, SchedulePatch{Every: ptr("daily"), Daily: ptr(10 + i)})
			return err
		}))
	}
	for _, asked := range [][]site.ID{nil, ids[:1], ids[:2], ids[2:], ids} {
		got, err := w.Schedules(t.Context(), w.db, anna, asked)
		ok(t, err)
		for _, id := range asked {
			want := DefaultSchedule
			if i := slices.Index(ids, id); i < 3 {
				want.Every, want.Keep.Daily = "daily", 10+i
			}
			if got.Of(id) != want {
				t.Errorf("one of %d: %+v, want %+v", len(asked), got.Of(id), want)
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }
