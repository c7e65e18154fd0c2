package site

import (
	"fmt"
	"path"
	"strings"

	"slipway/internal/fault"
)

// Run holds the owner's settings of how the site's program is run; a nil field is left to
// what slipway.toml, detection or the default says.
type Run struct {
	Command           *string      `json:"command,omitempty" doc:"The start command."`
	Release           *string      `json:"release,omitempty" doc:"Runs once per deployment before it goes live. Default: release in slipway.toml or the Procfile."`
	HealthCheck       *HealthCheck `json:"healthCheck,omitempty"`
	SleepAfterSeconds *int         `json:"sleepAfterSeconds,omitempty" doc:"Unused for so long, the program stops, and the next request starts it. 0 never. Default 900."`
	MemoryMiB         *int         `json:"memoryMiB,omitempty" doc:"64 to 16384. Default 512."`
	CPUs              *float64     `json:"cpus,omitempty" doc:"0.1 to 64. Default 1."`
	DrainSeconds      *int         `json:"drainSeconds,omitempty" doc:"What requests under way are given to end when another deployment takes over. 0 to 600. Default 30."`
}

// HealthCheck says when a program may take over.
type HealthCheck struct {
	Path           *string `json:"path,omitempty" doc:"Must answer with anything but a server error. Default /."`
	TimeoutSeconds *int    `json:"timeoutSeconds,omitempty" doc:"1 to 600. Default 60."`
}

// mergeRun is the settings with what a patch says; an empty command returns to detection.
func mergeRun(have, p Run) Run {
	if p.Command != nil {
		if have.Command = p.Command; *p.Command == "" {
			have.Command = nil
		}
	}
	if p.Release != nil {
		if have.Release = p.Release; *p.Release == "" {
			have.Release = nil
		}
	}
	if h := p.HealthCheck; h != nil {
		merged := HealthCheck{}
		if have.HealthCheck != nil {
			merged = *have.HealthCheck
		}
		if h.Path != nil {
			merged.Path = h.Path
		}
		if h.TimeoutSeconds != nil {
			merged.TimeoutSeconds = h.TimeoutSeconds
		}
		have.HealthCheck = &merged
	}
	if p.SleepAfterSeconds != nil {
		have.SleepAfterSeconds = p.SleepAfterSeconds
	}
	if p.MemoryMiB != nil {
		have.MemoryMiB = p.MemoryMiB
	}
	if p.CPUs != nil {
		have.CPUs = p.CPUs
	}
	if p.DrainSeconds != nil {
		have.DrainSeconds = p.DrainSeconds
	}
	return have
}

// CheckRun holds settings to their ranges, whoever said them.
func CheckRun(r Run) error { return checkRun(r) }

// checkRun holds settings to their ranges.
func checkRun(r Run) error {
	bad := func(name, details string, received any) error {
		return &fault.Error{Kind: fault.Invalid, Message: "Invalid run." + name, Details: details, Received: received, Code: "invalid_run"}
	}
	within := func(name string, v *int, low, high int) error {
		if v != nil && (*v < low || *v > high) {
			return bad(name, fmt.Sprintf("%d to %d", low, high), *v)
		}
		return nil
	}
	if r.Command != nil && (len(*r.Command) > 4096 || strings.ContainsRune(*r.Command, 0)) {
		return bad("command", "at most 4,096 bytes of text", short(*r.Command))
	}
	if r.Release != nil && (len(*r.Release) > 4096 || strings.ContainsRune(*r.Release, 0)) {
		return bad("release", "at most 4,096 bytes of text", short(*r.Release))
	}
	if err := within("sleepAfterSeconds", r.SleepAfterSeconds, 0, 7*24*3600); err != nil {
		return err
	}
	if err := within("memoryMiB", r.MemoryMiB, 64, 16384); err != nil {
		return err
	}
	if err := within("drainSeconds", r.DrainSeconds, 0, 600); err != nil {
		return err
	}
	if r.CPUs != nil && !(*r.CPUs >= 0.1 && *r.CPUs <= 64) {
		return bad("cpus", "0.1 to 64", *r.CPUs)
	}
	if h := r.HealthCheck; h != nil {
		if err := within("healthCheck.timeoutSeconds", h.TimeoutSeconds, 1, 600); err != nil {
			return err
		}
		if h.Path != nil && (!strings.HasPrefix(*h.Path, "/") || len(*h.Path) > 1024 || path.Clean(*h.Path) == "" || strings.ContainsFunc(*h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
			return bad("healthCheck.path", "a path that begins with a slash", short(*h.Path))
		}
	}
	return nil
}
