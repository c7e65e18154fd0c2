// Package machine checks whether programs are installed on this machine, and installs missing ones.
//
// It installs only with apt, as root or with sudo, and never asks for a password without a terminal. If it can't
// install packages, it names them in one line.
package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs maps Debian packages to a file that shows that they are installed.
var programs = map[string]string{
	"bubblewrap":                        "/usr/bin/bwrap",
	"chromium":                          "/usr/bin/chromium",
	"chromium-headless-shell":           "/usr/bin/chromium-headless-shell",
	"containernetworking-plugins":       "/usr/lib/cni/ptp",
	"curl":                              "/usr/bin/curl",
	"git":                               "/usr/bin/git",
	"mariadb-server":                    "/usr/sbin/mariadbd",
	"iproute2":                          "/usr/sbin/ip",
	"lintian":                           "/usr/bin/lintian",
	"minisign":                          "/usr/bin/minisign",
	"gnupg":                             "/usr/bin/gpg",
	"debian-archive-keyring":            "/usr/share/keyrings/debian-archive-keyring.gpg",
	"mmdebstrap":                        "/usr/bin/mmdebstrap",
	"nghttp2-client":                    "/usr/bin/h2load",
	"openssl":                           "/usr/bin/openssl",
	"podman":                            "/usr/bin/podman",
	"nginx":                             "/usr/sbin/nginx",
	"nftables":                          "/usr/sbin/nft",
	"nodejs":                            "/usr/bin/node",
	"npm":                               "/usr/bin/npm",
	"php-cli":                           "/usr/bin/php",
	"php":                               "/usr/share/doc/php",
	"php-fpm":                           "/usr/sbin/php-fpm*",
	"composer":                          "/usr/bin/composer",
	"php-curl":                          "/usr/lib/php/*/curl.so",
	"php-mbstring":                      "/usr/lib/php/*/mbstring.so",
	"php-gd":                            "/usr/lib/php/*/gd.so",
	"php-mysql":                         "/usr/lib/php/*/mysqli.so",
	"wordpress":                         "/usr/share/wordpress/wp-load.php",
	"wordpress-theme-twentytwentythree": "/usr/share/wordpress/wp-content/themes/twentytwentythree/style.css",
	"postgresql":                        "/usr/lib/postgresql/*/bin/postgres",
	"prometheus":                        "/usr/bin/prometheus",
	"python3":                           "/usr/bin/python3",
	"python3-cryptography":              "/usr/lib/python3/dist-packages/cryptography",
	"python3-zstandard":                 "/usr/lib/python3/dist-packages/zstandard",
	"redis-server":                      "/usr/bin/redis-server",
	"shellcheck":                        "/usr/bin/shellcheck",
	"sqlite3":                           "/usr/bin/sqlite3",
	"zsh":                               "/usr/bin/zsh",
	"fish":                              "/usr/bin/fish",
	"jq":                                "/usr/bin/jq",
	"mandoc":                            "/usr/bin/mandoc",
	"systemd":                           "/usr/bin/systemd-analyze",
}

// Missing returns the Debian packages that aren't installed.
func Missing(packages ...string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(p string) bool {
		found, _ := filepath.Glob(programs[p])
		if len(found) > 0 {
			return true
		}
		_, err := exec.LookPath(filepath.Base(programs[p]))
		return err == nil
	})
}

// Install installs missing Debian packages. Its error is one line that says what the user must install.
func Install(packages ...string) error {
	missing := Missing(packages...)
	if len(missing) == 0 {
		return nil
	}
	sudo := has("sudo")
	prefix, err := means{
		apt: has("apt-get"), root: os.Geteuid() == 0, asked: sudo && Terminal(os.Stdin),
		silent: func() bool { return sudo && exec.Command("sudo", "-n", "true").Run() == nil },
	}.prefix(missing)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Installing %s\n", strings.Join(missing, ", "))
	install := slices.Concat(prefix, []string{"apt-get", "install", "-y", "-qq", "--no-install-recommends"}, missing)
	if err = run(install); err != nil { // a new machine has no package lists yet
		err = errors.Join(run(slices.Concat(prefix, []string{"apt-get", "update", "-qq"})), run(install))
	}
	if still := Missing(packages...); len(still) > 0 {
		if err == nil {
			return please(still)
		}
		return fmt.Errorf("%w (apt said: %w)", please(still), err)
	}
	return nil
}

// means is how packages can be installed here.
type means struct {
	apt, root bool
	asked     bool        // sudo can ask for a password
	silent    func() bool // sudo needs no password
}

// prefix returns the command prefix for apt-get, or an error that asks the user to install the packages.
func (m means) prefix(missing []string) ([]string, error) {
	switch {
	case !m.apt:
		return nil, fmt.Errorf("please install %s with your system's package manager", strings.Join(missing, " and "))
	case m.root:
		return nil, nil
	case m.asked:
		return []string{"sudo"}, nil
	case m.silent():
		return []string{"sudo", "-n"}, nil
	}
	return nil, please(missing)
}

func please(missing []string) error {
	return fmt.Errorf("please install what is missing, as root: apt-get install %s", strings.Join(missing, " "))
}

func run(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdin = os.Stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// Terminal reports whether f is a terminal.
func Terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice|os.ModeCharDevice && f.Name() != os.DevNull
}

// Colors returns a function that wraps text in an SGR code ("1" is bold, "2" faint) if f is a terminal and NO_COLOR
// isn't set.
func Colors(f *os.File) func(code, text string) string {
	if !Terminal(f) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return func(_, text string) string { return text }
	}
	return func(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
}
