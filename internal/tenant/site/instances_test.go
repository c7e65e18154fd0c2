package site

import (
	"testing"

	"slipway/internal/platform/fault"
)

// Only programs without storage can have several instances, and a patch changes only the fields it names.
func TestCheckInstances(t *testing.T) {
	t.Parallel()
	n := func(v int) *int { return &v }
	folders := &[]string{"data"}
	for name, c := range map[string]struct {
		have, patch Run
		kind        Type
		wrong       string
	}{
		"none":              {Run{}, Run{}, WordPress, ""},
		"both":              {Run{}, Run{Instances: &Instances{n(2), n(10)}}, Static, ""},
		"one":               {Run{Storage: folders}, Run{Instances: &Instances{n(1), n(1)}}, WordPress, ""},
		"more at least":     {Run{Instances: &Instances{Max: n(3)}}, Run{Instances: &Instances{Min: n(3)}}, Static, ""},
		"too many at least": {Run{Instances: &Instances{Max: n(3)}}, Run{Instances: &Instances{Min: n(4)}}, Static, "Invalid run.instances.min"},
		"none at least":     {Run{}, Run{Instances: &Instances{Min: n(0)}}, Static, "Invalid run.instances.min"},
		"none at most":      {Run{}, Run{Instances: &Instances{Max: n(0)}}, Static, "Invalid run.instances.max"},
		"too many at most":  {Run{}, Run{Instances: &Instances{Max: n(11)}}, Static, "Invalid run.instances.max"},
		"storage":           {Run{Storage: folders}, Run{Instances: &Instances{Max: n(2)}}, Static, "Invalid run.instances.max"},
		"then storage":      {Run{Instances: &Instances{Max: n(2)}}, Run{Storage: folders}, Static, "Invalid run.instances.max"},
		"WordPress":         {Run{}, Run{Instances: &Instances{Min: n(2)}}, WordPress, "Invalid run.instances.max"},
	} {
		err := CheckRun(c.patch)
		if err == nil {
			s := Site{Type: c.kind, Run: mergeRun(c.have, c.patch)}
			err = s.checkInstances()
		}
		f := fault.As(err)
		if c.wrong == "" && err != nil || c.wrong != "" && (f == nil || f.Kind != fault.Invalid || f.Message != c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
}
