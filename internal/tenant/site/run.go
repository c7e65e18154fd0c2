package site

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// Run holds the owner's settings of the site's program. A nil field means the value from slipway.toml, detection or the
// default.
type Run struct {
	Command           *string      `json:"command,omitempty" doc:"Start command. Applies at the next start."`
	Release           *string      `json:"release,omitempty" doc:"Release command: runs once per deployment before it goes live. Default: release in slipway.toml or the Procfile. Applies on the next deployment."`
	HealthCheck       *HealthCheck `json:"healthCheck,omitempty"`
	SleepAfterSeconds *int         `json:"sleepAfterSeconds,omitempty" doc:"Stop the program after this long without requests; the next request wakes it. 0: never. Default: 900. Applies within seconds."`
	MemoryMiB         *int         `json:"memoryMiB,omitempty" doc:"Memory limit, 64 to 16384. Default: 512. Applies at the next start."`
	CPUs              *float64     `json:"cpus,omitempty" doc:"CPU limit, 0.1 to 64. Default: 1. Applies at the next start."`
	Pids              *int         `json:"pids,omitempty" doc:"Maximum number of processes and threads, 32 to 4096. Default: 512. Applies at the next start."`
	Instances         *Instances   `json:"instances,omitempty"`
	Storage           *[]string    `json:"storage,omitempty" doc:"Folders that the program can write to, kept across deployments. Detected folders are always included. At most 10. Applies at the next start."`
	StorageMiB        *int         `json:"storageMiB,omitempty" doc:"Maximum total size of the storage folders, 16 to 10240. Default: 1024. Applies at the next start."`
	ReadOnly          *bool        `json:"readOnly,omitempty" doc:"Whether the program's own files are read-only. Otherwise what it writes outside of storage is kept until it ends, and lost at the next start. Default: false; files of PHP and WordPress are always read-only, since what is written there could be executed. Applies at the next start."`
	Closed            *[]string    `json:"closed,omitempty" doc:"Files and folders of a PHP site that visitors never reach, by their path below its address, such as data. Added to what .htaccess files close. At most 50. Applies on the next deployment."`
	DocumentRoot      *string      `json:"documentRoot,omitempty" doc:"Folder of a PHP site that is served, relative to its root directory; empty for that directory. Default: as detected. Applies on the next deployment."`
	FrontController   *string      `json:"frontController,omitempty" doc:"PHP file that answers for paths without a file, relative to the document root; empty for none. Default: as detected, or as .htaccess says. Applies on the next deployment."`
	Passthru          *bool        `json:"passthru,omitempty" doc:"Whether the front controller of a PHP site answers for paths without a file; otherwise these are 404 unless a rule of .htaccess is about them. Default: as detected. Applies on the next deployment."`
	Ports             *[]int       `json:"ports,omitempty" doc:"Additional ports of public hosts that the program can connect to, beside 80 and 443, for example of databases. At most 16. Default: none. Applies at the next start."`
	RequestMiB        *int         `json:"requestMiB,omitempty" doc:"Maximum size of a request body, 1 to 1048576; larger ones get 413. Default: no limit. Applies within seconds."`
	ResponseSeconds   *int         `json:"responseSeconds,omitempty" doc:"Time from the end of the request to the first byte of the response, 1 to 3600; after that visitors get a 504. Default: 100. Applies within seconds."`
	Terminal          *bool        `json:"terminal,omitempty" doc:"Whether terminals can be opened in the program's sandbox, by the dashboard and the API. Default: false."`
	DrainSeconds      *int         `json:"drainSeconds,omitempty" doc:"Time that in-flight requests get to finish when another deployment takes over, and that workers get after SIGTERM, 0 to 600. Default: 30. Applies within seconds."`
}

// HealthCheck is a check that a program must pass before it goes live.
type HealthCheck struct {
	Path           *string `json:"path,omitempty" doc:"Path that must return a non-5xx status before the program goes live, and every 10 s while it runs: after three failures in a row it is started again. Default: /, while requests wait without an answer."`
	TimeoutSeconds *int    `json:"timeoutSeconds,omitempty" doc:"Timeout, 1 to 600. Default: 60."`
}

// Instances is the number of a program's concurrent instances.
type Instances struct {
	Min *int `json:"min,omitempty" doc:"Instances that run while the program is awake, 1 to 10. Default: 1. Applies within seconds."`
	Max *int `json:"max,omitempty" doc:"Up to how many instances run when more than 10 requests per instance are in flight, 1 to 10. Node.js only, and not with storage. Each counts toward sites.running. Default: min. Applies within seconds."`
}

// MaxInstances caps a site's instances.
const MaxInstances = 10

// Range returns the minimum and maximum number of instances.
func (i *Instances) Range() (least, most int) {
	least = 1
	if i != nil && i.Min != nil {
		least = *i.Min
	}
	if i != nil && i.Max != nil {
		return least, *i.Max
	}
	return least, least
}

// merge applies a patch.
func (i *Instances) merge(p *Instances) *Instances {
	if p == nil {
		return i
	}
	merged := *p
	if i != nil {
		merged.Min, merged.Max = cmp.Or(p.Min, i.Min), cmp.Or(p.Max, i.Max)
	}
	return &merged
}

// check validates the numbers. Programs with storage are limited to one instance, since only one may write to it.
func (i *Instances) check(storage *[]string) error {
	least, most := i.Range()
	switch {
	case least < 1 || least > MaxInstances:
		return errRun("instances.min", fmt.Sprintf("1 to %d", MaxInstances), least)
	case most < 1 || most > MaxInstances:
		return errRun("instances.max", fmt.Sprintf("1 to %d", MaxInstances), most)
	case least > most:
		return errRun("instances.min", fmt.Sprintf("at most instances.max, which is %d", most), least)
	case most > 1 && storage != nil && len(*storage) > 0:
		return errRun("instances.max", "1: a program with storage runs one instance, which alone writes to it", most)
	}
	return nil
}

