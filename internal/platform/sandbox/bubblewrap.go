package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
	"slipway/internal/platform/sandbox/network"
	"slipway/internal/platform/sandbox/seccomp"
)

// Config configures a runner.
type Config struct {
	// Dir is an absolute path of a persistent directory of our own. It is created if missing.
	Dir string
	// Cgroup is the path, below each hierarchy's root, of the runs' groups. Optional: empty means /slipway/<name> for
	// root, and next to our own cgroup for a plain user with a cgroup delegated by systemd.
	Cgroup string
	// Bwrap is the path of bubblewrap 0.8 or newer. Optional: empty means from PATH.
	Bwrap string
	// Self is the path of the helper that runs in the sandbox and calls inside.Main. Optional: empty means the embedded
	// one or, if there is none, the running program.
	Self string
	Log  *slog.Logger // Optional.
}

// Bubblewrap is the Runner for untrusted commands.
type Bubblewrap struct {
	Config
	engine
	filter    []byte
	uncounted []byte // seccomp filter if no cgroup counts memory
	users     users
}

// New prepares a runner and starts nothing. A missing bubblewrap is only detected by Run, so that installing it
// suffices.
func New(c Config) (*Bubblewrap, error) {
	e, err := newEngine(&c)
	if err != nil {
		return nil, err
	}
	b := &Bubblewrap{Config: c, engine: e}
	if b.filter, err = seccomp.Filter(false); err == nil {
		b.uncounted, err = seccomp.Filter(true)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", err)
	}
	return b, nil
}

func newEngine(c *Config) (engine, error) {
	if !filepath.IsAbs(c.Dir) {
		return engine{}, fmt.Errorf("prepare sandbox: directory %q is not absolute", c.Dir)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return engine{}, fmt.Errorf("prepare sandbox: %w", err)
	}
	dir, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return engine{}, fmt.Errorf("prepare sandbox: %w", err)
	}
	c.Dir = dir
	if c.Self == "" {
		if c.Self, err = ownHelper(dir); err != nil {
			return engine{}, fmt.Errorf("prepare sandbox: %w", err)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	hs, err := cgroup.Hierarchies()
	if err != nil {
		return engine{}, fmt.Errorf("prepare sandbox: %w", err)
	}
	sum := sha256.Sum256([]byte(dir))
	name := hex.EncodeToString(sum[:6])
	return engine{name: name, parent: cmp.Or(c.Cgroup, place(name)), hs: hs, log: c.Log}, nil
}

// place returns the default path of our cgroups.
func place(name string) string {
	if unix.Geteuid() == 0 {
		return cgroup.Root + "/" + name
	}
	// A plain user may write only where systemd delegated: in the parent of our own cgroup, if DelegateSubgroup= moved
	// us one below. Elsewhere mkdir fails.
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && p != "/" {
			return filepath.Join(filepath.Dir(p), "slipway-"+name)
		}
	}
	return cgroup.Root + "/" + name
}

