package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"aead.dev/minisign"
)

// TestMain is what the installer of these tests installs: a program that says how it was called.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"upgrade", "man", "completion"}, os.Args[1]) {
		fmt.Println("upgrades with", strings.Join(os.Args[1:], " "))
		return
	}
	os.Exit(m.Run())
}

// tool returns the path of a program that a test needs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: apt-get install %s", name, name)
	}
	return path
}

func TestInstallerIsClean(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(tool(t, "shellcheck"), "install.sh").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// An installer that was cut off runs nothing, wherever it was cut.
func TestInstallerCutOffRunsNothing(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.TrimSpace(text)
	// The whole of it runs uname first. Whatever is run writes that down.
	bin := t.TempDir()
	for _, name := range []string{"uname", "dirname", "id", "mktemp", "curl", "cp", "rm", "apt-get", "tar", "install", "systemctl", "mkdir", "grep", "sed"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho ran $0 >>\"$RAN\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	run := func(at, worker int) bool {
		ran := filepath.Join(dir, "ran"+string(rune('0'+worker)))
		c := exec.Command("/bin/sh")
		c.Stdin, c.Dir = bytes.NewReader(text[:at]), dir // as curl … | sh has it
		c.Env = []string{"PATH=" + bin, "RAN=" + ran}
		_ = c.Run() // what is cut off may be no program at all
		_, err := os.Stat(ran)
		return err == nil
	}
	const workers = 4
	step := workers // each place; where it must not take long, every 13th
	if testing.Short() {
		step *= 13
	}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for at := worker; at < len(text); at += step {
				if run(at, worker) {
					t.Errorf("cut off after %d of %d bytes it ran something", at, len(text))
					return
				}
			}
		})
	}
	all.Wait()
	if !run(len(text), workers) {
		t.Error("the whole of it runs nothing: the test would notice none")
	}
}

// The installer installs what is signed and whole, and of anything else nothing.
func TestInstaller(t *testing.T) {
	t.Parallel()
	bwrap := tool(t, "bwrap")
	tool(t, "minisign")
	_, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	locked, err := minisign.EncryptKey("", private)
	if err != nil {
		t.Fatal(err)
	}
	dist, key := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(key, locked, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable() // TestMain lets it upgrade
	if err != nil {
		t.Fatal(err)
	}
	// It trusts two keys, as before a change of them.
	next, _, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "run", "./scripts/release", "-sign", key, "-trust", next.String(), "-program", program, "-version", "1.2.3", "-arch", runtime.GOARCH, "-out", dist)
	c.Dir = ".."
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := "slipway_1.2.3_linux_" + runtime.GOARCH + ".tar.gz"
	// In a root of its own, without dpkg, which would have the package installed.
	install := func(dist, script string) string {
		t.Helper()
		out, err := exec.Command(bwrap, "--ro-bind", "/", "/", "--tmpfs", "/usr/local", "--tmpfs", "/etc", "--tmpfs", "/tmp", "--setenv", "TMPDIR", "/tmp",
			"--ro-bind", "/dev/null", "/usr/bin/dpkg", "--ro-bind", dist, "/tmp/dist", "--dev", "/dev", "--unshare-pid", "--unshare-net",
			"sh", "-c", script+"; echo status $?; cd /; find usr/local etc -type f | sort").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	files := "etc/slipway/server.toml\netc/systemd/system/slipway-auto-upgrade.service\netc/systemd/system/slipway-auto-upgrade.timer\n" +
		"etc/systemd/system/slipway-upgrade.service\netc/systemd/system/slipway.service\n" +
		"etc/systemd/system/slipway.socket\nusr/local/bin/slipway\n" +
		"usr/local/share/bash-completion/completions/slipway\nusr/local/share/man/man1/slipway.1\n"
	if out := install(dist, "sh /tmp/dist/install.sh && grep -h ExecStart= /etc/systemd/system/*.service"); !strings.Contains(out, "status 0\n"+files) ||
		!strings.Contains(out, "ExecStart=/usr/local/bin/slipway serve") || !strings.Contains(out, "ExecStart=/usr/local/bin/slipway.previous upgrade") {
		t.Errorf("a release:\n%s", out)
	}
	// Any of its keys may have signed.
	other := `sed "s|keys='\(.*\) \(.*\)'|keys='\2 \1'|" /tmp/dist/install.sh >/tmp/install.sh; grep "keys='` + next.String() + `" /tmp/install.sh && sh /tmp/install.sh --from /tmp/dist`
	if out := install(dist, other); !strings.Contains(out, "status 0\n"+files) {
		t.Errorf("signed by the second key:\n%s", out)
	}
	// Units that the version before didn't have come with an upgrade; what was changed stays.
	again := `sh /tmp/dist/install.sh && cd /etc/systemd/system && rm slipway-auto-upgrade.timer && echo mine | tee /etc/slipway/server.toml >slipway.socket &&
		sh /tmp/dist/install.sh && grep -c OnCalendar slipway-auto-upgrade.timer && cat /etc/slipway/server.toml slipway.socket`
	if out := install(dist, again); !strings.Contains(out, "upgrades with upgrade --config /etc/slipway/server.toml --sha256") ||
		!strings.Contains(out, "\n1\nmine\nmine\nstatus 0\n"+files) {
		t.Errorf("a second time:\n%s", out)
	}
	if out := install(dist, "sh /tmp/dist/install.sh --dry-run"); !strings.Contains(out, archive) || !strings.HasSuffix(out, "status 0\n") {
		t.Errorf("only to be told:\n%s", out)
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string
	}{
		"a changed archive": {func(dir string) error { return appendTo(filepath.Join(dir, archive)) }, "Nothing was installed"},
		"changed checksums": {func(dir string) error { return appendTo(filepath.Join(dir, "SHA256SUMS")) }, "not signed by the release's key"},
		"no signature":      {func(dir string) error { return os.Remove(filepath.Join(dir, "SHA256SUMS.minisig")) }, "can't be had"},
		"no archive":        {func(dir string) error { return os.Remove(filepath.Join(dir, archive)) }, "can't be had"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(dist)); err != nil {
			t.Fatal(err)
		}
		if err := c.change(dir); err != nil {
			t.Fatal(err)
		}
		if out := install(dir, "sh /tmp/dist/install.sh"); !strings.Contains(out, c.says) || !strings.HasSuffix(out, "status 1\n") {
			t.Errorf("%s:\n%s", name, out)
		}
	}
	for _, args := range []string{"--from", "--from http://127.0.0.1/", "--what"} {
		if out := install(dist, "sh /tmp/dist/install.sh "+args); !strings.HasSuffix(out, "status 2\n") {
			t.Errorf("%s:\n%s", args, out)
		}
	}
}

func appendTo(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return err
}
