//go:build packages

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// debian is a clean Debian system without systemd.
type debian struct {
	t    *testing.T
	root string
}

// sh runs a script in the system.
func (d debian) sh(script string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "chroot", d.root, "/bin/sh", "-ec", script)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	out, err := c.CombinedOutput()
	return string(out), err
}

func (d debian) must(script string) string {
	d.t.Helper()
	out, err := d.sh(script)
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// files lists the system's files with owners and modes, except for dpkg's own.
func (d debian) files() []string {
	d.t.Helper()
	const quiet = `-path /proc -o -path /sys -o -path /dev -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /tmp -o -path /run`
	return strings.Split(strings.TrimSpace(d.must(`find / \( `+quiet+` \) -prune -o -printf '%p %U:%G %m\n' | sort`)), "\n")
}

// On a clean Debian, the package must install the right files, an upgrade must keep edited settings, removing and
// purging must leave what they should, and a new installation must find that again. lintian must report nothing.
func TestDebian(t *testing.T) {
	for _, tool := range []string{"mmdebstrap", "lintian", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: go run ./scripts/need mmdebstrap lintian", tool)
		}
	}
	t.Chdir("../..")
	dir := t.TempDir()
	build := release{archs: []string{runtime.GOARCH}}
	program, err := build.build(runtime.GOARCH, dir)
	if err != nil {
		t.Fatal(err)
	}
	deb := func(version string) string {
		t.Helper()
		r := release{out: filepath.Join(dir, version), version: version, program: program, archs: build.archs}
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(r.out, "slipway_"+version+"_"+runtime.GOARCH+".deb")
	}
	one, two := deb("1.0.0"), deb("1.1.0")

	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "none", one).CombinedOutput()
	if err != nil {
		t.Fatalf("lintian: %v %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line != "" {
			t.Errorf("lintian: %s", line)
		}
	}

	d := debian{t, filepath.Join(dir, "root")}
	if out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=adduser,bubblewrap,ca-certificates,git", "bookworm", d.root).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	for name, from := range map[string]string{"one.deb": one, "two.deb": two} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(d.root, "tmp", name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := d.files()

	// If another user named slipway without a group exists, the installation must fail and name that user.
	d.must("useradd --no-user-group --gid nogroup slipway")
	if out, err := d.sh("dpkg -i /tmp/one.deb"); err == nil || !strings.Contains(out, "user named slipway without a group") {
		t.Errorf("with another user of that name: %v %s", err, out)
	}
	d.must("dpkg --purge slipway; userdel slipway")

	// A second installation must succeed too.
	for range 2 {
		if out := d.must("dpkg -i /tmp/one.deb"); strings.Contains(out, "systemctl:") {
			t.Errorf("without systemd it says %s", out)
		}
	}
	if out := d.must("stat -c '%U:%G %a' /etc/slipway/server.toml; slipway version"); !strings.HasPrefix(out, "root:slipway 640\nslipway ") {
		t.Errorf("installed: %s", out)
	}

	// An upgrade must keep edited settings and the data.
	d.must(`echo '# mine' >> /etc/slipway/server.toml; mkdir -p /var/lib/slipway; echo key > /var/lib/slipway/secrets.key`)
	if out := d.must("dpkg -i --force-confold /tmp/two.deb; tail -1 /etc/slipway/server.toml; stat -c '%U:%G %a' /etc/slipway/server.toml"); !strings.HasSuffix(out, "# mine\nroot:slipway 640\n") {
		t.Errorf("after an upgrade: %s", out)
	}
	// The previous program must be kept beside the new one, for going back.
	d.must("slipway.previous version; ! [ /usr/bin/slipway -ef /usr/bin/slipway.previous ]")
	if out := d.must("dpkg -r slipway; ls /etc/slipway/server.toml /var/lib/slipway/secrets.key; ! ls /usr/bin/slipway"); strings.Contains(out, "warning") {
		t.Errorf("removing says %s", out)
	}
	d.must("dpkg --purge slipway; ! ls /etc/slipway /etc/default/slipway; cat /var/lib/slipway/secrets.key")
	after := slices.DeleteFunc(d.files(), func(f string) bool {
		// The system user stays because files of it may remain. Its name is in the files that list users.
		return slices.Contains(before, f) || strings.HasPrefix(f, "/var/lib/slipway") || strings.HasPrefix(f, "/etc/passwd") ||
			strings.HasPrefix(f, "/etc/group") || strings.HasPrefix(f, "/etc/shadow") || strings.HasPrefix(f, "/etc/gshadow") || strings.HasPrefix(f, "/etc/subuid") || strings.HasPrefix(f, "/etc/subgid")
	})
	if len(after) > 0 {
		t.Errorf("a purge leaves %s", strings.Join(after, "\n"))
	}
	d.must("dpkg -i /tmp/two.deb; grep -q key /var/lib/slipway/secrets.key; SLIPWAY_PURGE_DATA=1 dpkg --purge slipway; ! ls /var/lib/slipway")

	// The package is installed from outside, as image builders do.
	if out, err := exec.Command("dpkg", "--root="+d.root, "--force-script-chrootless", "-i", two).CombinedOutput(); err != nil {
		t.Errorf("dpkg --root: %v %s", err, out)
	}
}