// etc is the content of a build's /etc: users, groups and names. The files are copied by descriptor, since a mount for
// each would take longer.
var etc = map[string]string{
	"passwd": "root:x:0:0:root:/:/usr/sbin/nologin\n" +
		"build:x:1000:1000:build:/build/.home:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	"group":         "root:x:0:\nbuild:x:1000:\nnogroup:x:65534:\n",
	"hosts":         "127.0.0.1 localhost build\n::1 localhost build\n",
	"resolv.conf":   "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// hostEtc lists files of the host's /etc that a build may read, and systemEtc those that belong to its programs.
var (
	hostEtc   = []string{"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/localtime"}
	systemEtc = []string{"/etc/ssl/openssl.cnf", "/etc/alternatives", "/etc/ld.so.cache", "/etc/mime.types"}
)

// errNoBwrap is the error shown to users.
func errNoBwrap() error {
	return fault.New(fault.Unavailable, "sandbox_unavailable",
		"Builds are refused because bubblewrap is not installed on this server",
		"The operator can install it (apt-get install bubblewrap) or allow builds without a sandbox with --insecure-builds")
}

func (b *Bubblewrap) bwrap() (string, error) {
	p, err := exec.LookPath(cmp.Or(b.Bwrap, "bwrap"))
	if err != nil {
		return "", errNoBwrap()
	}
	return filepath.Abs(p)
}

// Run runs c and returns once all its processes are proven dead.
func (b *Bubblewrap) Run(ctx context.Context, c Command) (Result, error) {
	if ctx.Err() != nil {
		return Result{Killed: reason(ctx)}, nil
	}
	program, err := b.bwrap()
	if err != nil {
		return Result{}, err
	}
	if err := c.check(); err != nil {
		return Result{}, err
	}
	if unix.Geteuid() == 0 && c.UID <= 0 {
		return Result{}, errors.New("run sandbox: refused to run as root: the command has no uid")
	}
	if err := home(c); err != nil {
		return Result{}, err
	}
	for _, bind := range c.Binds {
		if bind.Layer == "" {
			continue
		}
		if err := makeLayer(bind, c.UID, c.GID); err != nil {
			return Result{}, err
		}
	}
	r, err := b.begin(c)
	if err != nil {
		return Result{}, fmt.Errorf("run sandbox: %w", err)
	}
	defer r.close()
	if c.Limits.Disk < Unlimited {
		if r.tmp, err = b.makeTmp(r.id, c.UID, c.GID); err != nil {
			return Result{}, fmt.Errorf("run sandbox: %w", err)
		}
	}
	status, err := b.prepare(r, program)
	if err != nil {
		return Result{}, fmt.Errorf("run sandbox: %w", err)
	}
	defer status.Close()
	return r.finish(ctx, status)
}

// makeTmp makes the directory of a run's /tmp, which close deletes, and after a crash Reap.
func (b *Bubblewrap) makeTmp(id string, uid, gid int) (string, error) {
	dir := filepath.Join(b.Dir, tmpDir, id)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", fmt.Errorf("make /tmp: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make /tmp: %w", err)
	}
	err := os.Chmod(dir, 0o777|os.ModeSticky)
	if err == nil && unix.Geteuid() == 0 {
		err = os.Lchown(dir, uid, gid)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("make /tmp: %w", err)
	}
	return dir, nil
}

// tmpDir is the folder, in Config.Dir, of the directories of /tmp.
const tmpDir = "tmp"

