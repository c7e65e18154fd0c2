package root

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/lease"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// Limits of one installation.
const (
	maxTime = 20 * time.Minute
	maxSize = 4 << 30 // bytes on disk
	maxLine = 64 << 10
	minDisk = 1500 << 20 // free bytes before one begins
)

// making is an installation under way.
type making struct {
	done    chan struct{}
	err     error // valid once done is closed
	percent atomic.Int32
}

// Why returns why no root can be made here, or "".
func (r *Roots) Why() string {
	if r.c.command != "" {
		return ""
	}
	return Why()
}

// Why returns why no root can be made on this machine, or "".
func Why() string {
	if os.Geteuid() != 0 {
		return "Slipway doesn't run as root, so it can't install tools itself"
	}
	for _, name := range []string{"mmdebstrap", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			return "mmdebstrap is not installed, so Slipway can't install tools itself (apt-get install mmdebstrap debian-archive-keyring)"
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return "Debian's keys are not installed, so Slipway can't install tools itself (apt-get install debian-archive-keyring)"
	}
	return ""
}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Install makes a root of a kind, also where an older one is there, and waits for it. It goes on when ctx ends, for the next
// caller. If Debian has no newer packages, the old root stays the only one.
func (r *Roots) Install(ctx context.Context, k Kind, say func(format string, args ...any)) error {
	if say == nil {
		say = func(string, ...any) {}
	}
	if why := r.Why(); why != "" {
		return fault.New(fault.Unavailable, "root_unavailable", k.Title+" is not installed on this server", why)
	}
	r.mu.Lock()
	m := r.making[k.Name]
	if m == nil {
		m = &making{done: make(chan struct{})}
		r.making[k.Name] = m
		asked := r.now()
		r.work.Go(func() {
			ctx, cancel := context.WithTimeout(r.ctx, maxTime)
			defer cancel()
			m.err = panics.Call(func() error { return r.once(ctx, k, asked, &m.percent) })
			if m.err != nil && r.ctx.Err() == nil {
				r.c.Log.ErrorContext(ctx, "root not installed", "root", k.Name, "err", m.err)
			}
			r.mu.Lock()
			delete(r.making, k.Name)
			r.mu.Unlock()
			close(m.done)
		})
	}
	r.mu.Unlock()
	say("Installing %s from %s", k.Title, k.Debian)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for said := int32(0); ; {
		select {
		case <-m.done:
			return m.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if p := m.percent.Load(); p >= said+20 {
				said = p
				say("Installing %s from %s… %d%%", k.Title, k.Debian, p)
			}
		}
	}
}

// once makes a root while no other process does. One that another process made since then is enough.
func (r *Roots) once(ctx context.Context, k Kind, asked time.Time, percent *atomic.Int32) error {
	return r.locks.Once(ctx, "make-"+k.Name, func(ctx context.Context) error {
		all, err := r.List()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(x Root) bool { return x.Name == k.Name && x.Made.After(asked) }) {
			return nil
		}
		begun := r.now()
		part := filepath.Join(r.c.Dir, "new", k.Name)
		if r.byUnit() {
			r.endUnit(k)
		}
		if err := os.RemoveAll(part); err != nil { // of a process that has died
			return fmt.Errorf("install %s: %w", k.Title, err)
		}
		defer func() {
			if err := os.RemoveAll(part); err != nil {
				r.c.Log.WarnContext(ctx, "unfinished root not removed", "root", k.Name, "err", err)
			}
		}()
		if err := disk.Spare(r.c.Dir, minDisk); err != nil {
			return err
		}
		err = r.fill(ctx, k, part, true, percent)
		if fault.As(err) != nil && k.Until < r.now().UTC().Format(time.DateOnly) {
			// Mirrors remove the updates of a release that gets none any more. The release itself stays.
			r.c.Log.WarnContext(ctx, "root is made without the release's past security updates", "root", k.Name, "err", err)
			err = errors.Join(os.RemoveAll(part), r.fill(ctx, k, part, false, percent))
		}
		if err != nil {
			return err
		}
		id, err := r.finish(ctx, k, part)
		if err != nil {
			return err
		}
		r.c.Log.InfoContext(ctx, "root installed", "root", id, "took", r.now().Sub(begun).Round(time.Second))
		return nil
	})
}

