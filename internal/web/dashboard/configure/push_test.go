package configure

import (
	"errors"
	"testing"

	"slipway/internal/wordpress/wordpress"
)

// What one of two sites doesn't say is unknown, and neither the same nor different.
func TestPushRows(t *testing.T) {
	t.Parallel()
	a := sideOf{state: wordpress.State{Version: "6.9", Plugins: []wordpress.Extension{{Active: true}, {}}, DiskBytes: 2 << 20}, users: 3}
	b := a
	b.users = 4
	says := func(from, to sideOf) map[string]pushRow {
		out := map[string]pushRow{}
		for _, r := range pushRows(from, to) {
			out[r.Name] = r
		}
		return out
	}
	rows := says(a, b)
	if r := rows["Users"]; r != (pushRow{"Users", "3", "4"}) || r.Says() != "Differs" {
		t.Errorf("%+v %s", r, r.Says())
	}
	if r := rows["Plugins"]; r.From != "2 plugins, 1 active" || r.Says() != "Same" {
		t.Errorf("%+v %s", r, r.Says())
	}
	b.err = errors.New("asleep")
	if r := says(a, b)["Files"]; r != (pushRow{"Files", "2.0 MiB", "Unknown"}) || r.Says() != "" {
		t.Errorf("%+v %q", r, r.Says())
	}
}
