package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/inside"
)

// markVar identifies the processes of a plain run in their environment.
const markVar = "SLIPWAY_SANDBOX"

// Plain is the Runner without isolation, for tests and --insecure-builds. A command sees the whole host and its network
// with the rights of its uid (ours, unless we are root). It still has its cgroup's limits and the watch over disk, time
// and output, and its processes are killed at the end. Without a cgroup, a process that hides its environment may keep
// running.
type Plain struct {
	Config
	engine

	// Alone says that no other users share the machine, as in a container: paths aren't checked for what others could
	// replace. Optional.
	Alone bool
}

// NewPlain prepares a plain runner. It ignores [Config.Bwrap].
func NewPlain(c Config) (*Plain, error) {
	if c.Self == "" && len(helperProgram) == 0 {
		// With this path, the site's uid needn't be able to reach our binary's directory.
		c.Self = "/proc/self/exe"
	}
	e, err := newEngine(&c)
	if err != nil {
		return nil, err
	}
	return &Plain{Config: c, engine: e}, nil
}

// ShowsBinds reports whether commands see the binds in [Command.Binds]: Plain doesn't show them.
func (p *Plain) ShowsBinds() bool { return false }

// Run runs c on the host, with /sys hidden if we are root. Paths below Root in Dir, and at the start of values in Env,
// are replaced by Work's path. It ignores Binds and Network.
func (p *Plain) Run(ctx context.Context, c Command) (Result, error) {
	if ctx.Err() != nil {
		return Result{Killed: reason(ctx)}, nil
	}
	c.alone = p.Alone
	if err := c.check(); err != nil {
		return Result{}, err
	}
	if len(c.Beside) > 0 {
		return Result{}, errors.New("run plain: refused to run a command beside another: nothing would end it")
	}
	if c.System != "" {
		return Result{}, errors.New("run plain: refused to run a command with another system: it would see the host's")
	}
	if slices.ContainsFunc(c.Binds, func(b Bind) bool { return b.Layer != "" }) {
		return Result{}, errors.New("run plain: refused to run a command with a layer: it would write to the files themselves")
	}
	if c.Guard != nil {
		return Result{}, errors.New("run plain: refused to run a command with a guard: it has no pid 1")
	}
	if unix.Geteuid() == 0 && c.UID <= 0 {
		return Result{}, errors.New("run plain: refused to run as root: the command has no uid")
	}
	if err := home(c); err != nil {
		return Result{}, err
	}
	r, err := p.begin(c)
	if err != nil {
		return Result{}, fmt.Errorf("run plain: %w", err)
	}
	defer r.close()
	gate, specFD, err := r.pipe(true)
	if err != nil {
		return Result{}, err
	}
	r.gate = gate
	status, statusFD, err := r.pipe(false)
	if err != nil {
		return Result{}, err
	}
	defer status.Close()

	mark := p.name + "/" + r.id
	s := r.spec(false)
	// Use the stage, so that the site's uid needs no access to our directories.
	work := c.Work
	if unix.Geteuid() == 0 && launcher().stage == nil {
		work = r.launch.show(c.Work)
	}
	self := p.Self
	if len(r.launch.binds) > 0 && within(self, p.Dir) {
		self = r.launch.show(self)
	}
	s.Dir = outside(s.Dir, work)
	for i, kv := range s.Env {
		name, value, _ := strings.Cut(kv, "=")
		s.Env[i] = name + "=" + outside(value, work)
	}
	s.Env = append(s.Env, markVar+"="+mark)
	if r.text, err = json.Marshal(s); err != nil {
		return Result{}, fmt.Errorf("run plain: %w", err)
	}
	r.launch.cmd = &exec.Cmd{
		Path: self, Env: []string{markVar + "=" + mark}, Dir: "/", SysProcAttr: drop(c),
		Args: []string{filepath.Base(self), inside.Name, p.name, strconv.Itoa(specFD), strconv.Itoa(statusFD)},
	}
	r.sweep = func(deadline time.Time) error { return sweep(markVar+"="+mark, false, deadline) }
	return r.finish(ctx, status)
}

// outside returns the host path of a path below Root.
func outside(p, work string) string {
	if within(p, Root) {
		return work + strings.TrimPrefix(p, Root)
	}
	return p
}

// sweep repeatedly kills processes whose environment contains mark (or, with prefix, a variable that starts with it)
// until none is found.
func sweep(mark string, prefix bool, deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		found := 0
		for pid := range processes() {
			env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if err != nil || pid == os.Getpid() {
				continue
			}
			if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool {
				return string(kv) == mark || prefix && bytes.HasPrefix(kv, []byte(mark))
			}) {
				found++
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if found == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill plain run: %d processes are still there", found)
		}
		time.Sleep(pause)
	}
}
