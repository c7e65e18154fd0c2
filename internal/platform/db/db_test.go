package db_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

func table(t *testing.T, d *db.DB) {
	t.Helper()
	if err := d.Admin(t.Context(), "CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT NOT NULL, yes BOOLEAN NOT NULL, at BIGINT)"); err != nil {
		t.Fatal(err)
	}
}

// Parameters bind by number, not by order. A driver that gets this wrong returns no error.
func TestParametersBindByNumber(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var a, b string
	err := d.QueryRow(t.Context(), "SELECT CAST($2 AS TEXT), CAST($1 AS TEXT) || CAST($1 AS TEXT)", "one", "two").Scan(&a, &b)
	if err != nil || a != "two" || b != "oneone" {
		t.Fatalf("got %q %q %v, want two oneone", a, b, err)
	}
}

func TestWriteKeepsAllOrNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	ctx := t.Context()
	after := 0
	insert := func(id string, fail error) error {
		return d.Write(ctx, func(tx *db.Tx) error {
			tx.AfterCommit(func() { after++ })
			if _, err := tx.Exec(ctx, "INSERT INTO t VALUES ($1, $2, $3, $4)", id, 1, true, db.Now()); err != nil {
				return err
			}
			return fail
		})
	}
	if err := insert("a", nil); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := insert("b", boom); !errors.Is(err, boom) {
		t.Fatalf("got %v, want boom", err)
	}
	if err := insert("a", nil); !db.Duplicate(err) {
		t.Fatalf("got %v, want a duplicate", err)
	}
	var n int
	if err := d.QueryRow(ctx, "SELECT count(*) FROM t WHERE yes = TRUE").Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d rows, %v; want 1", n, err)
	}
	if after != 1 {
		t.Fatalf("AfterCommit ran %d times, want 1", after)
	}
	if err := d.Integrity(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentWritesAllCount(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	ctx := t.Context()
	if err := d.Admin(ctx, "INSERT INTO t VALUES ('x', 0, FALSE, NULL)"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if err := d.Write(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE t SET n = n + $2 WHERE id = $1", "x", 1)
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var n int
	var at db.Time
	if err := d.QueryRow(ctx, "SELECT n, at FROM t").Scan(&n, &at); err != nil || n != 200 || at != 0 {
		t.Fatalf("n = %d, at = %d, %v; want 200, 0", n, at, err)
	}
}

func TestSnapshotIsOneMoment(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	ctx := t.Context()
	count := func(r db.Reader) (n int) {
		if err := r.QueryRow(ctx, "SELECT count(*) FROM t").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	err := d.Snapshot(ctx, func(r db.Reader) error {
		before := count(r)
		if err := d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t VALUES ('x', 0, FALSE, NULL)")
			return err
		}); err != nil {
			return err
		}
		if after := count(r); before != 0 || after != 0 {
			t.Errorf("saw %d, then %d rows; want none", before, after)
		}
		return nil
	})
	if err != nil || count(d) != 1 {
		t.Fatalf("%v, %d rows afterwards", err, count(d))
	}
}

func TestReadersCannotWriteSQLite(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table(t, d)
	rows, err := d.Query(t.Context(), "INSERT INTO t VALUES ('x', 0, FALSE, NULL) RETURNING id")
	if err == nil {
		rows.Next()
		err = rows.Err()
		rows.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Fatalf("got %v, want a refusal", err)
	}
	err = d.Write(t.Context(), func(*db.Tx) error { return d.Write(t.Context(), func(*db.Tx) error { return nil }) })
	if !db.Busy(err) || !strings.Contains(err.Error(), "Write inside a Write") {
		t.Fatalf("a nested Write: got %v, want busy", err)
	}
}

func TestNotifyWakesAfterCommitOnly(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	other := d
	if !d.Single() { // another node is notified through PostgreSQL
		other = dbtest.Open(t, url)
	}
	wake, stop := other.Listen("news")
	defer stop()
	ctx := t.Context()
	d.Write(ctx, func(tx *db.Tx) error { tx.Notify("news"); return errors.New("rolled back") })
	select {
	case <-wake:
		t.Fatal("woken by a rollback")
	default:
	}
	deadline := time.After(time.Minute)
	for { // the other node's LISTEN may not be active yet; in production, polling covers that
		if err := d.Write(ctx, func(tx *db.Tx) error { tx.Notify("news"); return nil }); err != nil {
			t.Fatal(err)
		}
		select {
		case <-wake:
			return
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatal("never woken")
		}
	}
}

func TestMigrateRefusesNewerSchema(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	if err := d.Admin(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)"); err != nil {
		t.Fatal(err)
	}
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatalf("the newer schema only adds to ours: %v", err)
	}
	if err := d.Admin(t.Context(), "UPDATE schema_readers SET schema_known = 9999"); err != nil {
		t.Fatal(err)
	}
	if err := d.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer slipway") {
		t.Fatalf("got %v, want a refusal that names the newer slipway", err)
	}
}

