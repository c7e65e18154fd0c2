// Package sandbox owns running an untrusted command inside limits.
//
// On a proper host a command runs under its site's own uid, in its own user, pid,
// mount, network, IPC, UTS and cgroup namespaces made by bubblewrap, without any
// capability, behind a seccomp filter and inside a cgroup; its only way out is a
// unix socket of our CONNECT proxy. When Run returns, whatever the reason, every
// process of the command is dead and proven so: the pid namespace has ended and
// the cgroup is empty. Only then may its files be collected. As a plain user the
// same holds with what is possible; Probe says what is missing. Plain is the
// operator's explicit choice to run without walls.
//
// The package never starts a shell, never puts an environment value or a path of
// the host into anybody's argv, and never binds a directory that a tenant could swap.
//
// It is for Linux only: one kernel, hardened. It is not a virtual machine.
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

// Runner runs one command to its end. *Bubblewrap and *Plain are the two there are.
// Run returns an error only when the command could not be run or its death could
// not be proven; a command that fails, or is killed by a limit, is a Result.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Root is where Command.Work appears inside the sandbox.
const Root = inside.Root

// Command holds what to run, where and within what limits.
type Command struct {
	// Argv is the program and its arguments. It is visible in the host's process
	// list, so it never holds a secret. A name without a slash is looked up in the
	// PATH of Env.
	Argv []string
	// Dir is the working directory inside the sandbox. Optional: empty means Root.
	Dir string
	// Env is a list of KEY=value; the last of a key wins over earlier ones and over
	// the sandbox's own defaults (PATH, HOME, LANG, TMPDIR). It travels through a
	// file descriptor, never through an argv.
	Env []string
	// Work is the host directory, absolute, that appears read-write at Root. It must
	// belong to UID (see Own), and a .home is made in it for HOME.
	Work string
	// Binds are further directories and files that appear inside. Optional.
	Binds []Bind
	// UID and GID are the site's own host ids. Required when we are root; ignored
	// when we are not. GID 0 means the same number as UID.
	UID, GID int
	// Network is the way out. The zero value is none: only the loopback of its own.
	Network Network
	// Forwards are ports of the sandbox's own loopback that lead to sockets inside: the port to the socket's
	// path, which is the target of a bind. Optional.
	Forwards map[int]string
	Limits   Limits
	// Linked is told how to reach into the sandbox, before the command runs; nil needs no
	// way in. It must not block.
	Linked func(*Link)
	// Guard is told the sandbox's pid 1 before the command runs. Optional; Plain refuses it.
	Guard Guard
	// Beside are commands that run in the same sandbox, started just before Argv with its
	// variables, in Root. None is waited for: one that can't be started, or ends, is told on
	// Stderr by whoever started it and changes nothing else. They end with Argv. Optional; Plain
	// refuses them.
	Beside [][]string
	// Listener is a listening socket that the command inherits as descriptor 3; nil is none.
	// It is the caller's, who may close it once Linked was called or Run has returned.
	Listener *os.File
	// Terminal is the command's end of a pseudo-terminal. The command leads a session of its own
	// whose controlling terminal it is, and reads and writes nothing else: Stdout and Stderr hear
	// only why it could not begin. Nil is none. It is the caller's, as Listener is.
	Terminal *os.File
	// Stdout and Stderr receive the output; nil discards it. They are never called
	// at the same time. A Write that blocks holds the command back, and Run with it.
	// One writer for both (comparable with ==) gets everything in the order in which it
	// was written; between two the order is lost.
	Stdout, Stderr io.Writer

	alone bool // see Plain
}

// Guard may end a sandbox from outside.
type Guard interface {
	// Hold takes a pidfd of a sandbox's pid 1, whose death is that of all in it. An error keeps the command from running.
	Hold(init int) error
}

// Bind shows one host path inside the sandbox.
type Bind struct {
	Source string // absolute host path of a directory, file or socket, made by us
	Target string // absolute path inside
	Write  bool   // read-write; growth counts against Limits.Disk
	Stored bool   // what it holds counts against Limits.Stored instead
}