// CheckMirror returns an error unless a setting names a mirror or is empty.
func CheckMirror(text string) error {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(text, " []")) {
		return errors.New("give the URL of a mirror of Debian, such as https://deb.debian.org/debian")
	}
	return nil
}

// arguments returns mmdebstrap's. Everything in them is the catalogue's or the operator's.
func (r *Roots) arguments(k Kind, to string, updates bool) []string {
	mirror, safe := cmp.Or(r.c.Mirror, debian), security
	if r.c.Mirror != "" {
		safe = strings.TrimSuffix(r.c.Mirror, "/") + "-security"
	}
	list := []string{
		"--variant=essential", "--format=directory", "--mode=root", "--verbose", "--keyring=" + keyring,
		"--include=" + strings.Join(k.Packages, ","),
		`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Retries "2"`,
		`--aptopt=Acquire::http::Timeout "20"`, `--aptopt=Acquire::https::Timeout "20"`,
		"--dpkgopt=force-unsafe-io", // all of it is synced at the end
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		k.Suite, to,
		"deb " + mirror + " " + k.Suite + " main",
	}
	if updates {
		list = append(list, "deb "+safe+" "+k.Suite+"-security main")
	}
	return list
}

// fill has mmdebstrap write a root to part/tree, within limits of time and disk, with or without security updates.
func (r *Roots) fill(ctx context.Context, k Kind, part string, updates bool, percent *atomic.Int32) error {
	temporary := filepath.Join(part, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return fmt.Errorf("install %s: %w", k.Title, err)
	}
	// A pid namespace of its own: when unshare dies, or we do, all of it does, and its mounts with it.
	argv := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--"}
	argv = append(argv, cmp.Or(r.c.command, "mmdebstrap"))
	argv = append(argv, r.arguments(k, filepath.Join(part, treeName), updates)...)
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent", "TMPDIR=" + temporary}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := func() {}
	if r.byUnit() {
		argv, stop = r.asUnit(k, argv, env), func() { r.endUnit(k) }
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = env, "/", &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	var p progress
	p.percent = percent
	pipe, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	cmd.Stdout, cmd.Stderr = w, w
	runtime.LockOSThread() // the signal comes when the thread that forked ends
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("install %s: %w", k.Title, err)
	}
	ended := make(chan struct{})
	var watching panics.Group
	watching.Go(func() { p.read(pipe) })
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ctx.Done():
				stop()
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				return
			case <-tick.C:
				if sandbox.Size(part, maxSize) >= maxSize {
					cancel(fmt.Errorf("it takes more than %d GiB", maxSize>>30))
				}
			}
		}
	})
	err = cmd.Wait()
	close(ended)
	watching.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("install %s: %w", k.Title, context.Cause(ctx))
	case err != nil:
		r.c.Log.WarnContext(ctx, "mmdebstrap failed", "root", k.Name, "err", err, "output", strings.Join(p.last, "\n"))
		return fault.New(fault.Unavailable, "root_failed", fmt.Sprintf("%s could not be installed from %s", k.Title, k.Debian),
			p.why(cmp.Or(r.c.Mirror, debian)))
	}
	return nil
}

// mayInstall reports whether this process may do what packages need. Our unit forbids it: then systemd runs mmdebstrap.
func mayInstall() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_CHROOT) != 0 && data[0].Effective&(1<<unix.CAP_MKNOD) != 0
}

func (r *Roots) byUnit() bool { return r.c.byUnit || !mayInstall() }

// unit names the unit in which systemd makes a root of a kind in this directory.
func (r *Roots) unit(k Kind) string {
	sum := sha256.Sum256([]byte(r.c.Dir))
	return "slipway-root-" + k.Name + "-" + hex.EncodeToString(sum[:4]) + ".service"
}

