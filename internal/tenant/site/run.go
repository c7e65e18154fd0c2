package site

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// Run holds the owner's settings of how the site's program is run; a nil field is left to
// what slipway.toml, detection or the default says.
type Run struct {
	Command           *string      `json:"command,omitempty" doc:"The start command. Applies at the next start."`
	Release           *string      `json:"release,omitempty" doc:"Runs once per deployment before it goes live. Default: release in slipway.toml or the Procfile. Applies with the next deployment."`
	HealthCheck       *HealthCheck `json:"healthCheck,omitempty"`
	SleepAfterSeconds *int         `json:"sleepAfterSeconds,omitempty" doc:"Unused for so long, the program stops, and the next request starts it. 0 never. Default 900. Applies within seconds."`
	MemoryMiB         *int         `json:"memoryMiB,omitempty" doc:"64 to 16384. Default 512. Applies at the next start."`
	CPUs              *float64     `json:"cpus,omitempty" doc:"0.1 to 64. Default 1. Applies at the next start."`
	Pids              *int         `json:"pids,omitempty" doc:"How many processes and threads it may have at once. 32 to 4096. Default 512. Applies at the next start."`
	Storage           *[]string    `json:"storage,omitempty" doc:"Folders of the project that the program may write to, and that stay when another deployment takes over; those that detection knows are among them. Up to 10. Applies at the next start."`
	StorageMiB        *int         `json:"storageMiB,omitempty" doc:"What they may hold together. 16 to 10240. Default 1024. Applies at the next start."`
	Ports             *[]int       `json:"ports,omitempty" doc:"Ports, beside 80 and 443, at which the program may reach public hosts by name, for databases and the like. Up to 16. Default none. Applies at the next start."`
	RequestMiB        *int         `json:"requestMiB,omitempty" doc:"The most that the body of a request may have; a larger one is answered with 413. 1 to 1048576. Default no limit. Applies within seconds."`
	ResponseSeconds   *int         `json:"responseSeconds,omitempty" doc:"How long the program may take for the first byte of an answer, from the last byte of the request; then visitors get 504. 1 to 3600. Default 100. Applies within seconds."`
	Terminal          *bool        `json:"terminal,omitempty" doc:"Whether the dashboard opens terminals in the program's sandbox. Default false."`
	DrainSeconds      *int         `json:"drainSeconds,omitempty" doc:"What requests under way are given to end when another deployment takes over. 0 to 600. Default 30. Applies within seconds."`
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
	if p.Pids != nil {
		have.Pids = p.Pids
	}
	if p.Storage != nil {
		have.Storage = p.Storage
	}
	if p.StorageMiB != nil {
		have.StorageMiB = p.StorageMiB
	}
	if p.Ports != nil {
		have.Ports = p.Ports
	}
	if p.RequestMiB != nil {
		have.RequestMiB = p.RequestMiB
	}
	if p.ResponseSeconds != nil {
		have.ResponseSeconds = p.ResponseSeconds
	}
	if p.Terminal != nil {
		have.Terminal = p.Terminal
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
		return bad("command", "at most 4,096 bytes of text", text.Clip(*r.Command, 200))
	}
	if r.Release != nil && (len(*r.Release) > 4096 || strings.ContainsRune(*r.Release, 0)) {
		return bad("release", "at most 4,096 bytes of text", text.Clip(*r.Release, 200))
	}
	if err := within("sleepAfterSeconds", r.SleepAfterSeconds, 0, 7*24*3600); err != nil {
		return err
	}
	if err := within("memoryMiB", r.MemoryMiB, 64, 16384); err != nil {
		return err
	}
	if err := within("pids", r.Pids, 32, 4096); err != nil {
		return err
	}
	if err := within("drainSeconds", r.DrainSeconds, 0, 600); err != nil {
		return err
	}
	if err := within("storageMiB", r.StorageMiB, 16, 10240); err != nil {
		return err
	}
	if err := within("responseSeconds", r.ResponseSeconds, 1, 3600); err != nil {
		return err
	}
	if err := within("requestMiB", r.RequestMiB, 1, 1<<20); err != nil {
		return err
	}
	if r.Storage != nil {
		if len(*r.Storage) > maxStorage {
			return bad("storage", fmt.Sprintf("at most %d folders", maxStorage), len(*r.Storage))
		}
		for i, dir := range *r.Storage {
			if !storageFolder(dir) || slices.Contains((*r.Storage)[:i], dir) {
				return bad("storage", "folders of the project, each once, such as storage or public/uploads", text.Clip(dir, 200))
			}
		}
	}
	if r.Ports != nil {
		if len(*r.Ports) > maxPorts {
			return bad("ports", fmt.Sprintf("at most %d ports", maxPorts), len(*r.Ports))
		}
		for i, port := range *r.Ports {
			if port < 1 || port > 65535 || port == 25 || port == 53 || port == 3000 || slices.Contains((*r.Ports)[:i], port) {
				return bad("ports", "numbers from 1 to 65535, each once, without 25, 53 and 3000", port)
			}
		}
	}
	if r.CPUs != nil && !(*r.CPUs >= 0.1 && *r.CPUs <= 64) {
		return bad("cpus", "0.1 to 64", *r.CPUs)
	}
	if h := r.HealthCheck; h != nil {
		if err := within("healthCheck.timeoutSeconds", h.TimeoutSeconds, 1, 600); err != nil {
			return err
		}
		if h.Path != nil && (!strings.HasPrefix(
			*h.Path,
			"/",
		) || len(*h.Path) > 1024 || path.Clean(*h.Path) == "" || strings.ContainsFunc(*h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
			return bad("healthCheck.path", "a path that begins with a slash", text.Clip(*h.Path, 200))
		}
	}
	return nil
}

// The most folders of storage, and ports, that a site may name.
const (
	maxStorage = 10
	maxPorts   = 16
)

// storageFolder reports whether a path names a folder in a project: clean, relative, and
// nothing that only Slipway or Git has.
func storageFolder(dir string) bool {
	return dir != "" && len(dir) <= 200 && path.Clean("/"+dir) == "/"+dir && dir[0] != '@' && dir != "." && dir != ".git" &&
		!strings.HasPrefix(
			dir,
			".git/",
		) &&
		!strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f || r == '\ufffd' })
}

// DefaultStorage is how many bytes a site may store where StorageMiB doesn't say.
const DefaultStorage = 1 << 30

// StorageBytes is how many bytes a site may store.
func (r Run) StorageBytes() int64 {
	if r.StorageMiB != nil {
		return int64(*r.StorageMiB) << 20
	}
	return DefaultStorage
}
