//go:build packages

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

// machines makes clean Debian systems, each with a release and its own network. What they put into kept outlives them.
type machines struct {
	dir, clean, kept string
	dist             string
}

// run runs a script as root on a new machine, in the folder of the release. The folder kept is at /mnt.
func (m machines) run(t *testing.T, name, script string) string {
	t.Helper()
	root := filepath.Join(m.dir, name)
	if out, err := exec.Command("cp", "-a", m.clean, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bwrap", "--bind", root, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--dir", "/tmp/release",
		"--ro-bind", m.dist, "/tmp/release", "--bind", m.kept, "/mnt", "--unshare-net", "--unshare-pid", "--die-with-parent", "--cap-add", "ALL",
		"--clearenv", "--setenv", "PATH", "/usr/sbin:/usr/bin:/sbin:/bin", "--setenv", "HOME", "/root", "--setenv", "DEBIAN_FRONTEND", "noninteractive",
		"--chdir", "/tmp/release", "sh", "-exc", script)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// ready waits until a started service is ready.
const ready = `timeout 120 sh -c 'until curl -fsS http://127.0.0.1:8080/readyz; do sleep 0.2; done' || { cat /var/log/slipway.log; exit 1; }
`

// serve starts the service where there is no systemd.
const serve = `
slipway serve --config /etc/slipway/server.toml >/var/log/slipway.log 2>&1 &
` + ready

// clean makes a Debian system with what Slipway needs and these packages.
func clean(t *testing.T, root string, packages ...string) {
	t.Helper()
	packages = append(packages, "adduser", "bubblewrap", "ca-certificates", "curl", "dbus", "git", "iproute2", "minisign", "procps", "systemd-sysv")
	out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), "bookworm", root).CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap (go run ./scripts/need mmdebstrap): %v\n%s", err, out)
	}
}

func TestMachines(t *testing.T) {
	t.Chdir("../..")
	m := machines{dir: t.TempDir()}
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := release{out: filepath.Join(m.dir, "dist"), version: "1.0.0", archs: []string{runtime.GOARCH}, level: "0"}
	r.signer, r.trusts = &key, key.Public().(minisign.PublicKey).String()
	if r.program, err = r.build(runtime.GOARCH, m.dir); err != nil {
		t.Fatal(err)
	}
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	m.dist, m.clean, m.kept = r.out, filepath.Join(m.dir, "clean"), filepath.Join(m.dir, "kept")
	if err := os.Mkdir(m.kept, 0o755); err != nil {
		t.Fatal(err)
	}
	if made := os.Getenv("SLIPWAY_CLEAN_DEBIAN"); made != "" { // made by the command below, for developers who run this often
		m.clean = made
	} else {
		clean(t, m.clean)
	}
	m.packages(t, r)
	t.Run("Install", m.install)
	t.Run("Server", m.server)
	t.Run("Drill", m.drill)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Run("Unit", func(t *testing.T) { m.unit(t, "v1") })
	}
	t.Run("UnitV2", func(t *testing.T) { m.unit(t, "v2") })
	t.Run("Upgrade", m.upgrade)
	t.Run("Auto", func(t *testing.T) { m.auto(t, r) })
	t.Run("Apt", m.apt)
}

