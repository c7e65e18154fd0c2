package database_test

import (
	"bytes"
	"context"
	"testing"

	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
)

// Named tables of a dump must all replace those of a database at once, or be added if the database lacks them. Every
// other table must stay as it is.
func TestPutTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	w.exec(a,
		"CREATE TABLE posts (id INT PRIMARY KEY AUTO_INCREMENT, said TEXT)", "INSERT INTO posts (said) VALUES ('old'), ('old too')",
		"CREATE TABLE `odd``; DROP TABLE posts; -- x` (id INT)", "INSERT INTO `odd``; DROP TABLE posts; -- x` VALUES (1)",
		"CREATE TABLE orders (id INT)", "INSERT INTO orders VALUES (1)",
		"CREATE TABLE parent (id INT PRIMARY KEY)", "CREATE TABLE child (id INT, CONSTRAINT c FOREIGN KEY (id) REFERENCES parent (id))",
		"INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1)",
		"CREATE TABLE noted (id INT)", "CREATE TRIGGER note BEFORE INSERT ON noted FOR EACH ROW SET NEW.id = 1",
		"CREATE VIEW seen AS SELECT id FROM posts")
	dump := w.dump(x.ID)
	load := func() *database.Scratch {
		t.Helper()
		s, err := w.Load(t.Context(), anna, bytes.NewReader(dump), database.LoadOptions{})
		ok(t, err)
		t.Cleanup(func() { s.Drop(context.Background()) })
		return s
	}
	count := func(table, where string) (n int) {
		t.Helper()
		ok(t, a.QueryRow("SELECT COUNT(*) FROM "+table+" WHERE "+where).Scan(&n))
		return n
	}
	w.exec(a,
		"UPDATE posts SET said = 'new'", "INSERT INTO posts (said) VALUES ('new')", "INSERT INTO orders VALUES (2)",
		"DROP TABLE `odd``; DROP TABLE posts; -- x`", "DELETE FROM child", "INSERT INTO parent VALUES (2)")
	s := load()
	tables := []string{"posts", "odd`; DROP TABLE posts; -- x"}
	ok(t, s.CheckTables(t.Context(), anna, one, x.Name, tables))
	ok(t, s.PutTables(t.Context(), anna, one, x.Name, tables))
	s.Drop(t.Context())
	if p, o, odd := count("posts", "said LIKE 'old%'"), count("orders", "TRUE"), count("`odd``; DROP TABLE posts; -- x`", "TRUE"); p != 2 || o != 2 || odd != 1 {
		t.Errorf("%d posts of 2, %d orders of 2, %d odd of 1", p, o, odd)
	}
	if n := count("posts", "said = 'new'"); n != 0 {
		t.Errorf("%d rows of the replaced table are left", n)
	}
	w.exec(a, "INSERT INTO posts (said) VALUES ('more')") // the site may still write to it
	// If both tables of a foreign key are replaced together, the key must still hold.
	s = load()
	if err := s.PutTables(t.Context(), anna, one, x.Name, []string{"child", "parent"}); err != nil {
		t.Fatal(err, fault.As(err).Details)
	}
	s.Drop(t.Context())
	if p, c := count("parent", "TRUE"), count("child", "TRUE"); p != 1 || c != 1 {
		t.Errorf("%d parents, %d children of 1", p, c)
	}
	if _, err := a.ExecContext(t.Context(), "INSERT INTO child VALUES (7)"); code(err) != 1452 {
		t.Errorf("the foreign key is gone: %v", err)
	}
	// These must be refused: a table that depends on one that is not named, a table that does not exist, and a table of
	// another owner.
	s = load()
	for _, tt := range []struct {
		tables []string
		want   string
	}{
		{[]string{"child"}, "table_not_alone"},
		{[]string{"parent"}, "table_not_alone"},
		{[]string{"noted"}, "table_not_alone"},
		{[]string{"nothing"}, "table_not_found"},
		{[]string{"seen"}, "table_not_found"},
	} {
		if err := s.CheckTables(t.Context(), anna, one, x.Name, tt.tables); fault.As(err) == nil || fault.As(err).Code != tt.want {
			t.Errorf("%q: %v", tt.tables, err)
		}
	}
	w.exec(a, "DROP TABLE noted", "CREATE TABLE noted (id INT)", "DROP VIEW seen", "CREATE TABLE late (id INT PRIMARY KEY)",
		"CREATE TABLE later (id INT, FOREIGN KEY (id) REFERENCES late (id))", "CREATE VIEW orders2 AS SELECT 1")
	if err := s.PutTables(t.Context(), "usr_mallory", one, x.Name, []string{"posts"}); fault.As(err) == nil {
		t.Errorf("a stranger's tables are replaced: %v", err)
	}
	if err := s.PutTables(t.Context(), anna, one, "other", []string{"posts"}); fault.As(err) == nil {
		t.Errorf("the tables of another database are replaced: %v", err)
	}
	if n := count("posts", "said = 'more'"); n != 1 {
		t.Errorf("the refused put has changed the table")
	}
}

// A put must not wait longer for a locked table than a lock of a site may last.
func TestPutLockedTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	a.SetMaxOpenConns(1)
	w.exec(a, "CREATE TABLE posts (id INT)")
	s, err := w.Load(t.Context(), anna, bytes.NewReader(w.dump(x.ID)), database.LoadOptions{})
	ok(t, err)
	defer s.Drop(t.Context())
	w.exec(a, "LOCK TABLES posts WRITE")
	if err := s.PutTables(t.Context(), anna, one, x.Name, []string{"posts"}); fault.As(err) == nil || fault.As(err).Code != "table_locked" {
		t.Errorf("%v", err)
	}
	w.exec(a, "UNLOCK TABLES", "INSERT INTO posts VALUES (1)")
}
