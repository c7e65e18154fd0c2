package limits_test

import (
	"os"
	"strings"
	"testing"

	"slipway/internal/tenant/limits"
)

// docs/configuration.md has a row for every limit.
func TestOperatingNamesEveryLimit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range limits.Names() {
		if !strings.Contains(string(text), "\n| `"+string(name)+"` |") {
			t.Errorf("docs/configuration.md doesn't describe the limit %s", name)
		}
	}
}
