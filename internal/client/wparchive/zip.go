package wparchive

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"slipway/internal/platform/unzip"
)

// openZip opens a zip with a limited directory.
func openZip(name string) (*os.File, *zip.Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	z, err := unzip.Open(f, info.Size(), unzip.Limits{Entries: maxEntries, Bytes: maxList})
	if err != nil {
		_ = f.Close()
		return nil, nil, bad("%s: %w", filepath.Base(name), err)
	}
	return f, z, nil
}

// unpacked is a file of a zip that is opened on first read.
type unpacked struct {
	f *zip.File
	r io.ReadCloser
}

func (u *unpacked) Read(b []byte) (n int, err error) {
	if u.r == nil {
		if u.r, err = u.f.Open(); err != nil {
			return 0, err
		}
	}
	return u.r.Read(b)
}

func (u *unpacked) close() {
	if u.r != nil {
		_ = u.r.Close()
	}
}

// takeZip passes on one file of a zip and skips links and devices.
func takeZip(take taker, f *zip.File, as string) error {
	if !f.Mode().IsRegular() {
		return nil
	}
	if f.UncompressedSize64 > maxBytes {
		return bad("it is larger than %d GiB unpacked", maxBytes>>30)
	}
	u := &unpacked{f: f}
	defer u.close()
	return take.take(item{path: as, size: int64(f.UncompressedSize64), in: u})
}

// duplicator is a Duplicator package: the whole site, and its dump next to the installer.
type duplicator string

func isDump(name string) bool {
	return strings.HasPrefix(name, "dup-installer/dup-database__") && strings.HasSuffix(name, ".sql")
}

// isDuplicator reports whether a file is a zip with Duplicator's dump.
func isDuplicator(name string) (bool, error) {
	if is, err := begins(name, "PK\x03\x04"); !is || err != nil {
		return false, err
	}
	f, z, err := openZip(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return slices.ContainsFunc(z.File, func(f *zip.File) bool { return isDump(f.Name) }), nil
}

// begins reports whether a file starts with the given text.
func begins(name, with string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	first := make([]byte, len(with))
	n, _ := io.ReadFull(f, first)
	return bytes.Equal(first[:n], []byte(with)), nil
}

func (d duplicator) walk(_ context.Context, take taker) (left []string, err error) {
	f, z, err := openZip(string(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, x := range z.File {
		rel, content := strings.CutPrefix(x.Name, "wp-content/")
		switch {
		case isDump(x.Name):
			err = takeZip(take, x, "")
		case content && rel != "":
			err = takeZip(take, x, rel)
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// updraft is a set of UpdraftPlus: the dump, and zips for each part of wp-content.
type updraft struct {
	dump  string
	parts []string // paths of zips
	left  []string
}

// updraftName matches the name of a file in a set: set, part, number and extension.
var updraftName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(backup_[0-9-]{10,20}_.{0,200}_[0-9a-f]{12})-(db|plugins|themes|uploads|others|mu-plugins|wpcore|more)([0-9]{0,4})\.(gz|zip)(\.crypt)?$`)
})

// updraftSet returns the set that the files belong to, or nil. One file selects all files of its set in the same
// folder.
func updraftSet(files []string) (*updraft, error) {
	m := updraftName().FindStringSubmatch(filepath.Base(files[0]))
	if m == nil {
		return nil, nil
	}
	set := m[1]
	if len(files) == 1 {
		dir := filepath.Dir(files[0])
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			if m := updraftName().FindStringSubmatch(e.Name()); m != nil && m[1] == set {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	u := &updraft{}
	seen := map[string]bool{}
	for _, name := range files {
		m := updraftName().FindStringSubmatch(filepath.Base(name))
		switch {
		case m == nil || m[1] != set:
			return nil, bad("%s is not of the backup %s", filepath.Base(name), set)
		case m[5] != "":
			return nil, bad("%s is encrypted; decrypt it in UpdraftPlus first", filepath.Base(name))
		case m[2] == "db" && m[3] == "":
			u.dump = name
		case m[2] == "db":
			u.left = append(u.left, "another database, "+filepath.Base(name))
		case m[2] == "wpcore" || m[2] == "more":
			u.left = append(u.left, filepath.Base(name)+": WordPress itself is installed by Slipway")
		default:
			u.parts = append(u.parts, name)
			seen[m[2]] = true
		}
	}
	for _, part := range []string{"plugins", "themes", "uploads"} {
		if !seen[part] {
			u.left = append(u.left, part+": the backup has no file of them")
		}
	}
	slices.Sort(u.parts)
	return u, nil
}

func (u *updraft) walk(_ context.Context, take taker) (left []string, err error) {
	if u.dump == "" {
		return u.left, bad("the file of the database (-db.gz) is missing")
	}
	f, err := os.Open(u.dump)
	if err != nil {
		return u.left, err
	}
	defer f.Close()
	if err := take.take(item{gzip: true, in: f}); err != nil {
		return u.left, err
	}
	for _, name := range u.parts {
		if err := u.part(take, name); err != nil {
			return u.left, err
		}
	}
	return u.left, nil
}

func (u *updraft) part(take taker, name string) error {
	f, z, err := openZip(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, x := range z.File {
		if strings.HasSuffix(x.Name, "/") {
			continue
		}
		if err := takeZip(take, x, x.Name); err != nil {
			return err
		}
	}
	return nil
}
