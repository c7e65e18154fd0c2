package build

import (
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/build/toolchain"
)

// A package that uses what a later Node.js removed asks for an older one, wherever the package manager put it. A version that
// doesn't use it asks for none.
func TestRemovedFromNode(t *testing.T) {
	t.Parallel()
	const old, mended = "var origSlowBufEqual = SlowBuffer.prototype.equal;", "module.exports = crypto.timingSafeEqual"
	for name, tt := range map[string]struct{ at, text, want string }{
		"npm":    {"node_modules/buffer-equal-constant-time/index.js", old, "<25"},
		"pnpm":   {"node_modules/.pnpm/buffer-equal-constant-time@1.0.1/node_modules/buffer-equal-constant-time/index.js", old, "<25"},
		"mended": {"node_modules/buffer-equal-constant-time/index.js", mended, ""},
		"other":  {"node_modules/other/index.js", old, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, tt.at)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, tt.at), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			list := map[string]string{}
			(&pruning{root: root}).removed(".", list)
			if got := list["buffer-equal-constant-time"]; got != tt.want {
				t.Errorf("it needs %q, want %q", got, tt.want)
			}
			if tt.want != "" && (toolchain.Fits(tt.want, "26.12.1") || !toolchain.Fits(tt.want, "24.1.0")) {
				t.Errorf("%s is read as another range", tt.want)
			}
		})
	}
}
