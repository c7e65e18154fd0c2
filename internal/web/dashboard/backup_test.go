package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// The owner backs up a site, sets a schedule and sees both on one page. The dialog explains a restore, and a deletion
// with the box ticked waits for a backup.
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
	if p := b.post(
		base+"/backups/schedule",
		"every", "daily", "at", "04:30", "daily", "3", "weekly", "2", "monthly", "1",
	); p.status != 303 {
		t.Fatalf("schedule: %d %s", p.status, p.body)
	}
	got, err := w.dash.Backups.ScheduleOf(t.Context(), w.db, s.ID)
	if err != nil || got != (backup.Schedule{Every: "daily", At: "04:30", Keep: backup.Keep{Daily: 3, Weekly: 2, Monthly: 1}}) {
		t.Errorf("the schedule is %+v, %v", got, err)
	}
	if p := b.post(
		base+"/backups/schedule",
		"every", "daily", "at", "04:30", "daily", "many", "weekly", "2", "monthly", "1",
	); p.status != 422 || !strings.Contains(p.body, "0 to 366") {
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
	b.post(base+"/backups/restore", "backup", id).want(t, 422, "Nothing was restored")
	if p := b.post(base+"/backups/restore", "backup", id, "confirm", s.Name); p.status != 422 && p.status != 409 || strings.Contains(p.body, "nothing was restored") {
		t.Errorf("a backup that isn't completed is restored: %d", p.status)
	}
	b.post(base+"/backups/restore", "backup", id, "confirm", s.Name, "what", "some", "tables", "\r\n").want(t, 422, "Name the tables or folders")
	b.post(base+"/backups/restore", "backup", id, "confirm", s.Name, "what", "some", "tables", "posts\r\nposts").want(t, 422, "different tables")
	// Backups of another owner or of another site are a 404.
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

// Who may open a terminal may browse the databases of the site, when its owner allows that, and nobody else's databases.
func TestDatabaseConsolePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	s, other := w.site(ada, "Shop"), w.site(eve, "Other")
	var x database.Database
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		x, err = w.dash.Databases.CreateTx(t.Context(), tx, ada.Owner, s.ID, database.NewDatabase{})
		return err
	}))
	at := func(s site.Site, page string) string { return "/sites/" + string(s.ID) + "/databases/" + page }
	of := "?database=" + string(x.ID)
	a := w.as("ada@example.test")
	if p := a.get(at(s, "browse") + of); p.status != 200 || !strings.Contains(p.body, "Terminals aren't enabled") || strings.Contains(p.body, "data-test=\"query\"") {
		t.Errorf("before terminals are allowed: %d", p.status)
	}
	for page, p := range map[string]reply{
		"query":  a.post(at(s, "query"), "database", string(x.ID), "sql", "SELECT 1"),
		"export": a.get(at(s, "export") + of + "&table=posts&format=csv"),
	} {
		if p.status == 200 || !strings.Contains(p.body, "terminal is not enabled") {
			t.Errorf("%s before terminals are allowed: %d", page, p.status)
		}
	}
	on := true
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.UpdateTx(t.Context(), tx, ada.Owner, s.ID, site.Patch{Run: &site.Run{Terminal: &on}})
		return err
	}))
	// The database of this world is never made, and that is what its owner reads.
	if p := a.post(at(s, "query"), "database", string(x.ID), "sql", "SELECT 1"); !strings.Contains(p.body, "database is not ready") {
		t.Errorf("a query: %d", p.status)
	}
	e := w.as("eve@example.test")
	for _, s := range []site.Site{s, other} {
		for page, p := range map[string]reply{
			"browse": e.get(at(s, "browse") + of), "export": e.get(at(s, "export") + of + "&table=posts&format=csv"),
			"query": e.post(at(s, "query"), "database", string(x.ID), "sql", "SELECT 1"),
		} {
			if p.status != 404 {
				t.Errorf("%s of another's database by way of %s: %d", page, s.Name, p.status)
			}
		}
	}
}

