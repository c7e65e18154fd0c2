package storage

import (
	"testing"

	"slipway/internal/platform/id"
)

// A site must be due for measurement while one of its programs runs, and once more after the last one has ended.
func TestDue(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	first, second := m.Begin("one"), m.Begin("one")
	other := m.Begin("other")
	for name, tt := range []struct {
		then func()
		want string
	}{
		{func() {}, "one other"},
		{first, "one other"},
		{first, "one other"}, // a second end has no effect
		{other, "one other"},
		{func() {}, "one"},
		{second, "one"},
		{func() {}, ""},
	} {
		tt.then()
		if due := id.Join(m.Due()); due != tt.want {
			t.Errorf("step %d: due are %q, want %q", name, due, tt.want)
		}
	}
}