// asUnit returns the command that has systemd run argv in a unit of its own. Values of variables for proxies, which may be secret,
// are in env alone.
func (r *Roots) asUnit(k Kind, argv, env []string) []string {
	command := []string{
		"systemd-run", "--quiet", "--wait", "--collect", "--pipe", "--unit=" + r.unit(k), "--property=RuntimeMaxSec=" +
			strconv.Itoa(int(maxTime/time.Second)), "--property=MemoryMax=2G", "--property=TasksMax=512",
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); strings.HasSuffix(strings.ToLower(name), "_proxy") {
			kv = name
		}
		command = append(command, "--setenv="+kv)
	}
	return append(append(command, "--"), argv...)
}

// endUnit kills what the unit of a kind runs, also that of a process that has died, and waits for its end.
func (r *Roots) endUnit(k Kind) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{{"kill", "--signal=SIGKILL"}, {"stop"}} { // both fail if there is no such unit
		_ = exec.CommandContext(ctx, "systemctl", append(args, r.unit(k))...).Run()
	}
}

// progress reads what mmdebstrap prints.
type progress struct {
	percent *atomic.Int32
	last    []string // the last lines, for the log
	inside  bool     // whether the packages of the kind are being installed, after those that every Debian has
	total   int      // of these packages
	done    int      // of their downloads, unpackings and configurations
}

// stages are what mmdebstrap says that it begins, and how much of the work is then done, in percent.
var stages = map[string]int32{
	"I: downloading packages": 5, "I: extracting archives": 20, "I: installing essential": 25, "I: installing remaining": 40,
}

var newPackages = lazyregexp.New(`^\d+ upgraded, (\d+) newly installed`)

func (p *progress) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, long, err := lines.ReadLine()
		if err != nil {
			return
		}
		if !long {
			p.line(strings.ToValidUTF8(string(line), "?"))
		}
	}
}

func (p *progress) line(text string) {
	if p.last = append(p.last, text); len(p.last) > 30 {
		p.last = p.last[1:]
	}
	for begin, percent := range stages {
		if strings.HasPrefix(text, begin) {
			p.percent.Store(percent)
			p.inside = percent == stages["I: installing remaining"]
		}
	}
	if !p.inside {
		return
	}
	if m := newPackages.FindStringSubmatch(text); m != nil {
		p.total, _ = strconv.Atoi(m[1])
	}
	for _, begin := range []string{"Get:", "Unpacking ", "Setting up "} {
		if strings.HasPrefix(text, begin) {
			p.done++
		}
	}
	if p.total > 0 {
		p.percent.Store(int32(40 + min(59, p.done*60/(3*p.total))))
	}
}

// unreachable matches apt's lines about a mirror that doesn't answer or refuses.
var unreachable = lazyregexp.New(
	`(?i)could not resolve|temporary failure resolving|could not connect|unable to connect|connection (?:timed out|failed|refused)|network is unreachable|\b40[0-9]\b`,
)

// why returns the likely cause of a failure and what to do.
func (p *progress) why(mirror string) string {
	for _, line := range p.last {
		switch {
		case strings.Contains(line, "No space left on device"):
			return "the disk is full: the operator can free space"
		case unreachable.MatchString(line):
			return fmt.Sprintf("Debian's mirror %s can't be reached (%.200s): "+
				"the operator can check the network or name another mirror with --debian-mirror", mirror, strings.TrimSpace(line))
		}
	}
	end := "no reason given"
	for _, line := range p.last {
		if text, ok := strings.CutPrefix(line, "E: "); ok {
			end = text
		}
	}
	return fmt.Sprintf("mmdebstrap failed (%.200s): the operator finds its output in the server's log", end)
}

