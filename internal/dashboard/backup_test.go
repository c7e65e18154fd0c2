package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup"
	"slipway/internal/database"
	"slipway/internal/db"
	"slipway/internal/site"
)

// The owner backs a site up, sets a schedule and reads on one page what is there; the dialog
// says what a restore does, and the deletion with a tick waits for a backup.
func TestBackupsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	s := w.site(ada, "Blog")
	base := "/sites/" + string(s.ID)
	if p := b.get(base + "/backups"); p.status != 200 || !strings.Contains(p.body, "No backups yet") {
		t.Fatalf("the page: %d", p.status)
	}
	if p := b.post(base+"/backups", "note", "before the party"); p.status != 303 {
		t.Fatalf("back up: %d %s", p.status, p.body)
	}
	if p := b.post(base+"/backups/schedule", "every", "daily", "at", "04:30", "daily", "3", "weekly", "2", "monthly", "1"); p.status != 303 {
		t.Fatalf("schedule: %d %s", p.status, p.body)
	}
	got, err := w.dash.Backups.ScheduleOf(t.Context(), w.db, s.ID)
	if err != nil || got != (backup.Schedule{Every: "daily", At: "04:30", Keep: backup.Keep{Daily: 3, Weekly: 2, Monthly: 1}}) {
		t.Errorf("the schedule is %+v, %v", got, err)
	}
	if p := b.post(base+"/backups/schedule", "every", "daily", "at", "04:30", "daily", "many", "weekly", "2", "monthly", "1"); p.status != 422 || !strings.Contains(p.body, "0 to 366") {
		t.Errorf("a bad schedule: %d", p.status)
	}
	page := b.get(base + "/backups").body
	if !strings.Contains(page, "before the party") || !strings.Contains(page, `data-test="status-pending"`) {
		t.Errorf("the backup is not on the page")
	}
	list, _, err := w.dash.Backups.List(t.Context(), ada.Owner, backup.Filter{Site: s.ID, Page: 1, Limit: 10})
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	id := string(list[0].ID)
	if p := b.post(base+"/backups/restore", "backup", id); p.status != 422 && p.status != 409 {
		t.Errorf("a backup that isn't completed is restored: %d", p.status)
	}
	// Somebody else's backup does not exist, and neither does one of another site.
	eve := w.user("eve@example.test", false)
	other := w.site(eve, "Other")
	for _, at := range []string{"restore", "verify", "delete"} {
		if p := w.as("eve@example.test").post("/sites/"+string(other.ID)+"/backups/"+at, "backup", id); p.status != 404 {
			t.Errorf("%s of another's backup: %d", at, p.status)
		}
	}
	if p := w.as("eve@example.test").get("/sites/" + string(other.ID) + "/backups/download?backup=" + id); p.status != 404 {
		t.Errorf("download of another's backup: %d", p.status)
	}

	if p := b.post(base+"/delete", "confirm", "Blog", "backup", "1"); p.status != 303 {
		t.Fatalf("delete: %d %s", p.status, p.body)
	}
	if _, err := w.dash.Sites.Get(t.Context(), ada.Owner, s.ID); err != nil {
		t.Errorf("the site is gone before its backup: %v", err)
	}
	if page := b.get(base + "/backups").body; !strings.Contains(page, "Backing up the site") {
		t.Error("the page doesn't say that the site is being backed up")
	}
}

// The calendar shows for each day whether there is a backup of it that was verified.
func TestCalendar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC) // a Wednesday
	at := func(days int) db.Time { return db.At(now.AddDate(0, 0, -days)) }
	weeks := calendar([]backup.Backup{
		{Status: backup.Completed, VerifiedAt: at(0), CreatedAt: at(0)},
		{Status: backup.Completed, CreatedAt: at(1)},
		{Status: backup.Completed, VerifiedAt: at(2), CreatedAt: at(2)}, {Status: backup.Failed, CreatedAt: at(2)},
	}, now)
	last := weeks[len(weeks)-1]
	for i, want := range []backupDay{{"2026-03-16", 16, "ok", "1 failed, 1 verified", false}, {"2026-03-17", 17, "wait", "1 not verified", false}, {"2026-03-18", 18, "ok", "1 verified", false}, {"2026-03-19", 19, "", "no backup", true}} {
		if last[i] != want {
			t.Errorf("day %d is %+v, want %+v", i, last[i], want)
		}
	}
	if len(weeks) != calendarWeeks || weeks[0][0].Date != "2026-02-09" {
		t.Errorf("%d weeks from %s", len(weeks), weeks[0][0].Date)
	}
}

// The page of databases shows how full each is and what was slow, as text.
func TestDatabasesPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.ProgramLog = func(_ context.Context, _ site.ID, f ProgramFilter) ([]ProgramLine, error) {
			if f.Search != "Slow query" || f.Stream != "system" {
				return nil, nil
			}
			return []ProgramLine{{At: db.Now(), Message: "Slow query: more than 2.0 s: SELECT '<b>'"}}, nil
		}
	})
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Shop")
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Databases.CreateTx(t.Context(), tx, ada.Owner, s.ID, database.NewDatabase{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p := w.as("ada@example.test").get("/sites/" + string(s.ID) + "/databases")
	for _, want := range []string{"0 B of 2.0 GiB used", "main: 0 percent of its limit used", "SELECT &#39;&lt;b&gt;&#39;", "Rotate password"} {
		if !strings.Contains(p.body, want) {
			t.Errorf("%d: the page has no %q", p.status, want)
		}
	}
}
