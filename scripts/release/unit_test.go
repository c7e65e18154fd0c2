//go:build packages

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// boot starts systemd on a root file system, in its own namespaces and control groups.
const boot = `
for h in /sys/fs/cgroup /sys/fs/cgroup/*; do
	[ -f $h/cgroup.procs ] || continue
	mkdir -p $h/slipway-machine
	for f in cpuset.cpus cpuset.mems; do if [ -f $h/$f ]; then cat $h/$f >$h/slipway-machine/$f; fi; done
	echo $$ >$h/slipway-machine/cgroup.procs
done
exec unshare --mount --pid --fork --uts --ipc --cgroup --net --kill-child --propagation private sh -ec '
	mount --bind $1 $1
	cd $1
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	if [ $2 = v2 ]; then
		mount -t cgroup2 cgroup2 sys/fs/cgroup
	else
		mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
		for c in cpu cpuacct memory pids freezer devices; do mkdir sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup sys/fs/cgroup/$c; done
		mkdir sys/fs/cgroup/systemd
		mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
	fi
	mount -t tmpfs -o mode=755 tmpfs dev
	mkdir dev/pts dev/shm
	for n in null zero full random urandom tty; do touch dev/$n; mount --bind /dev/$n dev/$n; done
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	mount -t tmpfs -o mode=755 tmpfs run
	ip link set lo up
	pivot_root . mnt
	umount -l /mnt
	exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd systemd.unified_cgroup_hierarchy=0
' sh $0 $1
`

