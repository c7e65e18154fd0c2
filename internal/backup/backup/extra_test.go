package backup

import (
	"encoding/json"
	"fmt"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// Every backup of settings or databases includes WordPress's extra data. A restore passes it back to WordPress and says
// which parts are restored.
func TestExtra(t *testing.T) {
	t.Parallel()
	var d memory
	var told []string // by the last committed transaction
	w := newWorld(t, d.wire, func(c *Config) {
		c.WordPress = extra{`{"a":1}`, func(tx *db.Tx, s site.Site, extra json.RawMessage, of Restored) error {
			say := fmt.Sprintf("%s settings %v databases %v new %v", extra, of.Settings, of.Databases, of.New)
			tx.AfterCommit(func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				told = append(told, say)
			})
			return nil
		}}
	})
	s := w.site("data", map[string]string{"index.html": "hello"})
	d.set(s.ID, "rows")
	for i, tt := range []struct {
		holds, back []string
		want        string
	}{
		{nil, nil, `{"a":1} settings true databases true new false`},
		{nil, []string{Databases}, `{"a":1} settings false databases true new false`},
		{nil, []string{Settings}, `{"a":1} settings true databases false new false`},
		{nil, []string{Files}, ""},
		{[]string{Databases}, nil, `{"a":1} settings false databases true new false`},
		{[]string{Settings}, nil, `{"a":1} settings true databases false new false`},
		{[]string{Files}, nil, ""},
	} {
		b := w.backUp(s.ID, NewBackup{Includes: tt.holds})
		d.mu.Lock()
		told = nil
		d.mu.Unlock()
		if o, _ := w.restoreTo(b.ID, RestoreTo{Includes: tt.back}); o.Error != "" {
			t.Fatalf("%d: %s", i, o.Error)
		}
		w.until(fmt.Sprintf("%d: it is told %q", i, tt.want), func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return tt.want == "" && len(told) == 0 || len(told) == 1 && told[0] == tt.want
		})
	}
}
