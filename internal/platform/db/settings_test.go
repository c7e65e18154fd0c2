package db

import (
	"os"
	"strings"
	"testing"
)

// docs/configuration.md lists the settings of connections.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "### Connections to PostgreSQL")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, s := range settings {
		if !ok || !strings.Contains(section, "`"+s.name+"`") || !strings.Contains(section, "`"+s.value+"`") {
			t.Errorf("docs/configuration.md lacks %s = %s", s.name, s.value)
		}
	}
}
