package fault

import (
	"errors"
	"fmt"
	"testing"
)

func TestFaultIsFoundInItsChain(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("trigger: %w", fmt.Errorf("look up: %w", Missing("deploy hook")))
	f := As(wrapped)
	if f == nil || f.Message != "Deploy hook not found" || f.Code != "deploy_hook_not_found" || f.Kind != NotFound {
		t.Fatalf("got %+v", f)
	}
	if !Is(wrapped, NotFound) || Is(wrapped, Conflict) {
		t.Error("the kind is not found in the chain, or another one is")
	}
	// Plain errors aren't faults: users see "Internal error".
	if plain := errors.New("disk on fire"); As(plain) != nil || Is(plain, Internal) || As(nil) != nil {
		t.Error("As or Is takes a plain error for a fault")
	}
}
