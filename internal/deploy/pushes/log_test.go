package pushes

import (
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
)

// A push reported through several ways is deployed once. The same commit is deployed again if it follows another one or
// comes again in the same way.
func TestToldTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.site(0)
	note := func(via, ref, commit string, x deployment.ID) {
		t.Helper()
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			var out Outcome
			if x != "" {
				out.Deployments = []deployment.Deployment{{ID: x}}
			}
			return noteEventTx(t.Context(), tx, s.ID, incoming{
				forge.Event{Changes: []forge.Change{{Branch: ref, Commit: commit}}},
				via,
			}, out, "")
		}))
	}
	before := func(via, ref, commit string) (x deployment.ID) {
		t.Helper()
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			x, err = triggeredTx(t.Context(), tx, s.ID, via, ref, commit)
			return err
		}))
		return x
	}
	hook := string(forge.GitHub)
	if x := before(ViaPoll, "main", sha(1)); x != "" {
		t.Errorf("nothing was told of, and it was deployed by %s", x)
	}
	note(hook, "main", sha(1), "dep_1")
	for via, want := range map[string]deployment.ID{ViaPoll: "dep_1", ViaApp: "dep_1", hook: "", string(forge.GitLab): ""} {
		if x := before(via, "main", sha(1)); x != want {
			t.Errorf("told by the hook, then by %s: %q, want %q", via, x, want)
		}
		if x := before(via, "other", sha(1)); x != "" {
			t.Errorf("of another branch, by %s: %q", via, x)
		}
	}
	note(ViaApp, "main", sha(1), "") // skipped, because the webhook reported it already
	if x := before(ViaPoll, "main", sha(1)); x != "dep_1" {
		t.Errorf("told a third time: %q", x)
	}
	note(hook, "main", sha(2), "dep_2")
	if x := before(ViaPoll, "main", sha(1)); x != "" {
		t.Errorf("back to an earlier commit: %q", x)
	}
	note(ViaPoll, "main", sha(1), "dep_3")
	if x := before(hook, "main", sha(1)); x != "dep_3" {
		t.Errorf("the hook comes later: %q", x)
	}
	if x := before(ViaPoll, "main", sha(1)); x != "" {
		t.Errorf("polled again: %q", x)
	}
}
