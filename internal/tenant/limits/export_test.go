package limits

import (
	"maps"
	"slices"
)

// Names is for the test that compares the limits with the documents.
func Names() []Name { return slices.Sorted(maps.Keys(kinds)) }
