package server

import (
	"slices"
	"testing"

	"slipway/internal/operator/config"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	fleet "slipway/internal/platform/node"
)

// A stopped temporary node is removed from the list, unless it has a site's only copy of something. Other nodes stay.
func TestForget(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("with SQLite there is one node")
	}
	for name, want := range map[string]struct {
		temporary, pinned, stays bool
	}{
		"temporary":   {temporary: true},
		"pinned":      {temporary: true, pinned: true, stays: true},
		"of a server": {stays: true},
	} {
		self, err := fleet.New(fleet.Config{DB: d, Dir: t.TempDir(), Blobs: "s3://here"})
		if err == nil {
			err = self.Join(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		h := &node{self: self, s: config.Settings{Config: config.Config{NodeTemporary: want.temporary}}}
		h.DB = d
		if want.pinned {
			if err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO placements (site_id, node, pinned, since) VALUES ('site_of_the_test', $1, TRUE, 0)`, self.ID())
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := fleet.List(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		stays := slices.ContainsFunc(list, func(n fleet.Node) bool { return n.ID == self.ID() })
		if stays != want.stays {
			t.Errorf("%s: on the list: %v", name, stays)
		}
	}
}