// Reap also deletes what an earlier process left of /tmp.
func (b *Bubblewrap) Reap(ctx context.Context) error {
	if err := b.engine.Reap(ctx); err != nil {
		return err
	}
	if !filepath.IsAbs(b.Dir) {
		return errors.New("reap: no directory of our own")
	}
	if err := os.RemoveAll(filepath.Join(b.Dir, tmpDir)); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// home creates the directory for HOME and follows no links.
func home(c Command) error {
	root, err := os.OpenRoot(c.Work)
	if err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	defer root.Close()
	if err := root.Mkdir(".home", 0o700); errors.Is(err, os.ErrExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	if unix.Geteuid() == 0 && c.UID > 0 {
		if err := root.Lchown(".home", c.UID, c.GID); err != nil {
			return fmt.Errorf("make home: %w", err)
		}
	}
	return nil
}

// prepare writes bwrap's arguments. They, the seccomp program and the spec with the environment are passed by
// descriptor; bwrap's argv is the same for every run.
func (b *Bubblewrap) prepare(r *run, program string) (status *os.File, err error) {
	wish := r.spec(true)
	if r.c.Listener != nil {
		// Inherit the listener first, so that it is descriptor 3, where the command expects it and no earlier stage has
		// put anything.
		own, err := dup(r.c.Listener)
		if err != nil {
			return nil, err
		}
		r.launch.inherit(own)
		wish.Listener = true
	}
	gateFD, blockFD, infoFD, statusFD := 0, 0, 0, 0
	if r.gate, gateFD, err = r.pipe(true); err != nil {
		return nil, err
	}
	if r.hold, blockFD, err = r.pipe(true); err != nil {
		return nil, err
	}
	if r.info, infoFD, err = r.pipe(false); err != nil {
		return nil, err
	}
	if status, statusFD, err = r.pipe(false); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = status.Close()
		}
	}()
	rules := b.filter
	if r.group == nil || r.group.Memory == "" {
		rules = b.uncounted
	}
	program2, err := memfile("seccomp", rules)
	if err != nil {
		return nil, err
	}
	seccompFD := r.launch.inherit(program2)
	sockets, err := b.stageNetwork(r)
	if err != nil {
		return nil, err
	}
	wish.Sockets = sockets
	if r.c.Linked != nil {
		var h *network.Handover
		if network.MayEnter() {
			if h, err = handoverOf(&r.c); err != nil {
				return nil, err
			}
			wish.HandOut = true
		}
		link, end, err := network.NewLink(h)
		if err != nil {
			return nil, err
		}
		wish.Link = r.launch.inherit(end)
		r.link = &Link{Link: link}
	}
	if r.c.Terminal != nil {
		own, err := dup(r.c.Terminal)
		if err != nil {
			return nil, err
		}
		wish.Terminal = r.launch.inherit(own)
	}
	text, err := json.Marshal(wish)
	if err != nil {
		return nil, err
	}
	told, err := memfile("spec", text)
	if err != nil {
		return nil, err
	}
	specFD := r.launch.inherit(told)

	args, self, err := b.profile(r)
	if err != nil {
		return nil, err
	}
	args = append(args, "--seccomp", strconv.Itoa(seccompFD), "--json-status-fd", strconv.Itoa(infoFD), "--block-fd", strconv.Itoa(blockFD))
	r.text = []byte(strings.Join(args, "\x00") + "\x00")
	if len(r.text) > 48<<10 {
		// One write must fit the pipe: a truncated profile would be an incomplete sandbox.
		return nil, errors.New("too many binds")
	}
	r.launch.cmd = &exec.Cmd{
		Path: program,
		Args: []string{
			"bwrap",
			"--args",
			strconv.Itoa(gateFD),
			"--",
			inside.Self,
			inside.Name,
			b.name,
			strconv.Itoa(specFD),
			strconv.Itoa(statusFD),
		},
		Env: []string{"PATH=/usr/bin:/bin"},
		Dir: "/",
	}
	r.launch.cmd.SysProcAttr = drop(r.c)
	if len(sockets) > 0 {
		b.throughStage(r, self, sockets)
	}
	return status, nil
}

// drop gives up root before anything else runs: a sandbox made by root would map its user to the host's root.
func drop(c Command) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if unix.Geteuid() == 0 {
		a.Credential = &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID), Groups: []uint32{}}
	}
	return a
}

