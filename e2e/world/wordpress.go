package world

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var wordPressVersion = regexp.MustCompile(`\$wp_version = '[^']*'`)

// DebianWordPress fills a directory with links to Debian's WordPress, with the given version. The directory may already
// have another version.
func DebianWordPress(to, version string) error {
	const debian = "/usr/share/wordpress"
	text, err := os.ReadFile(debian + "/wp-includes/version.php")
	if err != nil {
		return fmt.Errorf("the package wordpress is not installed: %w", err)
	}
	for _, dir := range []string{"", "wp-includes", "wp-content"} {
		entries, err := os.ReadDir(filepath.Join(debian, dir))
		if err = cmp.Or(err, os.MkdirAll(filepath.Join(to, dir), 0o755)); err != nil {
			return err
		}
		for _, e := range entries {
			switch e.Name() {
			case "wp-includes", "version.php", "wp-content", "languages":
				continue
			}
			err := os.Symlink(filepath.Join(debian, dir, e.Name()), filepath.Join(to, dir, e.Name()))
			if err != nil && !os.IsExist(err) {
				return err
			}
		}
	}
	text = wordPressVersion.ReplaceAll(text, []byte("$$wp_version = '"+version+"'"))
	return os.WriteFile(filepath.Join(to, "wp-includes/version.php"), text, 0o644)
}
