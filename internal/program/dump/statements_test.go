package dump

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// SQL must be split where MariaDB's client splits it.
func TestStatements(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want []string
	}{
		"plain":   {"SELECT 1;\nSELECT 2;", []string{"SELECT 1", "SELECT 2"}},
		"no end":  {"SELECT 1;SELECT 2\n", []string{"SELECT 1", "SELECT 2"}},
		"strings": {`SELECT 'a;''b\';c', "d;\"e", 'f"g';SELECT 2`, []string{`SELECT 'a;''b\';c', "d;\"e", 'f"g'`, "SELECT 2"}},
		"names":   {"SELECT `a;``b\\`;SELECT 2", []string{"SELECT `a;``b\\`", "SELECT 2"}},
		"comments": {
			"-- a;b\n# c;d\nSELECT 1 -- e;'f\n+1 # g;h\n;/* i;'j */SELECT 2;",
			[]string{"SELECT 1 \n+1", "/* i;'j */SELECT 2"},
		},
		"minus is no comment": {"SELECT 1--1;SELECT 5/2;", []string{"SELECT 1--1", "SELECT 5/2"}},
		"versions": {
			"/*!40101 SET NAMES utf8 */;\n/*!50003 CREATE*/ /*!50003 TRIGGER x BEGIN a; END */;",
			[]string{"/*!40101 SET NAMES utf8 */", "/*!50003 CREATE*/ /*!50003 TRIGGER x BEGIN a; END */"},
		},
		"delimiter": {
			"DELIMITER ;;\nCREATE TRIGGER t BEGIN a; b; END ;;\ndelimiter ;\nSELECT 1;",
			[]string{"CREATE TRIGGER t BEGIN a; b; END", "SELECT 1"},
		},
		"word of that name": {"DELIMITERS;SELECT 1;", []string{"DELIMITERS", "SELECT 1"}},
		"mark of an editor": {"\ufeff-- x\nSELECT 1;", []string{"SELECT 1"}},
		"empty":             {";;\n ; -- x", nil},
		"open string":       {"SELECT 'a;", []string{"SELECT 'a;"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				s := NewStatements(r, nil)
				var got []string
				for {
					q, err := s.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(q))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
		})
	}
	long := NewStatements(strings.NewReader("SELECT '"+strings.Repeat("x", maxStatement+1<<20)+"'"), nil)
	if _, err := long.Next(); !errors.Is(err, errLong) {
		t.Errorf("a long one: %v", err)
	}
}

// Statements in a foreign dump that concern the server it came from must be left out; its other statements must stay.
func TestForeign(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"USE `other`": "",
		"CREATE DATABASE /*!32312 IF NOT EXISTS*/ `x`":                                  "",
		"/*!40000 DROP DATABASE IF EXISTS `x`*/":                                        "",
		"LOCK TABLES `a` WRITE":                                                         "",
		"SET @@GLOBAL.GTID_PURGED=''":                                                   "",
		"CREATE TABLE a (b TEXT COLLATE utf8mb4_0900_as_cs) COLLATE=utf8mb4_0900_ai_ci": "CREATE TABLE a (b TEXT COLLATE utf8mb4_bin) COLLATE=utf8mb4_unicode_520_ci",
		"/*!40101 SET NAMES utf8mb4 COLLATE utf8mb4_de_pb_0900_as_ci */":                "/*!40101 SET NAMES utf8mb4 COLLATE utf8mb4_unicode_520_ci */",
		"INSERT INTO a VALUES ('utf8mb4_0900_ai_ci')":                                   "INSERT INTO a VALUES ('utf8mb4_0900_ai_ci')",
		"INSERT INTO a VALUES ('USE b')":                                                "INSERT INTO a VALUES ('USE b')",
		"/*!50003 CREATE*/ /*!50017 DEFINER=`a`@`%`*/ /*!50003 TRIGGER t BEGIN END */":  "/*!50003 CREATE*/ /*!50017 */ /*!50003 TRIGGER t BEGIN END */",
		"CREATE DEFINER=`root`@`localhost` VIEW v AS SELECT 1":                          "CREATE  VIEW v AS SELECT 1",
		"INSERT INTO a VALUES ('CREATE DEFINER=`a`@`b`')":                               "INSERT INTO a VALUES ('CREATE DEFINER=`a`@`b`')",
	} {
		if got := Portable(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"CREATE DEFINER=`s``x`@`localhost` TRIGGER t":                            "CREATE TRIGGER t",
		"CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW v": "CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW v",
		"CREATE TRIGGER `t DEFINER=`x`@`y` z":                                    "CREATE TRIGGER `t DEFINER=`x`@`y` z",
		"CREATE DEFINER=\"a\"\"`\"@\"%\" PROCEDURE p":                            "CREATE PROCEDURE p",
		"CREATE DEFINER=":                  "CREATE DEFINER=",
		"CREATE DEFINER=`role` FUNCTION f": "CREATE FUNCTION f",
	} {
		if got := withoutDefiner(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}
