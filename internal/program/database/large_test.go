package database_test

import (
	"bytes"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/program/database"
)

// Whatever can be stored must be loadable again, including rows as long as a statement may be.
func TestLargeRowsComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	a.SetMaxOpenConns(1)
	w.exec(a, "CREATE TABLE large (id INT PRIMARY KEY, a LONGTEXT, b LONGTEXT, c LONGBLOB)",
		"INSERT INTO large VALUES (1, REPEAT('x', 20 << 20), NULL, NULL), (2, NULL, REPEAT('\\'', 14 << 20), UNHEX(REPEAT('00', 2 << 20)))",
		"INSERT INTO large VALUES (3, REPEAT('y', 28 << 20), NULL, NULL)", "UPDATE large SET b = REPEAT('z', 28 << 20) WHERE id = 3")
	l, err := w.Load(t.Context(), anna, bytes.NewReader(w.dump(x.ID)), database.LoadOptions{Check: true})
	ok(t, err)
	w.write(func(tx *db.Tx) error {
		_, err := l.PutTx(t.Context(), tx, anna, one, x.Name, 0)
		return err
	})
	var n int64
	ok(t, w.connect(one).QueryRowContext(t.Context(), "SELECT SUM(COALESCE(LENGTH(a), 0) + COALESCE(LENGTH(b), 0)) FROM large").Scan(&n))
	if n != (20+14+28+28)<<20 {
		t.Errorf("%d bytes came back", n)
	}
}