// Sites deleted with a backup are listed and can be restored under a name, but only by their owner.
func TestDeletedSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	b, other := w.as("ada@example.test"), w.as("eve@example.test")
	if p := b.get("/deleted"); p.status != 200 || !strings.Contains(p.body, "No deleted sites") {
		t.Fatalf("the page: %d", p.status)
	}
	s := w.site(ada, "Blog")
	insert := func(id string, owner account.OwnerID, site site.ID, name string) {
		must(
			t,
			w.db.Admin(
				t.Context(),
				fmt.Sprintf(
					`INSERT INTO backups (id, owner_id, site_id, site_name, type, status, includes, note, size_bytes, stored_bytes, progress, manifest, checksum, base, then_delete, verified_at, error, created_at, completed_at, expires_at)
			VALUES ('%s', '%s', '%s', '%s', 'before_delete', 'completed', 'config,files,database', '', 2048, 0, 0, '%s', '', '', '', 1, '', 1, 1, %d)`,
					id,
					owner,
					site,
					name,
					strings.Repeat(
						"a",
						64,
					),
					db.Now().Add(time.Hour),
				),
			),
		)
	}
	insert("bkp_there", ada.Owner, s.ID, "Blog")
	must(t, w.db.Admin(t.Context(), `UPDATE backups SET status = 'running' WHERE id = 'bkp_there'`))
	b.get("/deleted").want(t, 200, `data-test="pending-deletion"`, "Being backed up, then deleted", `http-equiv="refresh"`)
	other.get("/deleted").want(t, 200).lacks(t, "pending-deletion")
	must(t, w.db.Admin(t.Context(), `UPDATE backups SET status = 'completed' WHERE id = 'bkp_there'`))
	insert("bkp_gone", ada.Owner, "site_gone", "Old <shop>")
	insert("bkp_hers", eve.Owner, "site_hers", "Hers")
	p := b.get("/deleted")
	if !strings.Contains(
		p.body,
		"Old &lt;shop&gt;",
	) || strings.Contains(
		p.body,
		"bkp_there",
	) || strings.Contains(p.body, "bkp_hers") || !strings.Contains(p.body, "custom domains have to be added again") {
		t.Errorf("the page: %.3000s", p.body)
	}
	if p := b.get("/"); !strings.Contains(p.body, "1 deleted site can be restored") {
		t.Error("the list of sites doesn't lead to the deleted ones")
	}
	for _, id := range []string{"bkp_there", "bkp_hers", "bkp_none", ""} {
		for _, at := range []string{"/deleted/restore", "/deleted/forget"} {
			if p := b.post(at, "backup", id, "name", "x"); p.status != 404 {
				t.Errorf("%s of %q: %d", at, id, p.status)
			}
		}
		if p := b.get("/deleted/download?backup=" + id); p.status != 404 && id != "" {
			t.Errorf("download of %q: %d", id, p.status)
		}
	}
	if p := b.post(
		"/deleted/restore", "backup", "bkp_gone", "name", " ",
	); p.status != 422 || !strings.Contains(p.body, "The site needs a name") {
		t.Errorf("without a name: %d", p.status)
	}
	if p := b.post(
		"/deleted/restore", "backup", "bkp_gone", "name", "Shop",
	); p.status != 409 && p.status != 422 || !strings.Contains(p.body, "damaged") {
		t.Errorf("a backup whose content is gone: %d", p.status)
	}
	if p := other.post("/deleted/forget", "backup", "bkp_gone"); p.status != 404 {
		t.Errorf("Eve deletes Ada's: %d", p.status)
	}
	if p := b.post("/deleted/forget", "backup", "bkp_gone"); p.status != 303 {
		t.Errorf("delete: %d", p.status)
	}
	if p := b.get("/deleted"); strings.Contains(p.body, "bkp_gone") {
		t.Error("it is still listed")
	}
}

// The databases page shows each database's size and its slow queries as escaped text.
func TestDatabasesPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{log: func(_ site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
			if f.Search != "Slow query" || f.Stream != "system" {
				return nil, nil
			}
			return []sites.ProgramLine{{At: db.Now(), Message: "Slow query: more than 2.0 s: SELECT '<b>'"}}, nil
		}}
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
	for _, want := range []string{
		"0 B of 2.0 GiB used",
		"main: 0 percent of its limit used",
		"SELECT &#39;&lt;b&gt;&#39;",
		"Rotate password",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("%d: the page has no %q", p.status, want)
		}
	}
}