func errRun(name, details string, received any) error {
	return fault.New(fault.Invalid, "invalid_run", "Invalid run."+name, details).Got(received)
}

// checkInstances refuses several instances of WordPress and of programs with storage.
func (s *Site) checkInstances() error {
	if _, most := s.Run.Instances.Range(); most > 1 && s.Type == WordPress {
		return errRun("instances.max", "1: WordPress has storage and runs one instance", most)
	}
	return s.Run.Instances.check(s.Run.Storage)
}

// mergeRun applies a patch. An empty command resets it to detection.
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
		merged.Path = cmp.Or(h.Path, merged.Path)
		merged.TimeoutSeconds = cmp.Or(h.TimeoutSeconds, merged.TimeoutSeconds)
		have.HealthCheck = &merged
	}
	have.SleepAfterSeconds = cmp.Or(p.SleepAfterSeconds, have.SleepAfterSeconds)
	have.MemoryMiB = cmp.Or(p.MemoryMiB, have.MemoryMiB)
	have.CPUs = cmp.Or(p.CPUs, have.CPUs)
	have.Pids = cmp.Or(p.Pids, have.Pids)
	have.Instances = have.Instances.merge(p.Instances)
	have.Storage = cmp.Or(p.Storage, have.Storage)
	have.StorageMiB = cmp.Or(p.StorageMiB, have.StorageMiB)
	have.ReadOnly = cmp.Or(p.ReadOnly, have.ReadOnly)
	have.Closed = cmp.Or(p.Closed, have.Closed)
	have.DocumentRoot = cmp.Or(p.DocumentRoot, have.DocumentRoot)
	have.FrontController = cmp.Or(p.FrontController, have.FrontController)
	have.Passthru = cmp.Or(p.Passthru, have.Passthru)
	have.Ports = cmp.Or(p.Ports, have.Ports)
	have.RequestMiB = cmp.Or(p.RequestMiB, have.RequestMiB)
	have.ResponseSeconds = cmp.Or(p.ResponseSeconds, have.ResponseSeconds)
	have.Terminal = cmp.Or(p.Terminal, have.Terminal)
	have.DrainSeconds = cmp.Or(p.DrainSeconds, have.DrainSeconds)
	return have
}

// CheckRun returns a fault for settings out of range.
func CheckRun(r Run) error {
	bad := errRun
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
	if r.Closed != nil {
		if len(*r.Closed) > maxClosed {
			return bad("closed", fmt.Sprintf("at most %d paths", maxClosed), len(*r.Closed))
		}
		for i, name := range *r.Closed {
			if !storageFolder(name) || slices.Contains((*r.Closed)[:i], name) {
				return bad("closed", "paths below the site's address, each once, such as data or config/keys.txt", text.Clip(name, 200))
			}
		}
	}
	if dir := r.DocumentRoot; dir != nil && *dir != "" && !storageFolder(*dir) {
		return bad("documentRoot", "a folder of the project, such as web; empty for its root directory", text.Clip(*dir, 200))
	}
	if front := r.FrontController; front != nil && *front != "" && (!storageFolder(*front) || !strings.HasSuffix(*front, ".php")) {
		return bad("frontController", "a .php file in the document root, such as index.php; empty for none", text.Clip(*front, 200))
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
	if r.Instances != nil {
		if err := r.Instances.check(r.Storage); err != nil {
			return err
		}
	}
	if r.CPUs != nil && !(*r.CPUs >= 0.1 && *r.CPUs <= 64) {
		return bad("cpus", "0.1 to 64", *r.CPUs)
	}
	if h := r.HealthCheck; h != nil {
		if err := within("healthCheck.timeoutSeconds", h.TimeoutSeconds, 1, 600); err != nil {
			return err
		}
		if h.Path != nil && (!strings.HasPrefix(*h.Path, "/") || len(*h.Path) > 1024 || path.Clean(*h.Path) == "" ||
			strings.ContainsFunc(*h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
			return bad("healthCheck.path", "a path that begins with a slash", text.Clip(*h.Path, 200))
		}
	}
	return nil
}

// Limits on a site's storage folders, closed paths and ports.
const (
	maxClosed  = 50
	maxStorage = 10
	maxPorts   = 16
)

// storageFolder reports whether dir can be a storage folder: a clean, relative path that isn't reserved for Slipway or
// Git.
func storageFolder(dir string) bool {
	return dir != "" && len(dir) <= 200 && path.Clean("/"+dir) == "/"+dir && dir[0] != '@' && dir != "." && dir != ".git" &&
		!strings.HasPrefix(dir, ".git/") &&
		!strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f || r == '\ufffd' })
}

// DefaultStorage is a site's storage limit in bytes if StorageMiB is nil.
const DefaultStorage = 1 << 30

// StorageBytes returns the site's storage limit in bytes.
func (r Run) StorageBytes() int64 {
	if r.StorageMiB != nil {
		return int64(*r.StorageMiB) << 20
	}
	return DefaultStorage
}

// AllowsTerminal returns a fault unless the site's owner allows terminals, and with them queries of its databases.
func (s Site) AllowsTerminal() error {
	if s.Run.Terminal != nil && *s.Run.Terminal {
		return nil
	}
	return fault.New(fault.Conflict, "terminal_disabled", "The terminal is not enabled for this site",
		"enable it on the site's Terminal page, or set run.terminal to true")
}
