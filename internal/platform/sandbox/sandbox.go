// Package sandbox owns running an untrusted command within limits.
//
// On a suitable host a command runs under its site's own uid, in its own user, pid, mount, network, IPC, UTS and cgroup
// namespaces made by bubblewrap, without capabilities, behind a seccomp filter and in a cgroup; its only way out is a
// unix socket of our CONNECT proxy. When Run returns, every process of the command is proven dead: the pid namespace
// has ended and the cgroup is empty. Only then may its files be read. A plain user gets as much of this as possible;
// [Probe] reports what is missing. [Plain] is the operator's explicit choice to run without isolation.
//
// The package never starts a shell, never puts an environment value or a path of the host into an argv, and never binds
// a directory that a tenant could replace.
//
// It supports only Linux. Sandboxes share the host's hardened kernel; they aren't virtual machines.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/sandbox/inside"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
)

// Runner runs one command to its end. [*Bubblewrap] and [*Plain] implement it. Run returns an error only if the command
// couldn't be run or its death couldn't be proven; a command that fails or exceeds a limit is a Result.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Root is the path of [Command.Work] inside the sandbox.
const Root = inside.Root

// Command is what to run, where, and within which limits.
type Command struct {
	// Argv is the program and its arguments. It is visible in the host's process
	// list, so it never holds a secret. A name without a slash is looked up in the
	// PATH of Env.
	Argv []string
	// Dir is the working directory inside the sandbox. Optional: empty means Root.
	Dir string
	// Env is a list of KEY=value; the last value of a key overrides earlier ones and the sandbox's defaults (PATH,
	// HOME, LANG, TMPDIR). It is passed by descriptor, never in an argv.
	Env []string
	// Work is the absolute host directory that is mounted read-write at Root. It must belong to UID (see Own); a .home
	// for HOME is created in it.
	Work string
	// System is an absolute path of ours with a file system whose programs, libraries and parts of /etc the command
	// sees in place of the host's. The host's certificates stay. Optional: empty is the host. Plain refuses it.
	System string
	// Binds are further directories and files to mount. Optional.
	Binds []Bind
	// UID and GID are the site's ids on the host. They are required if we are root and ignored otherwise. GID 0 means
	// the same number as UID.
	UID, GID int
	// Network is the way out. The zero value has none, only a loopback.
	Network Network
	// Forwards maps ports of the sandbox's loopback to paths of sockets inside, which are targets of binds. Optional.
	Forwards map[int]string
	Limits   Limits
	// Linked is called with the Link to the sandbox before the command runs. It must not block. Optional.
	Linked func(*Link)
	// Guard gets the sandbox's pid 1 before the command runs. Optional; Plain refuses it.
	Guard Guard
	// Beside are commands that run in the same sandbox, started just before Argv with its variables, in Root. Their
	// failure or end is only reported on Stderr. They are killed when Argv ends. Optional; Plain refuses them.
	Beside [][]string
	// Listener is a listening socket that the command inherits as descriptor 3. The caller owns it and may close it
	// after Linked was called or Run has returned. Optional.
	Listener *os.File
	// Terminal is the command's end of a pseudo-terminal. The command leads a session with this controlling terminal
	// and uses it for all input and output: Stdout and Stderr get only errors of the start. The caller owns it.
	// Optional.
	Terminal *os.File
	// Stdout and Stderr receive the output; nil discards it. Their Writes don't overlap. A blocking Write blocks the
	// command and Run. If both are the same writer (by ==), the output keeps its order; otherwise the order between the
	// two is lost.
	Stdout, Stderr io.Writer

	alone bool // see Plain
}

// Guard can kill a sandbox from outside.
type Guard interface {
	// Hold gets a pidfd of a sandbox's pid 1; killing it kills all processes inside. If Hold fails, the command doesn't
	// run.
	Hold(init int) error
}

// Bind mounts one host path into the sandbox.
type Bind struct {
	Source string // absolute host path of a directory, file or socket that we created
	Target string // absolute path inside
	Write  bool   // read-write; growth counts against Limits.Disk
	Stored bool   // its content counts against Limits.Stored instead
	// Layer is an absolute path of ours where nothing exists yet, below a directory of ours. The command may write to the
	// bind, but everything it writes is kept there, counts against Limits.Disk, and Source stays as it is. Root must own
	// Source's files. The caller deletes Layer. Optional; only if Layers returns nil.
	Layer string
}

