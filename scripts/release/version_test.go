package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"slipway/scripts/internal/changelog"
)

// A repository without tags is at a release if its last commit changed VERSION. Once releases are tagged, only the tag
// decides.
func TestReleased(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=You", "-c", "user.email=you@example.test", "-c", "commit.gpgsign=false"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(want bool) {
		t.Helper()
		git("add", "--all")
		git("commit", "--quiet", "--message", "next")
		version, err := changelog.Version(".")
		if err != nil {
			t.Fatal(err)
		}
		if got := released("v" + version); got != want {
			t.Errorf("released(v%s) = %t", version, got)
		}
	}
	git("init", "--quiet", "--initial-branch=main")
	write("VERSION", "0.2.0\n")
	write("CHANGELOG.md", "# Changelog\n\n## 0.2.0 (2026-01-01)\n\nThe first.\n")
	commit(false) // the file is new
	if err := os.Mkdir("changes", 0o755); err != nil {
		t.Fatal(err)
	}
	write("changes/teams.md", "Added: teams.\n")
	commit(false)
	if err := changelog.Gather(".", "0.3.0", time.Now()); err != nil {
		t.Fatal(err)
	}
	commit(true)
	write("changes/tags.md", "Added: tags.\n")
	commit(false)
	git("tag", "v0.3.0")
	if !released("v0.3.0") || released("v0.4.0") {
		t.Error("released is wrong for a tag: only the tag's own version may be released")
	}
	if err := changelog.Gather(".", "0.4.0", time.Now()); err != nil {
		t.Fatal(err)
	}
	commit(false) // its tag is missing
}
