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

// machines are clean Debians with a release on each, and a network of their own. What is kept survives them.
type machines struct {
	dir, clean, kept string
	dist             string
}

// run runs a script as root on a new machine, in the folder of the release. What was kept is in /mnt.
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

// ready waits for a service that was started.
const ready = `timeout 120 sh -c 'until curl -fsS http://127.0.0.1:8080/readyz; do sleep 0.2; done' || { cat /var/log/slipway.log; exit 1; }
`

// serve starts the service, where there is no systemd.
const serve = `
slipway serve --config /etc/slipway/server.toml >/var/log/slipway.log 2>&1 &
` + ready

func TestMachines(t *testing.T) {
	t.Chdir("../..")
	m := machines{dir: t.TempDir()}
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := release{out: filepath.Join(m.dir, "dist"), version: "1.0.0", archs: []string{runtime.GOARCH}}
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
	packages := "--include=adduser,bubblewrap,ca-certificates,curl,dbus,git,iproute2,minisign,procps,systemd-sysv"
	if made := os.Getenv("SLIPWAY_CLEAN_DEBIAN"); made != "" { // by the command below, for those who run this often
		m.clean = made
	} else if out, err := exec.Command("mmdebstrap", "--variant=minbase", packages, "bookworm", m.clean).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap (go run ./scripts/need mmdebstrap): %v\n%s", err, out)
	}
	m.packages(t, r)
	t.Run("Drill", m.drill)
	t.Run("Unit", m.unit)
	t.Run("Upgrade", m.upgrade)
	t.Run("Auto", func(t *testing.T) { m.auto(t, r) })
}

// The drill of docs/runbook.md, word for word: an installation on one clean Debian is lost, and comes back on another from its
// backups, its key and its settings alone. What differs: the place of the backups is a folder, the site has a name
// that was chosen for it, and without systemd the service is started by hand.
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
	text, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drill, _ := strings.Cut(string(text), "\n## Drill")
	_, drill, _ = strings.Cut(drill, "```\n")
	drill, _, found := strings.Cut(drill, "```\n")
	const start = "systemctl enable --now slipway.socket slipway.service\n"
	if !found || !strings.Contains(drill, "backup restore") || !strings.Contains(drill, start) {
		t.Fatalf("the runbook's drill doesn't restore, or start the service: %s", drill)
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

// systemd is what the package's scripts see of it: the service runs, and can be restarted.
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

// packages keeps newer packages: 1.1.0 works, and the programs of 1.2.0 and 1.3.0 end at every start; the one before can't work with
// what 1.3.0 says that it makes of the database.
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
		next := release{out: filepath.Join(m.dir, version), version: version, program: r.program}
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

// dpkg upgrades what runs: a package that works stays, and can be undone; with one that doesn't, the program before serves again
// and dpkg says so.
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

// What was installed from the archive, where there is no dpkg, goes by itself to a patch release that was published afterwards, and
// stays there. What was added to the list without the key is not even looked at.
func (m machines) auto(t *testing.T, r release) {
	next := release{out: filepath.Join(m.dir, "patch"), version: "1.0.1", archs: r.archs, signer: r.signer, trusts: r.trusts}
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