// finish makes a root of part, tries it, and puts it into place.
func (r *Roots) finish(ctx context.Context, k Kind, part string) (id string, err error) {
	tree := filepath.Join(part, treeName)
	m := manifest{Kind: k.Name, Made: r.now().UTC()}
	if m.Versions, err = installed(filepath.Join(tree, "var/lib/dpkg/status")); err != nil {
		return "", fmt.Errorf("install %s: %w", k.Title, err)
	}
	id = k.Name + "-" + digest(k, m.Versions)
	if err := errors.Join(os.RemoveAll(filepath.Join(part, "tmp")), strip(tree)); err != nil {
		return "", fmt.Errorf("install %s: %w", k.Title, err)
	}
	if err := r.try(ctx, k, part, tree); err != nil {
		return "", fmt.Errorf("try %s: %w", k.Title, err)
	}
	m.Size = sandbox.Size(tree, maxSize)
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	file := filepath.Join(part, manifestName)
	if _, err := os.Lstat(r.kept(id)); err == nil { // of the same packages: only its date changes
		return id, disk.Write(filepath.Join(r.kept(id), manifestName), text, 0o600)
	}
	if err := disk.Write(file, text, 0o600); err != nil {
		return "", fmt.Errorf("install %s: %w", k.Title, err)
	}
	if err := errors.Join(disk.SyncAll(part), os.Rename(part, r.kept(id)), disk.Sync(filepath.Dir(r.kept(id)))); err != nil {
		return "", fmt.Errorf("install %s: %w", k.Title, err)
	}
	if err := r.Sweep(ctx); err != nil {
		r.c.Log.WarnContext(ctx, "old roots not removed", "err", err)
	}
	return id, nil
}

// installed reads dpkg's list of packages.
func installed(status string) (map[string]string, error) {
	f, err := os.Open(status)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]string{}
	name := ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "Package: "); ok {
			name = v
		} else if v, ok := strings.CutPrefix(lines.Text(), "Version: "); ok && name != "" {
			all[name] = v
		}
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		return nil, cmp.Or(err, errors.New("no package is installed"))
	}
	return all, nil
}

func digest(k Kind, versions map[string]string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", k.Suite, k.Packages)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(h, "%q %q\n", name, versions[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// strip removes what no sandbox shows, and the rights of programs that run as their owner.
func strip(tree string) error {
	entries, err := os.ReadDir(tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "usr" || name == "etc" || name == "bin" || name == "sbin" || strings.HasPrefix(name, "lib"):
		default:
			if err := os.RemoveAll(filepath.Join(tree, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"shadow", "shadow-", "gshadow", "gshadow-", "machine-id", "resolv.conf", "hostname"} {
		if err := os.RemoveAll(filepath.Join(tree, "etc", name)); err != nil {
			return err
		}
	}
	return filepath.WalkDir(tree, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() == fs.ModeSymlink {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case !e.IsDir() && !info.Mode().IsRegular():
			return os.Remove(p)
		case info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
			return os.Chmod(p, info.Mode().Perm())
		}
		return nil
	})
}

// try runs a root's command in a sandbox.
func (r *Roots) try(ctx context.Context, k Kind, part, tree string) error {
	work := filepath.Join(part, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := sandbox.Own(work, r.c.UID); err != nil {
		return err
	}
	var out bytes.Buffer
	res, err := r.c.Sandbox.Run(ctx, sandbox.Command{
		Argv: k.Try, System: tree, Work: work, UID: r.c.UID, Stdout: &out, Stderr: &out,
		Limits: sandbox.Limits{Wall: time.Minute, Disk: 64 << 20, Files: 1000, Output: 64 << 10},
	})
	if err != nil {
		return err
	}
	if !res.OK() {
		return fmt.Errorf("%s: %s: %.500s", k.Try[0], res, out.String())
	}
	return nil
}

// Sweep removes roots for which a newer one of the same kind is there and that nothing uses.
func (r *Roots) Sweep(ctx context.Context) error {
	all, err := r.List()
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Stale {
			if _, err := r.Remove(ctx, x.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes a root. It returns false if the root is in use.
func (r *Roots) Remove(ctx context.Context, id string) (bool, error) {
	f, err := r.locks.Try(id, true)
	if f == nil || err != nil {
		return false, err
	}
	defer lease.Unlock(f)
	gone := filepath.Join(r.c.Dir, "new", "removed-"+id) // under another name first: half a root must not look like one
	err = errors.Join(os.RemoveAll(gone), os.Rename(r.kept(id), gone), os.RemoveAll(gone))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove root %s: %w", id, err)
	}
	r.c.Log.InfoContext(ctx, "root removed", "root", id)
	return true, nil
}
