package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/md5"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway/packaging"
)

// deb writes slipway_VERSION_ARCH.deb with dpkg-deb, from a tree in the work folder.
func (r *release) deb(arch, program, work string) error {
	dir := filepath.Join(work, "deb-"+arch)
	for _, file := range []struct {
		from, to string
		mode     os.FileMode
	}{
		{program, "usr/bin/slipway", 0o755},
		{"packaging/systemd/slipway.service", "lib/systemd/system/slipway.service", 0o644},
		{"packaging/systemd/slipway.socket", "lib/systemd/system/slipway.socket", 0o644},
		{"packaging/systemd/slipway-upgrade.service", "lib/systemd/system/slipway-upgrade.service", 0o644},
		{"packaging/systemd/unprivileged.conf", "usr/share/doc/slipway/examples/unprivileged.conf", 0o644},
		{filepath.Join(work, "slipway.bash"), "usr/share/bash-completion/completions/slipway", 0o644},
		{filepath.Join(work, "slipway.zsh"), "usr/share/zsh/vendor-completions/_slipway", 0o644},
		{filepath.Join(work, "slipway.fish"), "usr/share/fish/vendor_completions.d/slipway.fish", 0o644},
		{"packaging/deb/server.toml", "etc/slipway/server.toml", 0o640},
		{"packaging/deb/default", "etc/default/slipway", 0o640},
		{"packaging/deb/copyright", "usr/share/doc/slipway/copyright", 0o644},
		{"NOTICE", "usr/share/doc/slipway/NOTICE", 0o644},
		{"packaging/deb/lintian-overrides", "usr/share/lintian/overrides/slipway", 0o644},
		{"packaging/deb/preinst", "DEBIAN/preinst", 0o755},
		{"packaging/deb/postinst", "DEBIAN/postinst", 0o755},
		{"packaging/deb/prerm", "DEBIAN/prerm", 0o755},
		{"packaging/deb/postrm", "DEBIAN/postrm", 0o755},
		{"packaging/deb/conffiles", "DEBIAN/conffiles", 0o644},
	} {
		text, err := os.ReadFile(file.from)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, file.to), text, file.mode); err != nil {
			return err
		}
	}
	news, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	manual, err := os.ReadFile(filepath.Join(work, "slipway.1"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"doc/slipway/CHANGELOG.md.gz": string(news), "doc/slipway/changelog.gz": r.changelog(), "man/man1/slipway.1.gz": string(manual),
		"doc/slipway/" + licenses + ".gz": packaging.Licenses(),
	} {
		packed, err := zipped(text)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, "usr/share", name), packed, 0o644); err != nil {
			return err
		}
	}
	// It acts only after an interrupted upgrade, so it is always enabled.
	wants := filepath.Join(dir, "lib/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("../slipway-upgrade.service", filepath.Join(wants, "slipway-upgrade.service")); err != nil {
		return err
	}
	sums, size, err := contents(dir)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "DEBIAN/md5sums"), sums, 0o644); err != nil {
		return err
	}
	control, err := os.ReadFile("packaging/deb/control")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("@VERSION@", r.version, "@ARCH@", arch, "@SIZE@", strconv.FormatInt(size, 10)).Replace(string(control))
	if err := write(filepath.Join(dir, "DEBIAN/control"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := r.dated(dir); err != nil {
		return err
	}
	return command([]string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.date.Unix(), 10)}, "dpkg-deb",
		"--root-owner-group", "-Zxz", "-z"+cmp.Or(r.level, "6"), "--build", dir, filepath.Join(r.out, "slipway_"+r.version+"_"+arch+".deb"))
}

// changelog returns a Debian changelog with a single entry.
func (r *release) changelog() string {
	return fmt.Sprintf("slipway (%s) stable; urgency=medium\n\n  * What changed is in CHANGELOG.md.gz.\n\n -- Slipway developers <developers@slipway.example>  %s\n",
		r.version, r.date.Format(time.RFC1123Z))
}

// zipped compresses a text without a file name and date.
func zipped(text string) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write([]byte(text)); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// contents returns the text of md5sums, which dpkg --verify reads, and the installed size in KiB.
func contents(dir string) (sums []byte, size int64, err error) {
	var b strings.Builder
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.HasPrefix(name, "DEBIAN/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size += (int64(len(text)) + 1023) >> 10
		if !strings.HasPrefix(name, "etc/") {
			fmt.Fprintf(&b, "%x  %s\n", md5.Sum(text), name)
		}
		return nil
	})
	return []byte(b.String()), size, err
}

// dated sets the commit's date on everything, and the usual mode on folders, regardless of the umask.
func (r *release) dated(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		if err != nil {
			return err
		}
		return os.Chtimes(path, r.date, r.date)
	})
}

func write(path string, text []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // regardless of the umask
}
