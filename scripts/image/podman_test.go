//go:build packages

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cgroups makes podman see cgroup version 2 only, because crun refuses a mixture of versions.
const cgroups = `if [ -d /sys/fs/cgroup/memory ]; then umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; fi; exec podman "$@"`

// engine is podman with its own storage.
type engine struct {
	t     *testing.T
	store []string
}

// run runs podman with arguments and returns its output.
func (e *engine) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", cgroups, "podman"}, append(e.store, args...)...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("podman %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (e *engine) must(args ...string) string {
	e.t.Helper()
	out, err := e.run(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// start returns the options that every container has: read-only, no capabilities, no new privileges, no network.
func (e *engine) start(data string) []string {
	var files, processes syscall.Rlimit
	const nproc = 6
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		e.t.Fatal(err)
	}
	if err := syscall.Getrlimit(nproc, &processes); err != nil {
		e.t.Fatal(err)
	}
	return []string{
		"run", "--cgroups=disabled", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		"--sysctl=net.ipv4.ip_unprivileged_port_start=80", "--volume=" + data + ":/var/lib/slipway:rw,U",
		fmt.Sprintf("--ulimit=nofile=%d:%d", min(files.Cur, 1024), min(files.Max, 1<<20)), fmt.Sprintf("--ulimit=nproc=%d:%d", min(processes.Cur, 4096), min(processes.Cur, 4096)),
	}
}

// The image must run without root, without capabilities and on a read-only root file system. Static sites must work
// always; builds and programs must work with the two options of docs/packages.md, and doctor must name those if they
// are missing. Another container must be able to continue with the volume of the first.
func TestImage(t *testing.T) {
	for _, tool := range []string{"podman", "mmdebstrap", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: go run ./scripts/need podman mmdebstrap", tool)
		}
	}
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	i := image{program: filepath.Join(dir, "slipway"), out: filepath.Join(dir, "image.tar"), arch: runtime.GOARCH, version: "0.0.1", base: os.Getenv("SLIPWAY_IMAGE_BASE")}
	for _, args := range [][]string{
		{"generate", "./internal/platform/sandbox"}, {"build", "-trimpath", "-tags", "slipway_init", "-o", i.program, "./cmd/slipway"},
	} {
		c := exec.Command("go", args...)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	if err := i.run(0); err != nil {
		t.Fatal(err)
	}
	e := &engine{t, []string{"--storage-driver=vfs", "--root=" + filepath.Join(dir, "store"), "--runroot=" + filepath.Join(dir, "run"), "--cgroup-manager=cgroupfs"}}
	t.Cleanup(func() {
		if out, err := exec.Command("podman", append(e.store, "system", "reset", "--force")...).CombinedOutput(); err != nil {
			t.Logf("podman system reset: %v %s", err, out)
		}
	})
	e.must("load", "--input", i.out)
	const name = "localhost/slipway:0.0.1"
	seccomp, unmask := "--security-opt=seccomp="+filepath.Join(root, "packaging/image/seccomp.json"), "--security-opt=unmask=ALL"

	const unconfined = "--security-opt=seccomp=unconfined"
	for options, works := range map[string]bool{
		"": false, seccomp: false, unmask: false, unconfined: false, "--cap-add=SYS_ADMIN": false,
		seccomp + " " + unmask: true, unconfined + " " + unmask: true, seccomp + " " + unmask + " --user=54321:54321": true,
		"--privileged": true, seccomp + " " + unmask + " --cap-add=SYS_ADMIN": true, unmask + " --cap-add=SYS_ADMIN": true,
		"--user=0:0": false, seccomp + " " + unmask + " --user=0:0": false,
	} {
		data := t.TempDir()
		out := e.must(append(append(append(e.start(data), "--rm"), strings.Fields(options)...), name, "doctor")...)
		line := ""
		for l := range strings.Lines(out) {
			if strings.Contains(l, "builds: canary") {
				line = l
			}
		}
		if works != strings.HasPrefix(line, "ok") || works == strings.Contains(line, "section Container image") {
			t.Errorf("with %q doctor says %q", options, line)
		}
	}

	data := t.TempDir()
	begin := func(options ...string) {
		t.Helper()
		e.must(append(append(append(e.start(data), "--detach", "--name=slipway"), options...), name)...)
		deadline := time.Now().Add(2 * time.Minute)
		for {
			out, err := e.run("exec", "slipway", "curl", "-fsS", "http://127.0.0.1:8080/readyz")
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(out, err, e.must("logs", "slipway"))
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	end := func() {
		t.Helper()
		at := time.Now()
		e.must("stop", "--time=60", "slipway")
		if took := time.Since(at); took > 50*time.Second {
			t.Errorf("the container ended %s after SIGTERM", took)
		}
		e.must("rm", "slipway")
	}
	inside := func(script string) (string, error) { return e.run("exec", "slipway", "bash", "-ec", script) }
	deploy := func(slug, file, text string) (string, error) {
		return inside(fmt.Sprintf(`
			mkdir -p /tmp/%[1]s; cd /tmp/%[1]s; printf %%s '%[3]s' > %[2]s
			export SLIPWAY_SERVER=http://localhost:8080 SLIPWAY_TOKEN=$(cat /tmp/key) HOME=/tmp
			slipway init --name %[1]s >&2; slipway deploy --no-logs`, slug, file, text))
	}
	get := func(slug, want string) {
		t.Helper()
		out, err := inside("curl -sk --max-time 60 --resolve " + slug + ".localhost:443:127.0.0.1 https://" + slug + ".localhost/")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s answers %q, %v, want %q", slug, out, err, want)
		}
	}

	begin()
	out, err := inside(`echo correct-horse-battery | slipway user create --email ada@example.test >&2
		slipway key create --user ada@example.test --name test > /tmp/key`)
	if err != nil {
		t.Fatal(out, err)
	}
	if out, err := deploy("plain", "index.html", "hello from a container"); err != nil {
		t.Fatal(out, err)
	}
	get("plain", "hello from a container")
	if out, err := deploy("shop", "index.php", "<?= 6*7, php_sapi_name();"); err == nil || !strings.Contains(out, "sandbox") {
		t.Errorf("a program without a sandbox: %v %s", err, out)
	}
	end()

	// Here the platform chooses the user.
	begin("--user=54321:54321")
	get("plain", "hello from a container")
	end()

	begin(seccomp, unmask)
	get("plain", "hello from a container")
	if out, err := inside("slipway key create --user ada@example.test --name again > /tmp/key"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := deploy("market", "index.php", "<?= 6*7, php_sapi_name();"); err != nil {
		t.Fatal(out, err)
	}
	get("market", "42fpm-fcgi")
	if out, err := inside("slipway upgrade https://example.test/slipway_9.0.0_linux_amd64.tar.gz --sha256 " + strings.Repeat("0", 64)); err == nil || !strings.Contains(out, "runs from a container image") {
		t.Errorf("an upgrade in the image: %v %s", err, out)
	}
	end()
}