// Migrations after OldestReader only add to the schema, so that programs since then work with it. Any other change must
// raise OldestReader to its number.
func TestMigrationsOnlyAdd(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		number, err := strconv.Atoi(filepath.Base(f)[:4])
		if err != nil {
			t.Fatal(err)
		}
		if number <= db.OldestReader {
			continue
		}
		seen++
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if what := takesAway(string(text)); what != "" {
			t.Errorf("%s: %s: an older program would not work with it any more", f, what)
		}
	}
	newest, err := db.Newest()
	if err != nil || newest < db.OldestReader || seen == 0 && newest != db.OldestReader {
		t.Errorf("the newest is %d, the oldest reader's %d: %v", newest, db.OldestReader, err)
	}
	for sql, want := range map[string]bool{
		"CREATE TABLE a (b TEXT NOT NULL);\nALTER TABLE a ADD COLUMN c TEXT NOT NULL DEFAULT '';": false,
		"ALTER TABLE a ADD COLUMN c TEXT NOT NULL;":                                               true,
		"alter table a rename to b;":                                                              true,
		"DROP TABLE a;":                                                                           true,
		"ALTER TABLE a DROP COLUMN b;":                                                            true,
		"CREATE UNIQUE INDEX a ON b (c);":                                                         true,
		"DROP VIEW v; CREATE VIEW v AS SELECT 1;":                                                 false,
		"-- DROP TABLE a\nCREATE INDEX a ON b (c);":                                               false,
	} {
		if takesAway(sql) != "" != want {
			t.Errorf("%q: %q", sql, takesAway(sql))
		}
	}
}

// takesAway returns the statement of a migration that an older program might not work with. A recreated view may have
// additional columns. A unique index may reject an older program's rows, unless its table is new too.
func takesAway(migration string) string {
	comment := regexp.MustCompile(`(?m)--.*$`)
	made := regexp.MustCompile(`(?i)create table (?:if not exists )?(\w+)`)
	unique := regexp.MustCompile(`(?i)create unique index .* on (\w+)`)
	adds := regexp.MustCompile(`(?is)^alter table \w+ add column (.*)$`)
	text := comment.ReplaceAllString(migration, "")
	own := map[string]bool{}
	for _, m := range made.FindAllStringSubmatch(text, -1) {
		own[m[1]] = true
	}
	for s := range strings.SplitSeq(text, ";") {
		s = strings.Join(strings.Fields(s), " ")
		low := strings.ToLower(s)
		column := adds.FindStringSubmatch(s)
		on := unique.FindStringSubmatch(s)
		switch {
		case strings.HasPrefix(low, "drop table"), strings.HasPrefix(low, "alter table") && column == nil,
			column != nil && strings.Contains(low, "not null") && !strings.Contains(low, "default"),
			on != nil && !own[on[1]]:
			return s
		}
	}
	return ""
}

func TestOpenRefusesOtherAddresses(t *testing.T) {
	t.Parallel()
	if _, err := db.Open(context.Background(), db.Config{URL: "mysql://x"}); err == nil {
		t.Fatal("mysql:// was accepted")
	}
}

func TestIDsSortByTimeAndDiffer(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^dep_[a-z2-7]{26}$`)
	var ids []string
	for range 1000 {
		id := db.NewID("dep")
		if !shape.MatchString(id) {
			t.Fatalf("%q is not of the shape %s", id, shape)
		}
		ids = append(ids, id)
	}
	if !slices.IsSorted(ids) {
		t.Fatalf("%v do not sort by time", ids)
	}
	seen := map[string]bool{}
	for range 1000 {
		seen[db.NewID("x")[16:]] = true
	}
	if len(seen) != 1000 {
		t.Fatalf("only %d different ids", len(seen))
	}
}

func TestTimeReadsAsTheInterfaceShowsIt(t *testing.T) {
	t.Parallel()
	at := db.At(time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.FixedZone("", 3600)))
	if got := at.String(); got != "2026-02-03T03:05:06.007Z" {
		t.Errorf("got %s", got)
	}
	if got := at.Add(time.Second).Sub(at); got != time.Second {
		t.Errorf("got %s", got)
	}
	if db.At(time.Time{}) != 0 || !db.Time(0).Time().IsZero() {
		t.Error("zero is not zero")
	}
}

// A commit is synced to disk before it is acknowledged, unless a test sets Volatile.
func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	for volatile, want := range map[bool]int{false: 2, true: 0} { // 2 is FULL, 0 is OFF
		d, err := db.Open(t.Context(), db.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Volatile: volatile})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var got int
		err = d.Write(t.Context(), func(tx *db.Tx) error { return tx.QueryRow(t.Context(), "PRAGMA synchronous").Scan(&got) })
		if err != nil || got != want {
			t.Errorf("volatile %v: synchronous is %d, %v", volatile, got, err)
		}
	}
}
