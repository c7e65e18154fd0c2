package archive_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/client/wparchive"
	"slipway/internal/wordpress/archive"
)

// An archive that the command line converted from another tool's can be imported.
func TestConvertedArchive(t *testing.T) {
	t.Parallel()
	const dump = "CREATE TABLE `old_options` (id int);\nCREATE TABLE `old_usermeta` (id int);\n"
	var pack bytes.Buffer
	z := zip.NewWriter(&pack)
	for _, file := range [][2]string{
		{"wp-content/uploads/2026/a.txt", "one"}, {"dup-installer/dup-database__1.sql", dump}, {"wp-content/db.php", "<?php"},
	} {
		w, err := z.Create(file[0])
		if err == nil {
			_, err = io.WriteString(w, file[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(t.TempDir(), "old_archive.zip")
	if err := os.WriteFile(from, pack.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := wparchive.Open([]string{from})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "site.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := a.Convert(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var sql bytes.Buffer
	var tables archive.Prefixes
	load := func(in io.Reader) error {
		_, err := io.Copy(io.MultiWriter(&sql, &tables), in)
		return err
	}
	if err := archive.Unpack(t.Context(), f.Name(), dir, 1<<20, load, func(float64) {}); err != nil {
		t.Fatal(err)
	}
	if prefix, err := tables.Found(); err != nil || prefix != "old_" || sql.String() != dump {
		t.Errorf("the dump is %q with the prefix %q, %v", sql.String(), prefix, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "uploads/2026/a.txt")); err != nil || string(b) != "one" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "db.php")); err == nil {
		t.Error("a drop-in of the other server came along")
	}
}
