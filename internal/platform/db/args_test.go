package db_test

import (
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	for _, q := range []string{
		"INSERT INTO t VALUES ('a', 1, TRUE, NULL)",
		"INSERT INTO t VALUES ('b', 2, TRUE, NULL)",
		"INSERT INTO t VALUES ('c', 3, TRUE, NULL)",
	} {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		least int
		ids   []string
		want  int
	}{{1, []string{"a", "b", "z"}, 2}, {2, []string{"a", "b"}, 1}, {0, nil, 0}} {
		args := db.Args{tt.least}
		q := "SELECT count(*) FROM t WHERE n >= $1 AND id IN (" + db.AddList(&args, tt.ids) + ") AND n < " + args.Add(100)
		var n int
		if err := d.QueryRow(t.Context(), q, args...).Scan(&n); err != nil || n != tt.want {
			t.Errorf("%s %v: %d, %v; want %d", q, args, n, err, tt.want)
		}
	}
}
