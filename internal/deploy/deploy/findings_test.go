package deploy

import (
	"slices"
	"strings"
	"testing"
)

// The log of a successful deployment reports a missing index.html, and LFS files that couldn't be downloaded.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12345\n"
	w.commit("bare", map[string]string{
		"other.html":     "x",
		"page.html":      "x",
		"slipway.toml":   "output = \".\"\n",
		".gitattributes": "*.png filter=lfs\n",
		"pictures/a.png": pointer,
	})
	w.commit("whole", map[string]string{"index.html": "x"})
	bare, whole := w.live(w.site("git.test/acme/bare").ID), w.live(w.site("git.test/acme/whole").ID)
	has := func(log []string, words string) bool {
		return slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, words) })
	}
	log := w.log(bare.LiveDeployment)
	if !has(log, "no index.html at their root") || !has(log, "pictures/a.png") {
		t.Errorf("log of a site without either: %q", log)
	}
	if log := w.log(whole.LiveDeployment); has(log, "no index.html") || has(log, "LFS") {
		t.Errorf("log of a whole site: %q", log)
	}
}
