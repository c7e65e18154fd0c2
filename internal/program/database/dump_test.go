package database_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/program/database"
)

// awkward fills a database with everything that makes dumps fail: every kind of value, and names that try to break out
// of their quotes.
var awkward = []string{
	"SET time_zone = '+05:00'",
	"CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, f FLOAT, d DOUBLE, n DECIMAL(30,10), b BIT(13), t LONGTEXT, l VARCHAR(20) CHARACTER SET latin1, raw LONGBLOB, j JSON, at TIMESTAMP(6) NULL, day DATE, e ENUM('a','b;'), s SET('x','y'), p POINT, y YEAR, u UUID, g INT GENERATED ALWAYS AS (y * 2) STORED, v INT AS (y + 1) VIRTUAL, hidden INT INVISIBLE DEFAULT 3)",
	"INSERT INTO kinds (id, f, d, n, b, t, l, raw, j, at, day, e, s, p, y, u, hidden) VALUES (18446744073709550000, 16777217, 1e-300, -12345678901234567890.0123456789, b'1010101010101', 'line\\none\\\\ '' \" ; -- \\Z', 'caf\u00e9', x'00ff27225c0a0d1a3b', '{\"a\": \"b\\\\n\"}', '2024-02-03 04:05:06.789012', '2024-02-29', 'b;', 'x,y', POINT(1.5, -2), 2024, UUID(), 9)",
	"INSERT INTO kinds (f) VALUES (0.1)",
	"CREATE TABLE `a``;\nDROP TABLE kinds; -- x` (`x;``y` INT, `\u00fc` TEXT COMMENT 'it''s; \\n')",
	"INSERT INTO `a``;\nDROP TABLE kinds; -- x` VALUES (1, '\U0001F600'), (1, '\U0001F600'), (NULL, NULL)",
	"CREATE TABLE parent (id INT PRIMARY KEY)", "CREATE TABLE child (id INT, CONSTRAINT c FOREIGN KEY (id) REFERENCES parent (id))",
	"INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1)",
	"CREATE TABLE empty (x INT)",
	"CREATE SEQUENCE counter START WITH 5 INCREMENT BY 10", "DO NEXTVAL(counter)",
	"CREATE FUNCTION twice (x INT) RETURNS INT DETERMINISTIC BEGIN DECLARE y INT; SET y = x * 2; RETURN y; END",
	"CREATE PROCEDURE fill () BEGIN INSERT INTO empty VALUES (1); END",
	"CREATE TRIGGER more BEFORE INSERT ON empty FOR EACH ROW BEGIN SET NEW.x = NEW.x + 100; SET NEW.x = NEW.x + 1; END",
	"CREATE VIEW z_view AS SELECT id FROM parent", "CREATE VIEW a_view AS SELECT twice(id) AS `t``w` FROM z_view",
	"CREATE TABLE checked (x INT CHECK (x > 5))", "SET check_constraint_checks = 0", "INSERT INTO checked VALUES (1)",
	// In these modes the server writes definers in double quotes, and a backslash escapes nothing.
	"SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", `CREATE PROCEDURE modes () BEGIN SELECT '\'; SELECT 1 AS "a;;` + "`" + `b"; END`,
	`CREATE TRIGGER "quo""ted" BEFORE INSERT ON checked FOR EACH ROW SET NEW."x" = 7`, "SET sql_mode = ''",
	"CREATE TABLE gone (x INT)", "CREATE VIEW broken AS SELECT x FROM gone", "DROP TABLE gone",
}

func (w *world) dump(id database.ID) []byte {
	w.t.Helper()
	var out bytes.Buffer
	ok(w.t, w.Dump(w.t.Context(), id, &out))
	return out.Bytes()
}

