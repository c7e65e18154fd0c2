package slipway

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each migration must have a unique number, because two branches may have taken the same one.
func TestMigrationNumbers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("internal/platform/db/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal("no migrations", err)
	}
	seen := map[string]string{}
	for _, f := range files {
		number, _, _ := strings.Cut(filepath.Base(f), "_")
		if seen[number] != "" {
			t.Errorf("%s has the number of %s", f, seen[number])
		}
		seen[number] = f
	}
}
