package deploy

import (
	"encoding/json"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
)

// A site keeps using the server's Node.js if its live deployment was built with it.
func TestServerNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "x"})
	s := w.site("git.test/acme/site")
	check := func(plan framework.Plan, want bool) {
		t.Helper()
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.write(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE deployments SET plan = $1`, string(text))
			return err
		})
		if got, err := w.serverNode(t.Context(), s); err != nil || got != want {
			t.Errorf("%+v: %v, %v", plan, got, err)
		}
	}
	check(framework.Plan{Manager: "npm"}, false) // not live yet
	s = w.live(s.ID)
	check(framework.Plan{Manager: "npm"}, true)
	check(framework.Plan{Runtime: framework.Node}, true)
	check(framework.Plan{Runtime: framework.Static}, false)
	check(framework.Plan{Manager: "npm", Node: "24.99.0"}, false)
	check(framework.Plan{Manager: "npm", Makeshift: true}, false)
}