// A dump must load as it was, both with our code and with MariaDB's own client. A loaded dump must replace a database
// at once and leave nothing behind.
func TestDumpAndLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.site(anna, "one"), w.site(anna, "two")
	x := w.database(anna, one)
	a := w.connect(one)
	a.SetMaxOpenConns(1)
	w.exec(a, awkward...)
	first := w.dump(x.ID)
	if strings.Contains(string(first), x.Schema) || strings.Contains(string(first), "DEFINER=") {
		t.Errorf("the dump names its server's user or database")
	}

	const left = "\n-- The view \"broken\" doesn't work and was left out\n"
	if !strings.Contains(string(first), left) {
		t.Errorf("the broken view is not named in\n%s", first)
	}
	// A dump of the loaded database must have the same bytes: nothing is lost, and nothing depends on the server.
	l, err := w.Load(t.Context(), anna, bytes.NewReader(first), database.LoadOptions{Check: true})
	ok(t, err)
	w.exec(a, "DELETE FROM kinds", "DROP TABLE child, parent", "CREATE TABLE later (x INT)")
	var y database.Database
	w.write(func(tx *db.Tx) (err error) {
		y, err = l.PutTx(t.Context(), tx, anna, one, x.Name, 0)
		return err
	})
	if y.ID != x.ID || y.Schema == x.Schema {
		t.Errorf("put: %+v, was %+v", y, x)
	}
	first = []byte(strings.Replace(string(first), left, "", 1))
	if second := w.dump(x.ID); string(second) != string(first) {
		t.Errorf("after the restore the dump is\n%s\nwas\n%s", second, first)
	}
	b := w.connect(one)
	var n int64
	ok(t, b.QueryRowContext(t.Context(), "SELECT NEXTVAL(counter)").Scan(&n))
	if n <= 5 || n%10 != 5 { // the counter may skip numbers, as after a restart of the server
		t.Errorf("the sequence goes on with %d", n)
	}
	w.exec(b, "CALL fill()")
	ok(t, b.QueryRowContext(t.Context(), "SELECT x + (SELECT `t``w` FROM a_view) FROM empty").Scan(&n))
	if n != 104 {
		t.Errorf("trigger, function and views give %d", n)
	}
	if _, err := b.ExecContext(t.Context(), "INSERT INTO child VALUES (7)"); code(err) != 1452 {
		t.Errorf("the foreign key doesn't hold: %v", err)
	}

	// The dump is loaded as the first database of another site.
	l, err = w.Load(t.Context(), anna, bytes.NewReader(first), database.LoadOptions{})
	ok(t, err)
	w.write(func(tx *db.Tx) error { _, err := l.PutTx(t.Context(), tx, anna, two, "main", 0); return err })
	ok(t, w.connect(two).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM kinds").Scan(&n))
	if n != 2 {
		t.Errorf("%d rows", n)
	}
	env, _, err := w.Env(t.Context(), two)
	ok(t, err)
	if env["DATABASE_URL"] == "" {
		t.Error("its variables have a prefix")
	}

	// MariaDB's own client must load the dump too.
	l, err = w.Load(t.Context(), anna, strings.NewReader("CREATE TABLE x (x INT);\n-- slipway:end\n"), database.LoadOptions{})
	ok(t, err)
	var z database.Database
	w.write(func(tx *db.Tx) (err error) {
		z, err = l.PutTx(t.Context(), tx, anna, two, "client", 0)
		return err
	})
	socket := w.socket(two)
	env, _, err = w.Env(t.Context(), two)
	ok(t, err)
	link := filepath.Join(w.dir, "s") // a socket's path must be short
	ok(t, os.Symlink(socket, link))
	cmd := exec.Command("mariadb", "--no-defaults", "--socket="+link, "--user="+z.Schema, z.Schema)
	cmd.Env, cmd.Stdin = append(os.Environ(), "MYSQL_PWD="+env["CLIENT_DB_PASSWORD"]), bytes.NewReader(first)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mariadb: %v: %s", err, out)
	}
	w.connectAs(two, "CLIENT_", func(c *sql.DB) { w.exec(c, "DROP TABLE x") })
	if third := w.dump(z.ID); string(third) != string(first) {
		t.Errorf("after MariaDB's client the dump is\n%s\nwas\n%s", third, first)
	}

	// Dumps of other programs must load: with collations of MySQL 8, and with the byte order mark of an editor before
	// the first line.
	l, err = w.Load(
		t.Context(),
		anna,
		strings.NewReader(
			"\ufeff-- phpMyAdmin SQL Dump\r\nCREATE TABLE m (a VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs, b TEXT) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;\r\nINSERT INTO m VALUES ('utf8mb4_0900_ai_ci', 'x');\r\n",
		),
		database.LoadOptions{
			Foreign: true,
		},
	)
	ok(t, err)
	w.write(func(tx *db.Tx) error { _, err := l.PutTx(t.Context(), tx, anna, two, "client", 0); return err })
	w.connectAs(two, "CLIENT_", func(c *sql.DB) {
		var a, of, b string
		ok(t, c.QueryRowContext(t.Context(), "SELECT a, COLLATION(a), COLLATION(b) FROM m").Scan(&a, &of, &b))
		if a != "utf8mb4_0900_ai_ci" || of != "utf8mb4_bin" || b != "utf8mb4_unicode_520_ci" {
			t.Errorf("loaded %q with %s and %s", a, of, b)
		}
	})

	// A dump of several databases, one of which would replace tables of the other, must be refused with a clear
	// message, and so must one with events. A dump that names its only database again must be accepted.
	for sql, want := range map[string]string{
		"CREATE DATABASE /*!32312 IF NOT EXISTS*/ `one`; USE `one`; CREATE TABLE t (a INT); USE `two`; DROP TABLE IF EXISTS t; CREATE TABLE t (b INT);":                             `several databases, "one" and "two"`,
		"CREATE TABLE t (a INT);\n/*!50106 DROP EVENT IF EXISTS `e` */;":                                                                                                            "without events",
		"DELIMITER ;;\n/*!50106 CREATE*/ /*!50117 DEFINER=`root`@`localhost`*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY ON COMPLETION NOT PRESERVE ENABLE DO DELETE FROM t */ ;;": "without events",
		"CREATE DATABASE `one`; USE `one`; CREATE TABLE t (a INT); USE one;":                                                                                                        "",
	} {
		l, err := w.Load(t.Context(), anna, strings.NewReader(sql), database.LoadOptions{Foreign: true})
		switch f := fault.As(err); {
		case err == nil && want == "":
			l.Drop(t.Context())
		case want == "" || f == nil || !strings.Contains(f.Details, want):
			t.Errorf("%s: %v", sql, err)
		}
	}

	// A dump that has been changed or cut must change nothing and leave nothing behind.
	for what, tt := range map[string]struct {
		sql   string
		check bool
	}{
		"truncated":       {string(first[:len(first)-20]), false},
		"cut in a string": {string(first[:bytes.Index(first, []byte("line"))+2]), false},
		"a row less": {
			strings.Replace(string(first), "INSERT INTO `parent`", "REPLACE INTO `parent` (`id`) VALUES (8); INSERT INTO `parent`", 1),
			true,
		},
		"another value":   {strings.Replace(string(first), "2024-02-29", "2024-02-28", 1), true},
		"another's":       {"SELECT * FROM mysql.user;\n-- slipway:end\n", false},
		"another's table": {"CREATE TABLE `" + y.Schema + "`.t (x INT);\n-- slipway:end\n", false},
		"a file":          {"LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE x;\n-- slipway:end\n", false},
	} {
		if l, err := w.Load(t.Context(), anna, strings.NewReader(tt.sql), database.LoadOptions{
			Check: tt.check,
		}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
	}
	ok(t, w.db.Admin(t.Context(), "UPDATE database_scratch SET until = 0")) // as if a minute had passed
	w.until("what was replaced is dropped", func() bool {
		entries, err := os.ReadDir(filepath.Join(w.server(anna), "data"))
		ok(t, err)
		schemas := 0
		for _, e := range entries {
			if e.IsDir() && len(e.Name()) == 27 {
				schemas++
			}
		}
		ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM database_scratch`).Scan(&n))
		return schemas == 3 && n == 0
	})
}

// If a process ended while it loaded a dump, the next process must drop what was loaded, even if no site has a
// database.
func TestScratchOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.Load(t.Context(), anna, strings.NewReader("CREATE TABLE t (x INT);\n-- slipway:end\n"), database.LoadOptions{})
	ok(t, err)
	left := func() int {
		list, err := filepath.Glob(filepath.Join(w.server(anna), "data/s??????????????????????????"))
		ok(t, err)
		return len(list)
	}
	if left() != 1 {
		t.Fatalf("%d databases are loaded", left())
	}
	w.stop()
	sealer, err := seal.Load(filepath.Join(w.dir, "key"))
	ok(t, err)
	w.start(sealer)
	w.until("it is dropped", func() bool {
		n := 0
		ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM database_scratch`).Scan(&n))
		return n == 0 && left() == 0
	})
}