// install follows docs/install.md up to its section on uninstalling, on a clean Debian. The differences: the names are
// in /etc/hosts, certificates come from the local authority instead of Let's Encrypt, and without systemd the service
// is started by hand.
func (m machines) install(t *testing.T) {
	text, err := os.ReadFile("docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	page := ""
	before, _, _ := strings.Cut(string(text), "\n## Uninstall")
	for i, part := range strings.Split(before, "```\n") {
		if i%2 == 1 {
			page += part
		}
	}
	for _, change := range [][2]string{
		{"apt-get install minisign\n", ""}, // it is installed already
		{"slipway setup --yes", "slipway setup >/mnt/setup.txt --yes"},
		{"systemctl enable --now slipway.socket slipway.service\n", "sed -i '/^acme-/d' /etc/slipway/server.toml; cat /mnt/setup.txt" + serve},
		{"mkdir harbor", "slipway ca export >/root/root.pem; export SLIPWAY_CA_FILE=/root/root.pem CURL_CA_BUNDLE=/root/root.pem\n" +
			"curl -fsS $(grep -o 'https://slipway.example.com/setup/.*' /mnt/setup.txt) | grep -i password\nmkdir /root/harbor"},
		{"cd harbor", "cd /root/harbor"},
	} {
		if strings.Count(page, change[0]) != 1 {
			t.Fatalf("the page hasn't %q once:\n%s", change[0], page)
		}
		page = strings.Replace(page, change[0], change[1], 1)
	}
	out := m.run(t, "installed", "echo 127.0.0.1 slipway.example.com harbor.sites.example.net >>/etc/hosts\n"+page)
	if !strings.HasSuffix(out, "<h1>It floats.</h1>\n") {
		t.Errorf("the site isn't live:\n%s", out)
	}
	t.Log(out)
}

// drill follows the drill of docs/backups.md word for word: an installation on one clean Debian is lost, and must come
// back on another from only its backups, its key and its settings. The differences: the backups are in a folder, the
// site has a chosen name, and without systemd the service is started by hand.
func (m machines) drill(t *testing.T) {
	m.run(t, "lost", `
sh install.sh
export SLIPWAY_CONFIG=/etc/slipway/server.toml
cat >>/etc/slipway/server.toml <<'TOML'
site-domain = "example.com"
base-url = "https://slipway.example.net"
TOML
echo 'correct horse battery staple 9' | slipway user create --email ada@example.com
`+serve+`
export SLIPWAY_SERVER=http://127.0.0.1:8080 SLIPWAY_TOKEN=$(slipway key create --user ada@example.com --name drill)
mkdir /root/site; echo 'It floats.' >/root/site/index.html
slug=$(curl -fsS -H "Authorization: Bearer $SLIPWAY_TOKEN" -H 'Content-Type: application/json' -d '{"name": "www", "type": "static", "source": "upload"}' \
	$SLIPWAY_SERVER/api/v1/sites | sed 's/.*"slug":"\([^"]*\)".*/\1/')
slipway deploy /root/site --site $slug
echo $slug.example.com >/mnt/host
slipway backup create --to /mnt/backups
cp /var/lib/slipway/secrets.key /etc/slipway/server.toml /mnt
slipway ca export >/mnt/root.pem
`)
	text, err := os.ReadFile("docs/backups.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drill, _ := strings.Cut(string(text), "# Drill")
	_, drill, _ = strings.Cut(drill, "```\n")
	drill, _, found := strings.Cut(drill, "```\n")
	const start = "systemctl enable --now slipway.socket slipway.service\n"
	if !found || !strings.Contains(drill, "backup restore") || !strings.Contains(drill, start) {
		t.Fatalf("the drill doesn't restore, or start the service: %s", drill)
	}
	drill = strings.ReplaceAll(drill, "s3://BUCKET?endpoint=https://HOST", "/mnt/backups")
	drill = strings.ReplaceAll(drill, start, "cd /tmp"+serve)
	drill = strings.ReplaceAll(drill, "www.example.com", "$(cat /mnt/host)")
	out := m.run(t, "new", "cp /tmp/release/* /root; cp /mnt/secrets.key /mnt/server.toml /root; cd /root; export CURL_CA_BUNDLE=/mnt/root.pem\n"+drill)
	if !strings.HasSuffix(out, "It floats.\n") {
		t.Errorf("the site is not back:\n%s", out)
	}
	t.Log(out)
}

// systemd stands for systemd in the package's scripts: they see that the service runs, and can restart it.
const systemd = `
mkdir -p /run/systemd/system
cat >/usr/bin/systemctl <<'SH'
#!/bin/sh
case "$*" in
*restart*)
	kill $(cat /run/slipway.pid) 2>/dev/null
	while kill -0 $(cat /run/slipway.pid) 2>/dev/null; do sleep 0.1; done
	setsid slipway serve --config /etc/slipway/server.toml >>/var/log/slipway.log 2>&1 </dev/null &
	echo $! >/run/slipway.pid ;;
esac
SH
cat >/usr/bin/systemd-run <<'SH'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" != -p ] || shift; shift; done
exec "$@"
SH
chmod +x /usr/bin/systemctl /usr/bin/systemd-run
`

// packages makes newer packages: 1.1.0 works, and the programs of 1.2.0 and 1.3.0 end at every start. The previous
// program cannot work with the database schema that 1.3.0 reports.
func (m machines) packages(t *testing.T, r release) {
	t.Helper()
	about, err := exec.Command(r.program, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	broken := func(version, about string) string {
		file := filepath.Join(m.dir, "broken-"+version)
		script := "#!/bin/sh\ncase $1 in\nversion) echo '" + about + "' ;;\nserve) exit 1 ;;\nesac\n"
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for version, program := range map[string]string{
		"1.1.0": r.program, "1.2.0": broken("1.2.0", strings.TrimSpace(string(about))),
		"1.3.0": broken("1.3.0", `{"version": "1.3.0", "schema": 99999, "oldestReader": 99999}`),
	} {
		next := release{out: filepath.Join(m.dir, version), version: version, program: r.program, level: r.level}
		work := t.TempDir()
		if err := errors.Join(next.identify(), os.Mkdir(next.out, 0o755), next.texts(work), next.deb(runtime.GOARCH, program, work)); err != nil {
			t.Fatal(err)
		}
		name := "slipway_" + version + "_" + runtime.GOARCH + ".deb"
		text, err := os.ReadFile(filepath.Join(next.out, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(m.kept, version+".deb"), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// When dpkg upgrades a running service, a package that works must stay and must be reversible. With a package that does
// not work, the previous program must serve again and dpkg must say so.
func (m machines) upgrade(t *testing.T) {
	t.Log(m.run(t, "upgraded", `
sh install.sh
export SLIPWAY_CONFIG=/etc/slipway/server.toml
`+systemd+`echo 0 >/run/slipway.pid
setsid slipway serve >/var/log/slipway.log 2>&1 </dev/null &
echo $! >/run/slipway.pid
`+ready+`
running() { [ /proc/$(cat /run/slipway.pid)/exe -ef /usr/bin/slipway ]; }
dpkg -i /mnt/1.1.0.deb
running
! [ /usr/bin/slipway -ef /usr/bin/slipway.previous ]
slipway doctor | grep 'ok *upgrade  *to'
slipway upgrade --undo --watch 1s
running
slipway upgrade --undo --watch 1s
if dpkg -i /mnt/1.2.0.deb; then exit 1; fi
running
slipway version
dpkg --verify slipway | grep /usr/bin/slipway
dpkg --status slipway | grep 'half-configured'
slipway doctor | grep 'taken back'
`+ready+`
dpkg -i /mnt/1.1.0.deb
running
dpkg --status slipway | grep 'ok installed'
`))
}

// An installation from the archive, where there is no dpkg, must upgrade by itself to a patch release that is published
// later, and must stay there. Entries that were added to the list without the key must be ignored.
func (m machines) auto(t *testing.T, r release) {
	next := release{out: filepath.Join(m.dir, "patch"), version: "1.0.1", archs: r.archs, level: r.level, signer: r.signer, trusts: r.trusts}
	next.releases = filepath.Join(m.kept, "releases")
	if err := os.Mkdir(next.releases, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := next.run(); err != nil {
		t.Fatal(err)
	}
	t.Log(m.run(t, "auto", `
export PATH=/usr/local/bin:$PATH
mv /usr/bin/dpkg /usr/bin/dpkg.hidden
sh install.sh
mv /usr/bin/dpkg.hidden /usr/bin/dpkg
export SLIPWAY_CONFIG=/etc/slipway/server.toml
`+systemd+`
setsid slipway serve >/var/log/slipway.log 2>&1 </dev/null &
echo $! >/run/slipway.pid
`+ready+`
echo 'releases = "/mnt/releases"' >>/etc/slipway/server.toml
slipway upgrade --auto patch --watch 1s
slipway version | grep '1\.0\.1'
[ /proc/$(cat /run/slipway.pid)/exe -ef /usr/local/bin/slipway ]
slipway doctor | grep 'ok *upgrade  *to 1\.0\.1'
slipway upgrade --auto patch | grep newest
echo 1.0.2 >>/mnt/releases/versions
if slipway upgrade --auto patch; then exit 1; fi
slipway doctor | grep 'not signed'
slipway upgrade --undo --watch 1s
slipway version | grep '1\.0\.0'
`))
}

// apt must install from a folder of releases and upgrade to a later one. It must refuse a changed index, an index
// signed with another key, and a package that does not match the index.
func (m machines) apt(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", home)
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--kill", "all").Run() })
	for _, name := range []string{"releases@example.com", "stranger@example.com"} {
		out, err := exec.Command("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign").CombinedOutput()
		if err != nil {
			t.Fatalf("gpg (go run ./scripts/need gnupg): %v %s", err, out)
		}
	}
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	releases := filepath.Join(m.kept, "apt")
	publish := func(version string) error {
		out := filepath.Join(m.dir, "apt-"+version)
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		name := map[string]string{"1.0.0": filepath.Join(m.dist, "slipway_1.0.0_"+runtime.GOARCH+".deb")}[version]
		if name == "" {
			name = filepath.Join(m.kept, "1.1.0.deb")
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{"slipway_" + version + "_" + runtime.GOARCH + ".deb": text, "SHA256SUMS.minisig": nil} {
			if err := write(filepath.Join(out, name), text, 0o644); err != nil {
				return err
			}
		}
		r := release{out: out, version: version, signer: &key, aptKey: "releases@example.com"}
		return r.publish(releases)
	}
	if err := errors.Join(os.Mkdir(releases, 0o755), publish("1.0.0"), publish("1.1.0"), publish("2.0.0-rc1")); err != nil {
		t.Fatal(err)
	}
	forgotten := release{out: m.dist, version: "1.2.0", signer: &key}
	if err := forgotten.publish(releases); err == nil || !strings.Contains(err.Error(), "-apt-key") {
		t.Errorf("a release that apt would not see: %v", err)
	}
	nobody := release{out: m.dist, version: "1.2.0", signer: &key, aptKey: "nobody@example.com"}
	if err := nobody.publish(releases); err == nil || !strings.Contains(err.Error(), "nobody@example.com") {
		t.Errorf("a key that isn't there: %v", err)
	}
	stranger, err := exec.Command("gpg", "--armor", "--export", "stranger@example.com").Output()
	if err == nil {
		err = os.WriteFile(filepath.Join(m.kept, "stranger.asc"), stranger, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(m.run(t, "apt", `
chmod 1777 /tmp # apt's parts write there as another user
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
cp -r /mnt/apt /srv/releases
cp /srv/releases/slipway.asc /etc/apt/keyrings/slipway.asc
source() { echo "deb [signed-by=$1] copy:/srv/releases stable main" >/etc/apt/sources.list.d/slipway.list; }
source /etc/apt/keyrings/slipway.asc
apt-get update -o APT::Update::Error-Mode=any
apt-cache madison slipway
[ "$(apt-cache madison slipway | wc -l)" = 2 ]
apt-get install --yes slipway=1.0.0
dpkg-query --show slipway | grep '1\.0\.0$'
slipway version
apt-get upgrade --yes
dpkg-query --show slipway | grep '1\.1\.0$'
refused() {
	rm -rf /var/lib/apt/lists/*
	if apt-get update -o APT::Update::Error-Mode=any; then exit 1; fi
}
cp /mnt/stranger.asc /etc/apt/keyrings/
source /etc/apt/keyrings/stranger.asc
refused
source /etc/apt/keyrings/slipway.asc
sed -i 's/^Date: .*/Date: Thu, 01 Jan 2026 00:00:00 UTC/' /srv/releases/dists/stable/InRelease
refused
cp /mnt/apt/dists/stable/InRelease /srv/releases/dists/stable/
find /srv/releases/dists -name Packages -o -path '*/by-hash/*' -type f | xargs sed -i 's/^Version: 1.1.0/Version: 9.1.0/'
refused
rm -r /srv/releases/dists
cp -r /mnt/apt/dists /srv/releases/
apt-get update -o APT::Update::Error-Mode=any
for f in /srv/releases/1.0.0/*.deb; do echo more >>$f; done
apt-get purge --yes slipway
apt-get clean
if apt-get install --yes slipway=1.0.0; then exit 1; fi
apt-get install --yes slipway
`))
}