// Network configures a command's network access.
type Network struct {
	// Proxy is the host path of our CONNECT proxy's unix socket. The socket must be writable for UID; its directory may
	// be private. Inside, every name that the proxy resolves has an address, and ports 80 and 443 of these addresses
	// lead to the proxy.
	Proxy string
	// Ports are additional ports that lead to the proxy. Optional.
	Ports []uint16
}

// carried returns the ports that are forwarded to the proxy, and 53, at which the resolver answers over TCP.
func (n Network) carried() []uint16 {
	ports := []uint16{80, 443, 53}
	for _, p := range n.Ports {
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// Limits limits a command. Zero fields take the value of Defaults.
type Limits struct {
	Memory  int64         // bytes, including swap, which isn't used
	Pids    int64         // processes and threads
	CPU     float64       // cores; 0 means no quota
	Disk    int64         // bytes on disk in Work and /tmp plus the growth of writable binds
	Stored  int64         // bytes on disk in Stored binds; 0 means no limit
	Files   int64         // files and directories in Work and these binds
	Wall    time.Duration // from start to the kill
	Output  int64         // bytes of Stdout and Stderr together; more is dropped after a marker line
	NoFile  int64         // open files per process
	TmpSize int64         // bytes of /dev/shm, which is in memory; without a limit of Disk, of /tmp as well
	// Foreground says that visitors wait for the command: on a busy machine it gets twice the processor time of builds.
	Foreground bool
}

// Defaults are the limits of a build without its own.
var Defaults = Limits{
	Memory: 1 << 30, Pids: 512, Disk: 4 << 30, Files: 1 << 20, Wall: 15 * time.Minute,
	Output: 10 << 20, NoFile: 4096, TmpSize: 256 << 20,
}

// Unlimited, as Disk and Files, disables counting, for trusted commands.
const Unlimited = 1 << 62

// A command that has written floodFactor times [Limits.Output] is killed.
const floodFactor = 16

// Reason says why a command was killed. The zero value means that it wasn't.
type Reason string

// Reasons, in words for logs.
const (
	NotKilled   Reason = ""
	Timeout     Reason = "timeout"
	DiskFull    Reason = "disk limit"
	StorageFull Reason = "storage limit"
	OutOfMemory Reason = "out of memory"
	Canceled    Reason = "canceled"
	LogFlood    Reason = "log flood"
)

// Usage is a command's resource usage. CPU and MaxMemory are exact with a cgroup; otherwise they are sampled ten times
// a second and lower bounds.
type Usage struct {
	CPU       time.Duration
	Memory    int64 // bytes, current; 0 after the end and without a cgroup
	MaxMemory int64 // bytes
	Disk      int64 // bytes at the last check; 0 if it ended before the first
	Wall      time.Duration
}

// Result says how a command ended.
type Result struct {
	ExitCode int         // as in a shell: 128+n after signal n, 127 if the program doesn't exist
	Signal   unix.Signal // derived from ExitCode; 0 if none
	OOM      bool        // the memory limit was hit; Killed is then OutOfMemory
	Killed   Reason
	Usage    Usage
}

// OK reports whether the command exited by itself with status 0.
func (r Result) OK() bool { return r.Killed == NotKilled && r.ExitCode == 0 }

func (r Result) String() string {
	switch {
	case r.Killed != NotKilled:
		return "killed: " + string(r.Killed)
	case r.Signal != 0:
		return fmt.Sprintf("ended by signal %s", unix.SignalName(r.Signal))
	default:
		return fmt.Sprintf("exit code %d", r.ExitCode)
	}
}

// group returns the limits that a cgroup enforces.
func (l Limits) group() cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, Pids: l.Pids, CPU: l.CPU, Foreground: l.Foreground}
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Memory, Defaults.Memory)
	def(&l.Pids, Defaults.Pids)
	def(&l.Disk, Defaults.Disk)
	def(&l.Files, Defaults.Files)
	def(&l.Output, Defaults.Output)
	def(&l.NoFile, Defaults.NoFile)
	if l.TmpSize <= 0 {
		l.TmpSize = min(Defaults.TmpSize, l.Memory/2)
	}
	if l.Wall <= 0 {
		l.Wall = Defaults.Wall
	}
	if l.CPU < 0 {
		l.CPU = 0
	}
	return l
}

