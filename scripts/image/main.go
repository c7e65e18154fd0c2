// Command image makes container images as OCI archives, which podman load, docker load, ctr import and registries
// accept.
//
// Without -of, it makes the image of an existing program. The first layer is Debian with what sites need to be built
// and run; the second one contains only the program, so that upgrades download little. With -of, it makes one or all
// images of a cluster, see cluster.go.
//
// The same programs, packages and date make the same bytes. mmdebstrap downloads the packages.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/scripts/internal/sbom"
)

// user is the program's uid and gid in the image.
const user = 10001

func main() {
	var i image
	flag.StringVar(&i.program, "program", "", "the program, of the same architecture")
	flag.StringVar(&i.out, "out", "", "the archive to write; with -of the folder for the archives")
	flag.StringVar(&i.arch, "arch", "amd64", "architecture, amd64 or arm64; nothing of another one than this machine's is run")
	flag.StringVar(&i.version, "version", "", "version for the label")
	flag.StringVar(&i.base, "base", "", "first layer made earlier with -keep, instead of a new one")
	flag.StringVar(&i.keep, "keep", "", "keep the first layer in this file; with -of the folder of first layers, whose packages are then those of the day on which they were made")
	of := flag.String("of", "", "images of a cluster: all, or names separated by commas: "+strings.Join(clusterNames(), ", "))
	date := flag.Int64("date", 0, "date of everything in the image, in Unix seconds; default: the commit's")
	flag.Parse()
	var err error
	if *of != "" {
		err = i.cluster(*of, *date)
	} else {
		err = i.run(*date)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// image is one run of the command.
type image struct {
	program, out, arch, version string
	base, keep                  string // Optional
	layers                      string // folder with first layers of cluster images; empty if there is none
	kind                        *kind  // nil: the image for a single machine
	beside                      string // Optional
	date                        time.Time
}

// kind is what distinguishes the images.
type kind struct {
	title, name string   // name is the image's name in a registry
	suffix      string   // of its tag, after the version
	packages    []string // of the first layer, besides Debian's base
	hooks       []string // for making the first layer
	program     string   // path of the program, without the leading slash
	beside      string   // additional program, from image.beside. Optional.
	config      map[string]any
	node        *node // Optional
}

// tag returns the image's name for podman load and docker load. Tags can't contain plus signs.
func (i *image) tag() string {
	return i.kind.name + ":" + strings.ReplaceAll(i.version, "+", "-") + i.kind.suffix
}

func (i *image) run(date int64) error {
	if i.program == "" || i.out == "" {
		return fmt.Errorf("-program and -out are required")
	}
	if i.kind == nil {
		i.kind = &machine
	}
	if err := i.dated(date); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "slipway-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	base := i.base
	if base == "" {
		base = filepath.Join(work, "base.tar")
		if i.keep != "" {
			base = i.keep
		}
		if err := i.first(base, work); err != nil {
			return err
		}
	}
	archive, err := newArchive(i.out, i.date)
	if err != nil {
		return err
	}
	defer archive.abandon()
	f, err := os.Open(base)
	if err != nil {
		return err
	}
	defer f.Close()
	var layers []layer
	add := func(from io.Reader, what string) error {
		l, err := archive.layer(from, what)
		layers = append(layers, l)
		return err
	}
	if err := add(f, "Debian with "+strings.Join(i.kind.packages, ", ")); err != nil {
		return err
	}
	if n := i.kind.node; n != nil {
		var b bytes.Buffer
		if err := n.layer(&b, i.arch, work, i.date); err != nil {
			return err
		}
		if err := add(&b, n.String()); err != nil {
			return err
		}
	}
	top, err := i.top()
	if err != nil {
		return err
	}
	if err := add(bytes.NewReader(top), "Slipway "+i.version); err != nil {
		return err
	}
	return archive.finish(i, layers)
}

// dated sets the date of everything in the image; 0 means the commit's.
func (i *image) dated(date int64) error {
	if date == 0 {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return fmt.Errorf("date of the commit: %w", err)
		}
		if date, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err != nil {
			return err
		}
	}
	i.date = time.Unix(date, 0).UTC()
	return nil
}

// first writes the first layer.
func (i *image) first(to, work string) error {
	if i.arch != runtime.GOARCH {
		return i.foreign(to, work)
	}
	return i.debian(to)
}

// programs returns our programs by path in the image.
func (i *image) programs() map[string]string {
	all := map[string]string{i.kind.program: i.program}
	if i.kind.beside != "" {
		all[i.kind.beside] = i.beside
	}
	return all
}

// parts returns the components of the image.
func (i *image) parts() ([]sbom.Component, error) {
	var all []sbom.Component
	err := entries(i.base, func(name string, _ *tar.Header, r *tar.Reader) (err error) {
		if name == "var/lib/dpkg/status" {
			all, err = sbom.Debian(r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if n := i.kind.node; n != nil {
		all = append(all, n.parts()...)
	}
	for _, file := range i.programs() {
		ours, err := sbom.Program(file)
		if err != nil {
			return nil, err
		}
		for _, c := range ours {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// debian writes the first layer for this machine's architecture.
func (i *image) debian(to string) error {
	hooks := append(append([]string{}, i.kind.hooks...),
		// Remove files that differ between runs, including secrets, and that containers don't need.
		`rm -rf "$1"/var/lib/mysql/* "$1"/etc/mysql/debian.cnf "$1"/etc/ssl/private/* "$1"/var/log/* "$1"/var/cache/* "$1"/usr/share/man "$1"/usr/share/info`,
		// Of the documentation, keep only licenses. A folder may be a link to another package's.
		`find "$1"/usr/share/doc -mindepth 2 ! -name copyright ! -type d -delete; find "$1"/usr/share/doc -mindepth 1 -type d -empty -delete`,
		`rm -f "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/var/lib/systemd/random-seed "$1"/etc/passwd- "$1"/etc/group- "$1"/etc/shadow- "$1"/etc/gshadow- "$1"/etc/subuid- "$1"/etc/subgid-`,
		// The date of the last password change differs between days; passwords don't expire here.
		`sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:1:/' "$1"/etc/shadow`,
		`printf 'deb http://deb.debian.org/debian bookworm main\ndeb http://deb.debian.org/debian bookworm-updates main\ndeb http://deb.debian.org/debian-security bookworm-security main\n' > "$1/etc/apt/sources.list"; rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap`,
	)
	args := []string{"--variant=minbase", "--mode=auto", "--architectures=" + i.arch, "--include=" + strings.Join(i.kind.packages, ",")}
	for _, h := range hooks {
		args = append(args, "--customize-hook="+h)
	}
	args = append(args, "bookworm", to)
	return i.mmdebstrap(args...)
}

// mmdebstrap runs mmdebstrap with the image's date.
func (i *image) mmdebstrap(args ...string) error {
	c := exec.Command("mmdebstrap", args...)
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(i.date.Unix(), 10))
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	return nil
}