// The package's unit, under systemd, must not forbid anything that is needed by a build, an application, WordPress, a
// command in it, a backup, the next start, or going back from a package that does not work.
func (m machines) unit(t *testing.T, cgroups string) {
	root := filepath.Join(m.dir, "unit-"+cgroups)
	if made := os.Getenv("SLIPWAY_WORDPRESS_DEBIAN"); made != "" {
		if out, err := exec.Command("cp", "-a", made, root).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	} else {
		clean(t, root, append(recommended(t), "wordpress", "wordpress-theme-twentytwentythree")...)
	}
	// These packages come with services, which are disabled because Slipway starts its own.
	if err := os.RemoveAll(filepath.Join(root, "etc/systemd/system/multi-user.target.wants")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-r", m.dist, filepath.Join(root, "root", "release")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"1.2.0.deb", "1.3.0.deb"} {
		if out, err := exec.Command("cp", filepath.Join(m.kept, name), filepath.Join(root, "root")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "root", "story.sh"), []byte(underSystemd), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(m.dir, "boot-"+cgroups+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	machine := exec.Command("sh", "-ec", boot, root, cgroups)
	machine.Stdout, machine.Stderr = log, log
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- machine.Wait() }()
	t.Cleanup(func() {
		_ = machine.Process.Kill() // and with it all its processes
		<-ended
		_ = exec.Command("sh", "-c", "find /sys/fs/cgroup -depth -type d -path '*/slipway-machine*' -exec rmdir {} +").Run()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", machine.Process.Pid)
	in := func(script string) *exec.Cmd {
		pid, _ := os.ReadFile(children)
		return exec.CommandContext(ctx, "nsenter", "-t", strings.TrimSpace(string(pid)), "-m", "-u", "-i", "-n", "-p", "-C", "--",
			"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "sh", "-exc", script)
	}
	for { // until systemd answers and says that everything is started
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("systemd did not start: %v\n%s", err, text)
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-time.After(time.Second):
		}
		if out, _ := in("systemctl is-system-running --wait").Output(); strings.TrimSpace(string(out)) == "running" {
			break
		}
	}
	out, err := in("cd /root/release; sh -ex /root/story.sh").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(string(out))
}

// recommended returns the packages that apt installs along with Slipway's.
func recommended(t *testing.T) []string {
	t.Helper()
	control, err := os.ReadFile("packaging/deb/control")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(control), "\nRecommends: ")
	list, _, _ = strings.Cut(list, "\n")
	if !found {
		t.Fatal("nothing is recommended")
	}
	return strings.Split(list, ", ")
}

const underSystemd = `
dpkg -i slipway_*.deb
export SLIPWAY_CONFIG=/etc/slipway/server.toml
cat >>/etc/slipway/server.toml <<'TOML'
site-domain = "example.com"
base-url = "https://slipway.example.net"
git-host = ["git.test=file:///srv/git"]
wordpress-source = "debian"
TOML
mkdir -p /root/app /srv/git/acme
cd /root/app
cat >serve.pl <<'PL'
use IO::Socket::INET;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ENV{PORT}, Listen => 5, ReuseAddr => 1) or die;
open my $f, "<", "built" or die;
my $text = <$f>;
while (my $c = $l->accept) {
	while (<$c>) { last if /^\r?$/ }
	print $c "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " . length($text) . "\r\n\r\n$text";
	close $c;
}
PL
cat >slipway.toml <<'TOML'
[build]
command = "echo by $(id -un) >built"
[run]
command = "perl serve.pl"
TOML
git init -qb main
git add .
git -c user.name=a -c user.email=a@example.com commit -qm one
git clone -q --bare . /srv/git/acme/app.git
mkdir -p /srv/backups /etc/systemd/system/slipway.service.d
printf '[Service]\nReadWritePaths=/srv/backups\n' >/etc/systemd/system/slipway.service.d/backups.conf
systemctl daemon-reload
systemctl enable --now slipway.socket slipway.service
echo 'correct horse battery staple 9' | slipway user create --email ada@example.com
export SLIPWAY_SERVER=http://127.0.0.1:8080 SLIPWAY_TOKEN=$(slipway key create --user ada@example.com --name unit)
site() {
	curl -fsS -H "Authorization: Bearer $SLIPWAY_TOKEN" -H 'Content-Type: application/json' -d "$1" $SLIPWAY_SERVER/api/v1/sites |
		sed 's/.*"slug":"\([^"]*\)".*/\1/'
}
slug=$(site '{"name": "app", "type": "static", "repository": "git.test/acme/app", "branch": "main"}')
blog=$(site '{"name": "blog", "type": "wordpress"}')
slipway ca export >/root/root.pem
visit() { curl -sS --cacert /root/root.pem --resolve ${1:-$slug}.example.com:443:127.0.0.1 https://${1:-$slug}.example.com/; }
live() {
	for i in $(seq 600); do
		if visit | grep -x 'by build' && visit $blog | grep -m 1 /wp-content/themes/; then return; fi
		sleep 0.5
	done
	journalctl -u slipway --no-pager | tail -40
	return 1
}
live
# The program is the site's own user's, in a control group of its own.
ps -eo uid,args | grep '^ *2000[0-9][0-9] perl serve.pl'
grep -h /slipway/ /proc/$(pgrep -f 'serve.pl' | tail -1)/cgroup
[ "$(slipway exec --site $slug -- id -un)" = build ]
slipway backup create --to /srv/backups
slipway backup verify --from /srv/backups --key /var/lib/slipway/secrets.key
# Connections wait while the service restarts: none is refused.
(while [ ! -e /root/enough ]; do visit >>/root/answers 2>>/root/refused || true; done) &
systemctl restart slipway.service
live
touch /root/enough
wait
if grep '^curl: ' /root/refused; then exit 1; fi # beside the shell's own trace
systemctl is-active slipway.service
systemd-analyze security --no-pager --threshold=40 slipway.service | tail -1
# A package whose program ends at every start is taken back at once.
if dpkg -i /root/1.2.0.deb; then exit 1; fi
slipway doctor | grep 'taken back.*ended by itself'
live
# Where the copy of the database takes its place, the sockets are closed meanwhile, and open afterwards. Nobody's visit starts the service.
rm /root/enough
(while [ ! -e /root/enough ]; do visit >/dev/null 2>&1 || true; done) &
if dpkg -i /root/1.3.0.deb >/root/1.3.0.log 2>&1; then exit 1; fi
grep 'the copy from before takes its place' /root/1.3.0.log
touch /root/enough
wait
ls /var/lib/slipway/upgrade/failed-*/slipway.db
systemctl is-active slipway.socket slipway.service
slipway doctor | grep 'taken back.*ended by itself'
live
# Both are stopped together: no visit starts them.
systemctl stop slipway.socket slipway.service
if visit; then exit 1; fi
[ "$(systemctl is-active slipway.service)" = inactive ]
systemctl start slipway.service
live
if journalctl -u slipway.service --no-pager | grep -i -e 'level=error' -e 'not permitted' -e 'not implemented'; then exit 1; fi
`
