package limits

import (
	"maps"
	"slices"
)

// Names lists all limits, for the test that compares them with the docs.
func Names() []Name { return slices.Sorted(maps.Keys(kinds)) }
