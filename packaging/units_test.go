// Package packaging owns what Slipway is installed with. It has no code, only tests.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The units are ones that systemd takes without a warning, and expose little: 4 as root, 2.9 as a
// user of its own, where 10 is the worst.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is missing; install the package systemd (scripts/check does)")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "slipway")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"slipway.service", "slipway.socket", "slipway-upgrade.service", "slipway-auto-upgrade.service", "slipway-auto-upgrade.timer"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		// The program is not installed here.
		unit := strings.ReplaceAll(string(text), "/usr/bin/slipway", program)
		unit = strings.ReplaceAll(unit, program+".previous", program)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.Command(analyze, "verify", "--recursive-errors=no", "slipway.service", "slipway.socket", "slipway-upgrade.service", "slipway-auto-upgrade.service",
		"slipway-auto-upgrade.timer")
	verify.Dir, verify.Env = dir, append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	if out, err := verify.CombinedOutput(); err != nil || strings.Contains(string(out), "slipway") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	security := func(threshold string) {
		t.Helper()
		c := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+threshold, filepath.Join(dir, "slipway.service"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("more exposed than %s: %v\n%.200s", threshold, err, out[max(0, len(out)-200):])
		}
	}
	security("40") // as root, with what the sandbox needs
	drop, err := os.ReadFile(filepath.Join("systemd", "unprivileged.conf"))
	if err != nil {
		t.Fatal(err)
	}
	// systemd-analyze reads no drop-ins of a file that it is given: the settings go into the file.
	text, err := os.ReadFile(filepath.Join(dir, "slipway.service"))
	if err != nil {
		t.Fatal(err)
	}
	base, install, _ := strings.Cut(string(text), "[Install]")
	merged := base + string(drop) + "[Install]" + install
	if err := os.WriteFile(filepath.Join(dir, "slipway.service"), []byte(merged), 0o644); err != nil {
		t.Fatal(err)
	}
	security("29")
}
