package cli

import (
	"fmt"
	"testing"

	"slipway/internal/client/imports"
)

// A site is created with all values of a key or none of them, because the rest is found by its keys.
func TestFirstVariables(t *testing.T) {
	var vars []imports.Var
	for n := range firstVars - 1 {
		vars = append(vars, imports.Var{Key: fmt.Sprintf("K%03d", n)})
	}
	if got := first(vars); got != firstVars-1 {
		t.Errorf("%d of %d", got, len(vars))
	}
	vars = append(vars, imports.Var{Key: "Z"}, imports.Var{Key: "Z"}, imports.Var{Key: "ZZ"})
	if got := first(vars); got != firstVars-1 {
		t.Errorf("%d of %d: the values of a key are torn apart", got, len(vars))
	}
}
