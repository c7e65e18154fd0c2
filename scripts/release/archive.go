package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
)

// archive writes slipway_VERSION_linux_ARCH.tar.gz: the program, a readme, and the systemd units.
func (r *release) archive(arch, program, work string) error {
	top := "slipway_" + r.version + "_linux_" + arch
	f, err := os.Create(filepath.Join(r.out, top+".tar.gz"))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, file := range []struct {
		from, name string
		mode       int64
	}{
		{"CHANGELOG.md", "CHANGELOG.md", 0o644},
		{"LICENSE", "LICENSE", 0o644},
		{"NOTICE", "NOTICE", 0o644},
		{"README.md", "README.md", 0o644},
		{filepath.Join(work, licenses), licenses, 0o644},
		{"packaging/deb/server.toml", "server.toml", 0o644},
		{filepath.Join(work, "slipway.bash"), "completions/slipway.bash", 0o644},
		{filepath.Join(work, "slipway.fish"), "completions/slipway.fish", 0o644},
		{filepath.Join(work, "slipway.zsh"), "completions/slipway.zsh", 0o644},
		{program, "slipway", 0o755},
		{filepath.Join(work, "slipway.1"), "slipway.1", 0o644},
		{"packaging/systemd/slipway.service", "slipway.service", 0o644},
		{"packaging/systemd/slipway.socket", "slipway.socket", 0o644},
		{"packaging/systemd/slipway-upgrade.service", "slipway-upgrade.service", 0o644},
		{"packaging/systemd/slipway-auto-upgrade.service", "slipway-auto-upgrade.service", 0o644},
		{"packaging/systemd/slipway-auto-upgrade.timer", "slipway-auto-upgrade.timer", 0o644},
		{"packaging/systemd/unprivileged.conf", "unprivileged.conf", 0o644},
	} {
		if err := r.add(t, file.from, top+"/"+file.name, file.mode); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

// add adds a file with the commit's date and without an owner's name.
func (r *release) add(t *tar.Writer, from, name string, mode int64) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size(), ModTime: r.date, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}