// Network says how a command reaches the outside.
type Network struct {
	// Proxy is the host path of the unix socket on which our CONNECT proxy listens.
	// The socket must be writable for UID; its directory may be closed to all. Inside,
	// every name that it resolves resolves, and ports 80 and 443 lead through it.
	Proxy string
	// Ports lead through it too, beside 80 and 443. Optional.
	Ports []uint16
}

// carried are the ports that are carried to the proxy.
func (n Network) carried() []uint16 {
	ports := []uint16{80, 443}
	for _, p := range n.Ports {
		if p != 53 && !slices.Contains(ports, p) { // 53 is the resolver's
			ports = append(ports, p)
		}
	}
	return ports
}

// Limits bound a command. Zero fields take the value of Defaults.
type Limits struct {
	Memory  int64         // bytes, swap included: swap is never used
	Pids    int64         // processes and threads
	CPU     float64       // cores; 0 means no quota, only a lower share
	Disk    int64         // bytes on disk in Work plus growth of the writable binds
	Stored  int64         // bytes on disk in the binds that are Stored; 0 means no limit
	Files   int64         // files and directories in the same places, and in Work
	Wall    time.Duration // from start to the kill
	Output  int64         // bytes of Stdout and Stderr together; the rest is dropped after a marker line
	NoFile  int64         // open files per process
	TmpSize int64         // bytes of /tmp, which lives in memory
	// Foreground is for what visitors wait for: where processors are busy it gets twice what
	// others get, builds say.
	Foreground bool
}

// Defaults are the limits of a build that nobody configured.
var Defaults = Limits{
	Memory: 1 << 30, Pids: 512, Disk: 4 << 30, Files: 1 << 20, Wall: 15 * time.Minute,
	Output: 10 << 20, NoFile: 4096, TmpSize: 256 << 20,
}

// Unlimited as Disk and Files means that nobody counts: for what the operator trusts.
const Unlimited = 1 << 62

// floodFactor times Limits.Output is where a command that still writes is killed.
const floodFactor = 16

// Reason says why a command was killed. The zero value is "it was not".
type Reason string

// The reasons, in the words that a log may show.
const (
	NotKilled   Reason = ""
	Timeout     Reason = "timeout"
	DiskFull    Reason = "disk limit"
	StorageFull Reason = "storage limit"
	OutOfMemory Reason = "out of memory"
	Canceled    Reason = "canceled"
	LogFlood    Reason = "log flood"
)

// Usage holds what a command consumed. CPU and MaxMemory are exact where there is a
// cgroup, else sampled ten times a second and a lower bound.
type Usage struct {
	CPU       time.Duration
	Memory    int64 // bytes, now; 0 once it has ended, and where there is no cgroup
	MaxMemory int64 // bytes
	Disk      int64 // bytes at the last look; 0 when it ended before the first
	Wall      time.Duration
}

// Result is how a command ended.
type Result struct {
	ExitCode int         // as a shell would say it: 128+n after signal n, 127 when the program is not there
	Signal   unix.Signal // the signal read out of ExitCode; 0 for none
	OOM      bool        // the memory limit was hit; Killed is then OutOfMemory
	Killed   Reason
	Usage    Usage
}

// OK reports whether the command ended by itself and with success.
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

// group returns what of the limits a cgroup holds.
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

// check refuses what a caller must not ask for and fills in the defaults.
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
	}
	work, err := ours(c.Work, c.UID, c.GID)
	if err != nil {
		return err
	}
	c.Work = work
	for i, b := range c.Binds {
		if within(b.Source, work) || within(work, b.Source) && b.Write {
			return fmt.Errorf("check command: bind %s overlaps the work directory", b.Source)
		}
		for j, o := range c.Binds {
			if i != j && o.Write && b.Source != o.Source && within(b.Source, o.Source) {
				return fmt.Errorf("check command: bind %s lies inside the writable %s", b.Source, o.Source)
			}
		}
	}
	if c.Network.Proxy != "" {
		if c.Network.Proxy, err = ours(c.Network.Proxy, c.UID, c.GID); err != nil {
			return err
		}
	}
	return nil
}

// within reports whether p is dir or lies below it; both are clean.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// ours resolves a host path and refuses one whose parents somebody else could swap
// while we bind it (the class of CVE-2024-42472): every parent must belong to root
// or to us, and be writable for nobody else unless it is sticky.
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
