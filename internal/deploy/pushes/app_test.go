package pushes

import (
	"fmt"
	"testing"

	"slipway/internal/tenant/site"
)

// Another account's many sites of a public repository don't use up the limit of sites that an event of a GitHub App
// deploys.
func TestSitesTakeTurns(t *testing.T) {
	t.Parallel()
	var sites []site.Site
	for n := range 150 {
		sites = append(sites, site.Site{ID: site.ID(fmt.Sprint("a", n)), Owner: "own_stranger"})
	}
	sites = append(sites, site.Site{ID: "b0", Owner: "own_ada"}, site.Site{ID: "b1", Owner: "own_ada"})
	got := inTurns(sites)
	if len(got) != 152 || got[0].ID != "a0" || got[1].ID != "b0" || got[2].ID != "a1" || got[3].ID != "b1" || got[4].ID != "a2" {
		t.Errorf("the first sites are %v", []site.ID{got[0].ID, got[1].ID, got[2].ID, got[3].ID, got[4].ID})
	}
}