// A dump must show the data of one moment, even if rows are written and tables are changed meanwhile.
func TestDumpIsOfOneMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	w.exec(a, "CREATE TABLE a (x INT)", "CREATE TABLE b (x INT)", "INSERT INTO a VALUES (0)", "INSERT INTO b VALUES (0)")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ctx.Err() == nil; i++ {
			tx, err := a.Begin()
			if err != nil {
				return
			}
			_, err = tx.Exec(fmt.Sprintf("UPDATE a SET x = %d", i))
			if err == nil {
				_, err = tx.Exec(fmt.Sprintf("UPDATE b SET x = %d", i))
			}
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				tx.Rollback()
			}
		}
	}()
	defer func() { cancel(); <-done }()
	for range 20 {
		text := string(w.dump(x.ID))
		if rows := strings.Split(
			text,
			"VALUES\n",
		); len(rows) != 3 || strings.SplitN(rows[1], ";", 2)[0] != strings.SplitN(rows[2], ";", 2)[0] {
			t.Fatalf("the tables are of different moments:\n%s", text)
		}
	}
}

// triggered calls fire once the given number of bytes has passed.
type triggered struct {
	io.Reader
	io.Writer
	left int
	fire func()
}

func (x *triggered) count(n int) {
	if x.left > 0 && x.left <= n {
		x.fire()
	}
	x.left -= n
}

