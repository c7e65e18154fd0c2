package changelog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A release must list the changes by kind, above the earlier releases. Afterwards the folder must be empty, the notes
// must be the release's section, and VERSION must name it.
func TestGather(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "changes"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("CHANGELOG.md", "# Changelog\n\nNewest first.\n\n## 0.1.0 (2026-01-01)\n\nThe first.\n")
	write("changes/README.md", "How to.\n")
	write("changes/b.md", "Fixed: the log ends.\n")
	write("changes/a.md", "Added: teams.\nSecurity: a cookie is bound to its host.\n")
	if err := Gather(root, "0.2.0", time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	const notes = "### Added\n\n- Teams.\n\n### Fixed\n\n- The log ends.\n\n### Security\n\n- A cookie is bound to its host.\n"
	if want := "# Changelog\n\nNewest first.\n\n## 0.2.0 (2026-02-03)\n\n" + notes + "\n## 0.1.0 (2026-01-01)\n\nThe first.\n"; err != nil || string(text) != want {
		t.Errorf("CHANGELOG.md is %q, %v, want %q", text, err, want)
	}
	if left, err := os.ReadDir(filepath.Join(root, "changes")); err != nil || len(left) != 1 || left[0].Name() != "README.md" {
		t.Errorf("left is %v, %v", left, err)
	}
	if version, got, err := Newest(root); err != nil || version != "0.2.0" || got != notes {
		t.Errorf("newest is %q %q, %v", version, got, err)
	}
	if version, err := Version(root); err != nil || version != "0.2.0" {
		t.Errorf("VERSION is %q, %v", version, err)
	}

	write("changes/c.md", "Improved: a word.\n")
	for version, why := range map[string]string{"0.3.0": "begins with none of", "0.2.0": "already", "next": "no version"} {
		if err := Gather(root, version, time.Now()); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", version, err, why)
		}
	}
	if after, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md")); err != nil || string(after) != string(text) {
		t.Errorf("a refused release changed the page: %v", err)
	}
}

// It must be possible to gather all noted changes and to read every existing release.
func TestChanges(t *testing.T) {
	if _, _, err := Read("../../.."); err != nil {
		t.Error(err)
	}
	newest, notes, err := Newest("../../..")
	if err != nil || notes == "" {
		t.Errorf("notes are %q, %v", notes, err)
	}
	if version, err := Version("../../.."); err != nil || version != newest {
		t.Errorf("VERSION is %q, %v; the newest release of CHANGELOG.md is %s", version, err, newest)
	}
}
