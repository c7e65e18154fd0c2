package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// triplets maps architectures to Debian's names in paths.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// database writes dpkg's database for packages that were unpacked without dpkg, for tools that list an image's
// packages.
const database = `set -eu
db="$1/var/lib/dpkg"
mkdir -p "$db/info"
echo 1 >"$db/info/format"
: >"$db/status"
for deb in "$1"/var/cache/apt/archives/*.deb; do
	name=$(dpkg-deb --field "$deb" Package)
	[ "$(dpkg-deb --field "$deb" Multi-Arch)" != same ] || name=$name:$(dpkg-deb --field "$deb" Architecture)
	dpkg-deb --control "$deb" "$db/part"
	rm "$db/part/control"
	for file in "$db"/part/*; do [ ! -e "$file" ] || mv "$file" "$db/info/$name.${file##*/}"; done
	rmdir "$db/part"
	dpkg-deb --fsys-tarfile "$deb" | tar --list | sed 's|^\.||; s|/$||; s|^$|/.|' >"$db/info/$name.list"
	{ dpkg-deb --field "$deb" | sed '1a Status: install ok installed'; echo; } >>"$db/status"
done`

// foreign writes the first layer for another architecture, whose programs can't run here. The results of packages'
// scripts (users, links, lists of certificates, owners and modes of files) are the same for all architectures: they are
// copied from this machine's layer and combined with the files of the other architecture's packages.
func (i *image) foreign(to, work string) error {
	if err := i.fits(); err != nil {
		return err
	}
	own := *i
	own.arch = runtime.GOARCH
	configured, unpacked := filepath.Join(work, "configured.tar"), filepath.Join(work, "unpacked.tar")
	if kept := filepath.Join(i.layers, own.layerName()); i.layers != "" && exists(kept) {
		configured = kept
	} else if err := own.debian(configured); err != nil {
		return err
	}
	// The packages of the smallest variant, in addition to the requested ones.
	smallest := "--include=?or(?essential,?priority(required))"
	if err := i.mmdebstrap("--variant=extract", "--mode=auto", "--skip=check/qemu", "--architectures="+i.arch, smallest,
		"--include=apt,"+strings.Join(i.kind.packages, ","), "--extract-hook="+database, "bookworm", unpacked); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(merge(w, configured, unpacked, triplets[own.arch], triplets[i.arch]), w.Flush(), f.Close())
}

// machines maps architectures to their ELF machine numbers.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// fits returns an error unless the program is for the image's architecture.
func (i *image) fits() error {
	f, err := elf.Open(i.program)
	if err != nil {
		return fmt.Errorf("%s: %w", i.program, err)
	}
	defer f.Close()
	if want := machines[i.arch]; f.Machine != want {
		return fmt.Errorf("%s is for %s, not for %s", i.program, f.Machine, want)
	}
	return nil
}

// merge writes a layer for the architecture to: the files of the tar unpacked, with owners and modes from the tar
// configured, which is for the architecture from, and the files that scripts added to configured.
func merge(out io.Writer, configured, unpacked, from, to string) error {
	made := map[string]*tar.Header{} // entries of configured
	programs := map[string]bool{}    // those of configured that are for its architecture
	if err := entries(configured, func(name string, h *tar.Header, r *tar.Reader) error {
		start := make([]byte, 4)
		n, _ := io.ReadFull(r, start)
		made[name], programs[name] = h, bytes.Equal(start[:n], []byte("\x7fELF")) || h.Typeflag == tar.TypeLink && programs[clean(h.Linkname)]
		return nil
	}); err != nil {
		return err
	}
	w := tar.NewWriter(out)
	there := map[string]bool{}
	if err := entries(unpacked, func(name string, h *tar.Header, r *tar.Reader) error {
		if there[name] || leftOut(name) {
			return nil // folders in bin exist in usr/bin, too
		}
		if m := made[name]; m != nil {
			if strings.HasPrefix(name, "etc/") || !programs[name] && (m.Typeflag != h.Typeflag || h.Typeflag == tar.TypeSymlink) {
				return nil // configured has it
			}
			h.Mode, h.Uid, h.Gid, h.Uname, h.Gname, h.PAXRecords, h.Format = m.Mode, m.Uid, m.Gid, m.Uname, m.Gname, m.PAXRecords, m.Format
		}
		there[name] = true
		return add(w, name, h, r)
	}); err != nil {
		return err
	}
	if err := entries(configured, func(name string, h *tar.Header, r *tar.Reader) error {
		h.Linkname = strings.ReplaceAll(h.Linkname, from, to)
		if there[name] || programs[name] || strings.Contains(name, from) || name == "etc/ld.so.cache" || strings.HasPrefix(name, "usr/lib64/") ||
			strings.HasPrefix(name, "var/lib/dpkg/info/") || name == "var/lib/dpkg/status" {
			return nil
		}
		return add(w, name, h, r)
	}); err != nil {
		return err
	}
	return w.Close()
}

// leftOut reports files that containers don't need, or that differ between runs.
func leftOut(name string) bool {
	if doc, ok := strings.CutPrefix(name, "usr/share/doc/"); ok { // keep licenses, and links to folders with them
		return strings.Contains(doc, "/") && path.Base(doc) != "copyright"
	}
	for _, folder := range []string{"usr/share/man/", "usr/share/info/", "var/log/", "var/cache/", "var/lib/apt/lists/"} {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	return slices.Contains([]string{"etc/hostname", "etc/machine-id", "etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap"}, name) // of this machine
}

// clean returns a tar entry's name for a system with a merged /usr.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	switch top, _, below := strings.Cut(name, "/"); {
	case below && (top == "bin" || top == "sbin" || top == "lib" || top == "lib64"):
		return "usr/" + name
	}
	return name
}

// entries calls f for each file of a tar.
func entries(file string, f func(name string, h *tar.Header, r *tar.Reader) error) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	for r := tar.NewReader(bufio.NewReaderSize(from, 1<<20)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(clean(h.Name), h, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

func add(w *tar.Writer, name string, h *tar.Header, r *tar.Reader) error {
	h.Name = "./" + name
	if h.Typeflag == tar.TypeDir && name != "" {
		h.Name += "/"
	}
	if h.Typeflag == tar.TypeLink {
		h.Linkname = "./" + clean(h.Linkname)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(w, r)
	return err
}