func (x *triggered) Read(b []byte) (int, error) {
	n, err := x.Reader.Read(b[:min(len(b), 64<<10)])
	x.count(n)
	return n, err
}

func (x *triggered) Write(b []byte) (int, error) {
	x.count(len(b))
	return x.Writer.Write(b)
}

// If the server is killed during a dump or a load, it must fail with a clear message and leave nothing behind, and
// afterwards both must succeed.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	w.exec(a, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, x TEXT)", "INSERT INTO t (x) SELECT REPEAT(seq, 1000) FROM seq_1_to_1500")
	good := w.dump(x.ID)
	end := func() { kill(t, w.server(anna)) }
	err := w.Dump(t.Context(), x.ID, &triggered{Writer: io.Discard, left: 1 << 20, fire: end})
	if f := fault.As(err); f == nil || f.Code != "database_unavailable" {
		t.Errorf("the dump ends with %v", err)
	}
	w.until("the server is back", func() bool { return a.PingContext(t.Context()) == nil })
	_, err = w.Load(t.Context(), anna, &triggered{Reader: bytes.NewReader(good), left: 3 << 20, fire: end}, database.LoadOptions{})
	if f := fault.As(err); f == nil || f.Code != "database_unavailable" {
		t.Errorf("the load ends with %v", err)
	}
	w.until("the server is back", func() bool { return a.PingContext(t.Context()) == nil })
	l, err := w.Load(t.Context(), anna, bytes.NewReader(good), database.LoadOptions{Check: true})
	ok(t, err)
	l.Drop(t.Context())
	again := w.dump(x.ID) // a restart may move the counter of AUTO_INCREMENT
	if _, rows, _ := bytes.Cut(again, []byte("INSERT INTO")); !bytes.HasSuffix(good, rows) || len(rows) < 1<<20 {
		t.Errorf("the dump has %d bytes, had %d", len(again), len(good))
	}
	w.until("nothing is left", func() bool {
		var n int
		ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM database_scratch`).Scan(&n))
		return n == 0
	})
}

// Many databases of a site must be dumped at once, each in a separate transaction that begins before any of them is
// read.
func TestDumpsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	w.exec(w.connect(one), "CREATE TABLE t (x INT)")
	const all = 20
	began, goOn, done := make(chan struct{}, all), make(chan struct{}), make(chan error, all)
	for range all {
		go func() {
			done <- w.Dump(t.Context(), x.ID, &triggered{Writer: io.Discard, left: 1, fire: func() { began <- struct{}{}; <-goOn }})
		}()
	}
	for range all {
		<-began
	}
	close(goOn)
	for range all {
		ok(t, <-done)
	}
}