// check validates the command and sets defaults.
func (c *Command) check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("check command: no program")
	}
	for _, argv := range c.Beside {
		if len(argv) == 0 || argv[0] == "" {
			return fmt.Errorf("check command: no program beside it")
		}
	}
	for _, s := range slices.Concat([]string{c.Dir}, c.Argv, c.Env, slices.Concat(c.Beside...)) {
		if strings.ContainsRune(s, 0) {
			return fmt.Errorf("check command: NUL in an argument or variable")
		}
	}
	for _, kv := range c.Env {
		if i := strings.IndexByte(kv, '='); i <= 0 {
			return fmt.Errorf("check command: a variable without a name or value")
		}
	}
	if c.Dir == "" {
		c.Dir = Root
	}
	if !path.IsAbs(c.Dir) {
		return fmt.Errorf("check command: directory %q is not absolute", c.Dir)
	}
	if c.GID == 0 {
		c.GID = c.UID
	}
	c.Limits = c.Limits.withDefaults()
	if c.alone {
		return nil
	}
	c.Binds = append([]Bind(nil), c.Binds...)
	for i, b := range c.Binds {
		if !path.IsAbs(b.Target) || path.Clean(b.Target) != b.Target || b.Target == "/" || within(
			b.Target,
			"/proc",
		) || within(b.Target, "/dev") {
			return fmt.Errorf("check command: bind target %q is not allowed", b.Target)
		}
		src, err := ours(b.Source, c.UID, c.GID)
		if err != nil {
			return err
		}
		c.Binds[i].Source = src
		if b.Layer == "" {
			continue
		}
		above, err := ours(filepath.Dir(b.Layer), c.UID, c.GID)
		if err != nil {
			return err
		}
		c.Binds[i].Layer = filepath.Join(above, filepath.Base(b.Layer))
		if b.Write || b.Stored || within(c.Binds[i].Layer, src) || unix.Geteuid() != 0 {
			return fmt.Errorf("check command: bind %s can't have a layer", b.Source)
		}
	}
	work, err := ours(c.Work, c.UID, c.GID)
	if err != nil {
		return err
	}
	c.Work = work
	for i, b := range c.Binds {
		if within(b.Source, work) || b.Layer != "" && within(b.Layer, work) || within(work, b.Source) && b.Write {
			return fmt.Errorf("check command: bind %s overlaps the work directory", b.Source)
		}
		for j, o := range c.Binds {
			if i != j && o.Write && b.Source != o.Source && within(b.Source, o.Source) {
				return fmt.Errorf("check command: bind %s lies inside the writable %s", b.Source, o.Source)
			}
		}
	}
	if c.System != "" {
		if c.System, err = ours(c.System, c.UID, c.GID); err != nil {
			return err
		}
	}
	if c.Network.Proxy != "" {
		if c.Network.Proxy, err = ours(c.Network.Proxy, c.UID, c.GID); err != nil {
			return err
		}
	}
	return nil
}

// within reports whether p is dir or below it. Both must be clean.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// ours resolves a host path. It refuses paths with a parent that another user could replace during the bind (as in
// CVE-2024-42472): every parent must belong to root or us, and be writable only for its owner unless it is sticky.
func ours(p string, uid, gid int) (string, error) {
	if !filepath.IsAbs(p) {
		return "", fmt.Errorf("check path: %q is not absolute", p)
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", fmt.Errorf("check path: %w", err)
	}
	me := uint32(unix.Geteuid())
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return "", fmt.Errorf("check path %s: %w", dir, err)
		}
		foreign := st.Uid != 0 && st.Uid != me
		tenant := me == 0 && uid != 0 && (st.Uid == uint32(uid) || st.Gid == uint32(gid) && st.Mode&0o020 != 0)
		loose := st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0
		if foreign || tenant || loose {
			return "", fmt.Errorf("check path: %s cannot be shown to a sandbox, because others can write to %s", real, dir)
		}
		if dir == "/" {
			return real, nil
		}
	}
}
