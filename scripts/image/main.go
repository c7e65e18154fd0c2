// Command image makes the container image of a program that is there: an OCI archive that podman load, docker load and
// registries take. Its first layer is Debian with what sites are built and run with, its second one the program alone, so
// that an upgrade fetches little.
//
// The same program, packages and date make the same bytes. mmdebstrap fetches the packages.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// packages are those of the first layer beside Debian's own. tini ends what programs leave behind, as init does elsewhere.
var packages = []string{
	"bubblewrap", "ca-certificates", "composer", "curl", "git", "mariadb-server", "openssh-client", "php-cli", "php-curl", "php-fpm",
	"php-gd", "php-intl", "php-mbstring", "php-mysql", "php-xml", "php-zip", "redis-server", "tini", "unzip",
}

// user is who the program is in the image, and their group.
const user = 10001

func main() {
	var i image
	flag.StringVar(&i.program, "program", "", "the program, of the same architecture")
	flag.StringVar(&i.out, "out", "", "the archive to write")
	flag.StringVar(&i.arch, "arch", "amd64", "architecture, amd64 or arm64; nothing of another one than this machine's is run")
	flag.StringVar(&i.version, "version", "", "version for the label")
	flag.StringVar(&i.base, "base", "", "first layer made earlier with -keep, instead of a new one")
	flag.StringVar(&i.keep, "keep", "", "keep the first layer in this file")
	date := flag.Int64("date", 0, "date of everything in the image, in Unix seconds; default: the commit's")
	flag.Parse()
	err := i.run(*date)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// image is one run.
type image struct {
	program, out, arch, version string
	base, keep                  string // Optional
	date                        time.Time
}

func (i *image) run(date int64) error {
	if i.program == "" || i.out == "" {
		return fmt.Errorf("-program and -out are required")
	}
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
		make := i.debian
		if i.arch != runtime.GOARCH {
			make = func(to string) error { return i.foreign(to, work) }
		}
		if err := make(base); err != nil {
			return err
		}
	}
	top, err := i.top()
	if err != nil {
		return err
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
	for _, from := range []struct {
		what string
		tar  interface{ Read([]byte) (int, error) }
	}{{"Debian with " + strings.Join(packages, ", "), f}, {"Slipway " + i.version, bytes.NewReader(top)}} {
		l, err := archive.layer(from.tar, from.what)
		if err != nil {
			return err
		}
		layers = append(layers, l)
	}
	return archive.finish(i, layers)
}

// debian writes the first layer.
func (i *image) debian(to string) error {
	hooks := []string{
		fmt.Sprintf(`chroot "$1" useradd --uid %d --user-group --home-dir /var/lib/slipway --no-create-home --shell /usr/sbin/nologin slipway`, user),
		`install -d -o 10001 -g 10001 -m 0700 "$1/var/lib/slipway"`,
		// The image says what it is: nothing in it is upgraded in place.
		`install -d "$1/usr/lib/slipway" && : > "$1/usr/lib/slipway/image"`,
		// What differs from one run to the next, secrets among it, and what no container reads.
		`rm -rf "$1"/var/lib/mysql/* "$1"/etc/mysql/debian.cnf "$1"/etc/ssl/private/* "$1"/var/log/* "$1"/var/cache/* "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/info`,
		`rm -f "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/var/lib/systemd/random-seed "$1"/etc/passwd- "$1"/etc/group- "$1"/etc/shadow- "$1"/etc/gshadow- "$1"/etc/subuid- "$1"/etc/subgid-`,
		// Accounts carry the day on which they were made; no password ages here.
		`sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:1:/' "$1"/etc/shadow`,
		`printf 'deb http://deb.debian.org/debian bookworm main\ndeb http://deb.debian.org/debian bookworm-updates main\ndeb http://deb.debian.org/debian-security bookworm-security main\n' > "$1/etc/apt/sources.list"; rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap`,
	}
	args := []string{"--variant=minbase", "--mode=auto", "--architectures=" + i.arch, "--include=" + strings.Join(packages, ",")}
	for _, h := range hooks {
		args = append(args, "--customize-hook="+h)
	}
	args = append(args, "bookworm", to)
	return i.mmdebstrap(args...)
}

// mmdebstrap runs it with the image's date.
func (i *image) mmdebstrap(args ...string) error {
	c := exec.Command("mmdebstrap", args...)
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(i.date.Unix(), 10))
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	return nil
}