// profile returns bwrap's arguments, and the path at which the stage finds our binary.
func (b *Bubblewrap) profile(r *run) (args []string, self string, err error) {
	c, l := r.c, &r.launch
	self = l.show(b.Self)
	args = []string{
		"--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
		"--die-with-parent", "--new-session", "--hostname", "build", "--clearenv",
	}
	system := func(p string) string { return p } // where bwrap finds a path of the file system that the command sees
	if c.System != "" {
		system = func(p string) string { return l.show(filepath.Join(c.System, p)) }
	}
	args = append(args, "--ro-bind", system("/usr"), "/usr")
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if to, err := os.Readlink(filepath.Join(c.System, p)); err == nil {
			args = append(args, "--symlink", to, p)
		} else if st, err := os.Stat(filepath.Join(c.System, p)); err == nil && st.IsDir() {
			args = append(args, "--ro-bind", system(p), p)
		}
	}
	args = append(args, "--dir", "/etc")
	for name, text := range etc {
		f, err := memfile(name, []byte(text))
		if err != nil {
			return nil, "", err
		}
		args = append(args, "--perms", "0444", "--file", strconv.Itoa(l.inherit(f)), "/etc/"+name)
	}
	for _, p := range hostEtc {
		args = append(args, "--ro-bind-try", p, p)
	}
	for _, p := range systemEtc {
		if _, err := os.Stat(filepath.Join(c.System, p)); err == nil {
			args = append(args, "--ro-bind", system(p), p)
		}
	}
	size := strconv.FormatInt(c.Limits.TmpSize, 10)
	tmp := []string{"--size", size, "--perms", "1777", "--tmpfs", "/tmp"}
	if r.tmp != "" {
		tmp = []string{"--bind", l.show(r.tmp), "/tmp"}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	if at := l.terminals(); at != "" {
		args = append(args, "--dev-bind", at, "/dev/pts")
	}
	if r.group != nil {
		for at, dir := range r.group.Shown() {
			args = append(args, "--ro-bind", l.show(dir), at)
		}
	}
	args = append(args, tmp...)
	args = append(args,
		"--size", size, "--perms", "1777", "--tmpfs", "/dev/shm",
		"--dir", "/var", "--symlink", "../tmp", "/var/tmp",
		"--dir", "/run/slipway", "--ro-bind", self, inside.Self)
	if c.Network.Proxy != "" {
		args = append(args, "--share-net") // the stage's network, not the host's
		args = append(args, "--ro-bind", l.show(c.Network.Proxy), inside.Proxy)
	}
	args = append(args, "--bind", l.show(c.Work), Root)
	for _, bind := range c.Binds {
		how, at := "--ro-bind", ""
		if bind.Layer != "" {
			if at, err = b.showLayer(r, bind); err != nil {
				return nil, "", err
			}
		} else {
			at = l.show(bind.Source)
		}
		if bind.Write || bind.Layer != "" {
			how = "--bind"
		}
		args = append(args, how, at, bind.Target)
	}
	// What bwrap put there is in memory and writable for the build, so make it read-only last.
	return append(args, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"), self, nil
}

// spec returns the shim's instructions.
func (r *run) spec(walled bool) inside.Spec {
	c := r.c
	s := inside.Spec{Argv: c.Argv, Dir: c.Dir, Rlimits: []inside.Rlimit{
		// 1 instead of 0: a core_pattern that is a pipe ignores 0 and stops at exactly 1 (core(5)).
		{Resource: unix.RLIMIT_CORE, Max: 1},
		{Resource: unix.RLIMIT_NOFILE, Max: uint64(c.Limits.NoFile)},
		{Resource: unix.RLIMIT_FSIZE, Max: uint64(max(c.Limits.Disk, c.Limits.Stored))},
		{Resource: unix.RLIMIT_MEMLOCK, Max: 64 << 10},
		{Resource: unix.RLIMIT_MSGQUEUE, Max: 0},
	}}
	if walled {
		// Counted in the sandbox's own user namespace. Plain runs share the host's count.
		s.Rlimits = append(s.Rlimits, inside.Rlimit{Resource: unix.RLIMIT_NPROC, Max: uint64(c.Limits.Pids)})
		if c.Network.Proxy != "" {
			s.Proxy, s.Ports = inside.Proxy, c.Network.carried()
		}
		s.Forwards, s.Beside = c.Forwards, c.Beside
	}
	if r.group == nil || r.group.Memory == "" {
		// A limit per process on address space rather than memory; it only acts faster than the watch.
		s.Rlimits = append(s.Rlimits, inside.Rlimit{Resource: unix.RLIMIT_DATA, Max: 2 * uint64(c.Limits.Memory)})
	}
	s.Env = environment(c)
	return s
}

// environment returns the defaults overridden by the caller's values, each name once.
func environment(c Command) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + Root + "/.home", "LANG=C.UTF-8",
		"TMPDIR=/tmp", "USER=build", "LOGNAME=build", "SHELL=/bin/sh",
		"PWD=" + c.Dir, // as a shell sets it
	}
	env = append(env, c.Env...)
	at := map[string]int{}
	var once []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			once[i] = kv
			continue
		}
		at[name] = len(once)
		once = append(once, kv)
	}
	return once
}
