package world

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var wordPressVersion = regexp.MustCompile(`\$wp_version = '[^']*'`)

// DebianWordPress fills a directory with links to Debian's WordPress, with the given version. The directory may already
// have another version.
func DebianWordPress(to, version string) error {
	return linkWordPress("/usr/share/wordpress", to, version)
}

// WordPressOf downloads the WordPress of another release of Debian, such as trixie or sid, together with the packages
// that its links lead to. It returns the path and the version.
func WordPressOf(ctx context.Context, release, dir string) (at, version string, err error) {
	lists := filepath.Join(dir, "lists/partial")
	source := filepath.Join(dir, "sources.list")
	line := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian " + release + " main\n"
	if err := cmp.Or(os.MkdirAll(lists, 0o755), os.WriteFile(source, []byte(line), 0o644)); err != nil {
		return "", "", err
	}
	apt := func(args ...string) error {
		options := []string{
			"-q", "-o", "Dir::State::Lists=" + filepath.Dir(lists), "-o", "Dir::Etc::SourceList=" + source,
			"-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Dir::Cache=" + filepath.Join(dir, "cache"), "-o", "APT::Sandbox::User=root",
		}
		cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("apt-get %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := apt("update"); err != nil {
		return "", "", err
	}
	err = apt("download", "wordpress", "wordpress-theme-twentytwentyfive", "php-getid3", "libphp-phpmailer", "libjs-cropper", "libjs-lodash",
		"libjs-underscore", "libjs-jquery-ui")
	if err != nil {
		return "", "", err
	}
	packages, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, p := range packages {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", p, filepath.Join(dir, "root")).CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("unpack %s: %w: %s", p, err, out)
		}
	}
	at = filepath.Join(dir, "root/usr/share/wordpress")
	text, err := os.ReadFile(filepath.Join(at, "wp-includes/version.php"))
	if err != nil {
		return "", "", err
	}
	return at, strings.Trim(strings.TrimPrefix(string(wordPressVersion.Find(text)), "$wp_version = "), "'"), nil
}

// linkWordPress fills a directory with links to a WordPress.
func linkWordPress(debian, to, version string) error {
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
