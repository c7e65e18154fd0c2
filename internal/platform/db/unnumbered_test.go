package db

import "testing"

// Unnumbered replaces numbered parameters by plain ones if the meaning is the same, and changes nothing else.
func TestUnnumbered(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"SELECT 1": "SELECT 1",
		"SELECT a FROM t WHERE b = $1 AND c IN ($2, $3)": "SELECT a FROM t WHERE b = ? AND c IN (?, ?)",
		"SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10": "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?",
		"SELECT $2, $1":               "SELECT $2, $1",
		"SELECT $1, $1":               "SELECT $1, $1",
		"SELECT $1, $11":              "SELECT $1, $11",
		"SELECT $01":                  "SELECT $01",
		"SELECT $":                    "SELECT $",
		"SELECT '$1', $1":             "SELECT '$1', ?",
		`SELECT "$2", $1, 'it''s $3'`: `SELECT "$2", ?, 'it''s $3'`,
		"SELECT $1 -- '":              "SELECT $1 -- '",
		"SELECT $1 /* ' */":           "SELECT $1 /* ' */",
		"SELECT $1 ? 'x'":             "SELECT $1 ? 'x'",
	} {
		if got := unnumbered(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
