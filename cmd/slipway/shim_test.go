package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"slipway/internal/platform/sandbox"
)

// A sandbox starts our binary twice before the command: both times it is done before the
// packages of the server are initialized.
func TestShimRunsBeforeTheServerIsInitialized(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", sandbox.ShimName)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	said, err := cmd.CombinedOutput()
	text := string(said)
	if err == nil || cmd.ProcessState.ExitCode() != 125 || !strings.Contains(text, "the sandbox shim is started by the server only") {
		t.Fatalf("the shim says %q, %v", text, err)
	}
	if !strings.Contains(text, "init os @") {
		t.Fatalf("no trace of initialization: %s", text)
	}
	for _, late := range []string{
		"net/http",
		"github.com/prometheus/client_golang/prometheus",
		"slipway/internal/tenant/site",
		"slipway/internal/server",
	} {
		if strings.Contains(text, "init "+late+" @") {
			t.Errorf("%s is initialized before the shim: something in package sandbox imports net/http", late)
		}
	}
}
