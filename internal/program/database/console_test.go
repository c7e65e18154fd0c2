package database_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/program/database"
)

func faultCode(err error) string {
	if f := fault.As(err); f != nil {
		return f.Code
	}
	return fmt.Sprint(err)
}

// A person must be able to read tables, pages of rows and the results of queries. A query may change rows only if
// Write is set, and none may read another database.
func TestConsole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.site(anna, "one"), w.site(anna, "two")
	x, y := w.database(anna, one), w.database(anna, two)
	a, b := w.connect(one), w.connect(two)
	a.SetMaxOpenConns(1) // its mode is a session's
	w.exec(b, "CREATE TABLE secret (id INT)", "INSERT INTO secret VALUES (7)")
	w.exec(a, "CREATE TABLE posts (id INT PRIMARY KEY AUTO_INCREMENT, said TEXT, raw BLOB)", "CREATE VIEW seen AS SELECT id FROM posts",
		"CREATE TABLE `o'dd``t` (`c``d` INT)", "INSERT INTO `o'dd``t` VALUES (3)",
		"CREATE PROCEDURE sly () BEGIN COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM posts; END",
		"CREATE FUNCTION slyer () RETURNS INT BEGIN DELETE FROM posts; RETURN 1; END")
	for i := range 30 {
		w.exec(a, fmt.Sprintf("INSERT INTO posts (said, raw) VALUES ('%c it''s 100%%', x'00ff%02x')", 'a'+i%26, i))
	}
	who := database.Person{Owner: anna, User: "usr_anna"}
	tables, err := w.Tables(t.Context(), who, x)
	ok(t, err)
	var names []string
	for _, x := range tables {
		names = append(names, fmt.Sprint(x.Name, x.View))
	}
	if !slices.Equal(names, []string{"o'dd`tfalse", "postsfalse", "seentrue"}) {
		t.Errorf("%q", names)
	}
	// Rows that are left must not be waited for: they would take as long as a query may.
	asking, asked := context.WithTimeout(t.Context(), 18*time.Second)
	defer asked()
	got, err := w.Rows(asking, who, x, database.Filter{Table: "posts", Sort: "id", Descending: true, Page: 2, Limit: 10})
	ok(t, err)
	ok(t, asking.Err())
	if len(got.Rows) != 10 || !got.More || got.Rows[0][0].Text != "20" || got.Rows[0][2].Text != "0x00ff13" {
		t.Errorf("%d rows, more %v, %v", len(got.Rows), got.More, got.Rows[0])
	}
	for value, want := range map[string]int{"100%": 30, "%": 30, "_": 0, "' OR 1=1 -- ": 0, "b it": 2} {
		got, err := w.Rows(t.Context(), who, x, database.Filter{Table: "posts", Column: "said", Is: "contains", Value: value})
		if err != nil || len(got.Rows) != want {
			t.Errorf("%q: %d rows, %v, want %d", value, len(got.Rows), err, want)
		}
	}
	if got, err := w.Rows(t.Context(), who, x, database.Filter{Table: "o'dd`t", Column: "c`d", Value: "3", Sort: "c`d"}); err != nil || len(got.Rows) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, f := range []database.Filter{
		{Table: "nothing"},
		{Table: ""},
		{Table: "secret"},
		{Table: y.Schema + ".secret"},
		{Table: "posts", Sort: "id; DROP TABLE posts"},
		{Table: "posts", Column: "id = 1 OR 1"},
		{Table: "posts", Column: "id", Is: "maybe"},
		{Table: "posts", Page: 1 << 62},
	} {
		if _, err := w.Rows(t.Context(), who, x, f); fault.As(err) == nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for q, want := range map[string]string{
		"SELECT COUNT(*) FROM posts;":                            "",
		" -- a\n/* b */ # c\nselect 1":                           "",
		"(SELECT 1)":                                             "query_writes",
		"DELETE FROM posts":                                      "query_writes",
		"/*!50000 DELETE FROM posts */":                          "query_writes",
		"/*M! DELETE FROM posts */":                              "query_writes",
		"BEGIN NOT ATOMIC COMMIT; DELETE FROM posts; END":        "query_writes",
		"CALL sly()":                                             "query_writes",
		"SELECT slyer()":                                         "query_writes",
		"WITH x AS (SELECT slyer() AS n) SELECT n FROM x":        "query_writes",
		"SELECT 1; DELETE FROM posts":                            "query_failed",
		"SELECT * FROM `" + y.Schema + "`.secret":                "query_failed",
		"SELECT * FROM mysql.user":                               "query_failed",
		"SELECT * FROM posts INTO OUTFILE '/tmp/slipway-escape'": "query_failed",
		"SELECT LOAD_FILE('/etc/passwd') IS NULL":                "",
		"SELECT REPEAT('x', 5000000)":                            "answer_too_large",
		"nonsense":                                               "query_writes",
		"":                                                       "invalid_query",
	} {
		_, err := w.Ask(t.Context(), who, x, database.Statement{SQL: q})
		if err == nil && want != "" || err != nil && faultCode(err) != want {
			t.Errorf("%s: %v (%s), want %s", q, err, faultCode(err), want)
		}
	}
	if got, err := w.Ask(t.Context(), who, x, database.Statement{SQL: "SELECT COUNT(*) AS n FROM posts"}); err != nil || got.Rows[0][0].Text != "30" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := w.Ask(t.Context(), who, x, database.Statement{SQL: "DELETE FROM posts WHERE id <= 5", Write: true}); err != nil || got.Affected != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, q := range []string{
		"LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE posts", "LOAD DATA INFILE '/etc/passwd' INTO TABLE posts", "DROP DATABASE mysql",
		"DROP TABLE `" + y.Schema + "`.secret", "CREATE USER anybody", "SET GLOBAL max_connections = 1",
	} {
		if _, err := w.Ask(t.Context(), who, x, database.Statement{SQL: q, Write: true}); fault.As(err) == nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	if got, err := w.Ask(t.Context(), who, x, database.Statement{SQL: "SELECT a.id FROM posts a, posts b"}); err != nil || len(got.Rows) != database.MaxRows || !got.More {
		t.Errorf("%d rows, %v", len(got.Rows), err)
	}
	// A change must be made whole, even if it returns more rows than are shown.
	w.exec(a, "CREATE TABLE many AS SELECT x.id FROM posts x, posts y")
	got, err = w.Ask(t.Context(), who, x, database.Statement{SQL: "DELETE FROM many RETURNING id, REPEAT('x', 10000)", Write: true})
	var left int
	ok(t, a.QueryRow("SELECT COUNT(*) FROM many").Scan(&left))
	if err != nil || len(got.Rows) > database.MaxRows || !got.More || left != 0 {
		t.Errorf("%d rows, more %v, %v; %d are left", len(got.Rows), got.More, err, left)
	}
	// An export must be complete: its SQL must create the same rows again.
	var out bytes.Buffer
	ok(t, w.Export(t.Context(), who, x, database.Filter{Table: "posts", Sort: "id", Column: "id", Is: "less", Value: "8"}, "csv", &out))
	if out.String() != "id,said,raw\n6,f it's 100%,0x00ff05\n7,g it's 100%,0x00ff06\n" {
		t.Errorf("%q", out.String())
	}
	w.exec(a, `INSERT INTO posts (said, raw) VALUES ('0x41', ''), ('0x', ''), ('', 0x00), (NULL, NULL), ('back\\slash\nline', 'x'), ('"', 0x41)`)
	w.exec(a, "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", "INSERT INTO posts (id, said) VALUES (0, 'zero')",
		"ALTER TABLE posts ADD size INT AS (LENGTH(said)) STORED")
	sum := func(table string) (s string) {
		t.Helper()
		ok(t, a.QueryRow("SELECT MD5(GROUP_CONCAT(CONCAT_WS('|', id, IFNULL(said, 'none'), IFNULL(HEX(raw), 'none')) ORDER BY id)) FROM "+table).Scan(&s))
		return s
	}
	out.Reset()
	ok(t, w.Export(t.Context(), who, x, database.Filter{Table: "posts"}, "sql", &out))
	w.exec(a, "CREATE TABLE again LIKE posts")
	for q := range strings.Lines(strings.ReplaceAll(out.String(), "INSERT INTO `posts`", "INSERT INTO `again`")) {
		w.exec(a, q)
	}
	if sum("posts") != sum("again") {
		t.Errorf("the rows differ:\n%s", out.String())
	}
	if err := w.Export(t.Context(), who, x, database.Filter{Table: "posts"}, "xlsx", &out); faultCode(err) != "invalid_format" {
		t.Error(err)
	}
}

// A person may run only one query at a time, and other people must not wait for it. A query that takes too long must be
// ended.
func TestConsoleIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	who := database.Person{Owner: anna, User: "usr_anna"}
	ended := make(chan error, 1)
	asking, end := context.WithCancel(t.Context())
	defer end()
	go func() {
		_, err := w.Ask(asking, who, x, database.Statement{SQL: "SET STATEMENT max_statement_time = 0 FOR SELECT SLEEP(600)", Write: true})
		ended <- err
	}()
	wait.Until(t, "the query runs", func() bool {
		var n int
		ok(t, a.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(600)%' AND id <> CONNECTION_ID()").Scan(&n))
		return n > 0
	})
	if _, err := w.Ask(t.Context(), who, x, database.Statement{SQL: "SELECT 1"}); faultCode(err) != "too_many_queries" {
		t.Errorf("a second query: %v", err)
	}
	if _, err := w.Ask(t.Context(), database.Person{Owner: anna, User: "usr_bert"}, x, database.Statement{SQL: "SELECT 1"}); err != nil {
		t.Errorf("another person's query: %v", err)
	}
	end()
	<-ended
	if _, err := w.Ask(t.Context(), who, x, database.Statement{SQL: "SELECT 1"}); err != nil {
		t.Errorf("the next query: %v", err)
	}
	wait.Until(t, "the query that lifted its bound has ended", func() bool {
		var n int
		ok(t, a.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(600)%' AND id <> CONNECTION_ID()").Scan(&n))
		return n == 0
	})
}
