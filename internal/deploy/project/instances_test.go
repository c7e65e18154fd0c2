package project

import (
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Sites with storage, and PHP sites, can only have one instance. Settings or a slipway.toml with more are rejected.
func TestCheckInstances(t *testing.T) {
	t.Parallel()
	two := 2
	asks := site.Run{Instances: &site.Instances{Max: &two}}
	node := framework.Plan{Runtime: framework.Node, Start: &framework.Start{}}
	stores := framework.Plan{Runtime: framework.Node, Start: &framework.Start{Storage: []string{"data"}}}
	for name, c := range map[string]struct {
		run     site.Run
		plan    framework.Plan
		refused bool
	}{
		"Node.js":                   {asks, node, false},
		"files":                     {asks, framework.Plan{Runtime: framework.Static}, false},
		"storage":                   {asks, stores, true},
		"one":                       {site.Run{}, stores, false},
		"PHP":                       {asks, framework.Plan{Runtime: framework.PHP, Start: &framework.Start{}}, true},
		"storage of slipway.toml":   {asks, framework.Plan{Runtime: framework.Node, Run: &framework.Run{Storage: &[]string{"data"}}}, true},
		"instances of slipway.toml": {site.Run{}, framework.Plan{Runtime: framework.PHP, Run: &framework.Run{MinInstances: &two}}, true},
	} {
		err := CheckInstances(c.run, c.plan)
		if f := fault.As(err); (f != nil) != c.refused || f != nil && f.Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
