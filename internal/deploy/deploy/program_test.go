package deploy

import (
	"errors"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// The log names variables that Slipway overrides, such as PORT.
func TestUnusedVariables(t *testing.T) {
	t.Parallel()
	got := unused([]site.Var{{Key: "PORT", Value: "8080"}, {Key: "PORTAL", Value: "x"}, {Key: "HOST", Value: "0.0.0.0"}})
	if len(got) != 2 || !strings.HasPrefix(got[0], "The variable PORT of the site is not used: ") || !strings.Contains(got[1], "variable HOST ") {
		t.Errorf("%q", got)
	}
}

// The error of a program that fails to start contains the cause found in its output. Other errors, and out of memory,
// aren't changed.
func TestStartsThatFailAreExplained(t *testing.T) {
	t.Parallel()
	lines := []string{"starting", "Error: EROFS: read-only file system, mkdir '/app/web/data'"}
	plan := framework.Plan{Root: "web"}
	for code, want := range map[string]string{
		"application_crashed":   `It writes to data, and a release is read-only: add storage = ["data"] under [run] in slipway.toml, or set run.storage of the site`,
		"application_unhealthy": `It writes to data, and a release is read-only: add storage = ["data"] under [run] in slipway.toml, or set run.storage of the site`,
		"application_full":      "see its log",
	} {
		before := fault.New(fault.Invalid, code, "It ended", "see its log")
		f := fault.As(explained(before, lines, plan))
		if f.Details != want || f.Message != "It ended" || f.Code != code || before.Details != "see its log" {
			t.Errorf("%s: %+v", code, f)
		}
	}
	memory := &fault.Error{Code: "application_crashed", Details: "raise the site's memory limit, or let the application use less"}
	if got := explained(memory, lines, plan); got != error(memory) {
		t.Errorf("out of memory: %v", got)
	}
	if other := errors.New("x"); explained(other, lines, plan) != other {
		t.Error("another error was changed")
	}
}
