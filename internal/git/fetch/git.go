package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// hardening is the configuration of every git process. It is passed in the environment, which overrides all files.
var hardening = []string{
	"protocol.version=2",
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.symlinks=true",
	"core.protectHFS=true",
	"core.protectNTFS=true",
	"core.bigFileThreshold=32m", // larger blobs are streamed, not held in memory
	"core.deltaBaseCacheLimit=32m",
	"core.logAllRefUpdates=false",
	"credential.helper=",
	"http.followRedirects=false",
	"http.lowSpeedLimit=1000",
	"http.lowSpeedTime=30",
	"http.proxyAuthMethod=basic",
	"http.sslVersion=tlsv1.2",
	"transfer.fsckObjects=true",
	"transfer.bundleURI=false",
	"transfer.advertiseSID=false",
	// These two are harmless: zero-padded modes and odd dates occur in repositories from before 2008.
	"fetch.fsck.zeroPaddedFilemode=ignore",
	"fetch.fsck.missingSpaceBeforeDate=ignore",
	"fetch.fsck.badTimezone=ignore",
	"fetch.fsck.missingEmail=ignore",
	"fetch.recurseSubmodules=false",
	"fetch.unpackLimit=1", // one pack per fetch, so that packs count fetches
	"fetch.writeCommitGraph=false",
	"submodule.recurse=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"pack.threads=2",
	"advice.detachedHead=false",
}

// command is one run of git.
type command struct {
	args    []string
	env     []string // in addition to the common ones
	config  [][2]string
	dir     string // working directory; "" means the empty home
	stdin   io.Reader
	stdout  io.Writer   // nil for a pipe if piped, else discarded
	piped   bool        // child.out reads stdout
	site    id.Site     // runs under the site's uid; "" for a temporary one
	gen     *generation // the repository; nil for none
	show    []string    // additional directories that it may read
	lend    []string    // additional directories that it may write
	ours    bool        // runs under our own uid, to read files that only we may read
	several bool        // starts child processes, so the limits must apply to all of them together
	watch   bool        // end it if the repository outgrows MaxPack
}

// environment returns the whole environment of a command.
func (s *Fetcher) environment(c command) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + s.path("etc", "home"),
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + s.path("etc", "gitconfig"),
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_LFS_SKIP_SMUDGE=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_CEILING_DIRECTORIES=" + s.c.Dir,
	}
	if c.gen != nil {
		env = append(env, "GIT_DIR="+c.gen.git())
	} else {
		env = append(env, "GIT_DIR="+s.path("etc", "home")) // git needs a repository; this one is empty
	}
	n := 0
	pair := func(key, value string) {
		env = append(env, "GIT_CONFIG_KEY_"+strconv.Itoa(n)+"="+key, "GIT_CONFIG_VALUE_"+strconv.Itoa(n)+"="+value)
		n++
	}
	for _, kv := range hardening {
		key, value, _ := strings.Cut(kv, "=")
		pair(key, value)
	}
	if s.ca != "" {
		pair("http.sslCAInfo", s.ca)
	}
	for _, kv := range c.config {
		pair(kv[0], kv[1])
	}
	env = append(env, c.env...) // the last entry with a name wins
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

// child is a running git, within limits and, if possible, under its own uid.
type child struct {
	*exec.Cmd
	out    io.ReadCloser // its stdout, when piped
	stderr *limited
	helper *sandbox.Helper
	end    func()
	shown  [][2]string // pairs of our path and the path inside the sandbox
}

func (s *Fetcher) start(ctx context.Context, c command) (k *child, err error) {
	k = &child{stderr: &limited{max: 64 << 10}}
	program, err := exec.LookPath(s.c.Git)
	if err != nil {
		s.c.Log.WarnContext(ctx, "git is not installed", "err", err)
		return nil, fault.New(fault.Unavailable, "git_missing", "Git is not installed on this server",
			"install it (apt-get install git) and deploy again; uploads work without it")
	}
	uid, release, err := s.identity(c)
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", c.args[0], err)
	}
	k.helper, err = s.helpers.New(uid, sandbox.Limits{
		Memory: s.c.MaxMemory,
		Pids:   64,
		Disk:   s.c.MaxPack + 1<<20,
		Wall:   s.c.Timeout,
		NoFile: 1024,
	}, c.several)
	if err != nil {
		release()
		return nil, fmt.Errorf("git %s: %w", c.args[0], err)
	}
	k.end = func() {
		if err := k.helper.Close(); err != nil {
			s.c.Log.WarnContext(ctx, "git left processes or files behind", "err", err)
		}
		release()
	}
	for _, dir := range c.lend {
		if uid == 0 {
			break
		}
		if err := sandbox.Own(dir, uid); err != nil {
			k.end()
			return nil, fmt.Errorf("git %s: %w", c.args[0], err)
		}
	}
	show := slices.Concat([]string{s.path("etc")}, c.show, c.lend)
	if c.gen != nil {
		show = append(show, c.gen.git())
	}
	for _, dir := range show {
		if at := k.helper.Show(dir); at != dir {
			k.shown = append(k.shown, [2]string{dir, at})
		}
	}
	env, args := s.environment(c), slices.Clone(c.args)
	dir := cmp.Or(c.dir, s.path("etc", "home"))
	for _, p := range k.shown {
		for i := range env {
			env[i] = strings.ReplaceAll(env[i], p[0], p[1])
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], p[0], p[1])
		}
		dir = strings.ReplaceAll(dir, p[0], p[1])
	}
	k.Cmd = exec.CommandContext(ctx, program, args...)
	// PWD is set as a shell would set it. Only the child sees the directory, so it changes into it itself.
	k.Env, k.Dir, k.Stdin, k.Stdout, k.Stderr = append(env, "PWD="+dir), dir, c.stdin, c.stdout, k.stderr
	// The child has its own process group, so that its helpers are killed with it.
	k.Cancel = func() error { return syscall.Kill(-k.Process.Pid, syscall.SIGKILL) }
	k.WaitDelay = 5 * time.Second
	if c.piped {
		if k.out, err = k.StdoutPipe(); err != nil {
			k.end()
			return nil, fmt.Errorf("git %s: %w", c.args[0], err)
		}
	}
	if err := k.helper.Start(k.Cmd); err != nil {
		k.end()
		return nil, fmt.Errorf("git %s: %w", c.args[0], err)
	}
	return k, nil
}

// wait waits for the exit and tells running out of memory from other failures.
func (k *child) wait() error {
	err := k.Wait()
	if err != nil && (k.helper.OutOfMemory() || strings.Contains(k.stderr.String(), "ut of memory") ||
		strings.Contains(k.stderr.String(), "mmap failed")) {
		err = fmt.Errorf("%w: %w", errMemory, err)
	}
	k.end()
	return err
}

// said returns git's error output, with our paths in place of the sandbox's.
func (k *child) said() string {
	text := k.stderr.String()
	for _, p := range k.shown {
		text = strings.ReplaceAll(text, p[1], p[0])
	}
	return text
}

// While git writes, the disk's free space is checked at each interval, and the size of the packs less often.
const (
	lookAtDisk  = 20 * time.Millisecond
	lookAtPacks = 25
)

// run waits for git to end; stderr is its error output, at most 64 KiB.
func (s *Fetcher) run(ctx context.Context, c command) (stderr string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k, err := s.start(ctx, c)
	if err != nil {
		return "", err
	}
	if c.watch || len(c.lend) > 0 {
		done := make(chan struct{})
		defer close(done)
		// uncaught: reads sizes
		go func() { // ends when run returns
			tick := time.NewTicker(lookAtDisk)
			defer tick.Stop()
			for n := 1; ; n++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				if err := disk.Spare(s.c.Dir, 0); err != nil {
					cancel(err)
				}
				if c.watch && n%lookAtPacks == 0 {
					if size, _ := packs(c.gen.git()); size > 2*s.c.MaxPack {
						cancel(errTooLarge)
					}
				}
			}
		}()
	}
	err = k.wait()
	if err != nil && c.watch { // git was killed before it could remove its temporary pack
		left, _ := filepath.Glob(filepath.Join(c.gen.git(), "objects", "pack", "tmp_*"))
		for _, file := range left {
			_ = os.Remove(file)
		}
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("git %s: %w", c.args[0], cause)
	} else if err != nil {
		err = fmt.Errorf("git %s: %w", c.args[0], err)
	}
	return k.said(), err
}

// errMemory means that git reached its memory limit.
var errMemory = errors.New("git ran out of the memory that it may use")

var errTooLarge = errors.New("pack too large")

// packs returns the size and number of a repository's packs, including incomplete ones.
func packs(repository string) (size int64, n int) {
	filepath.WalkDir(filepath.Join(repository, "objects"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		if filepath.Ext(p) == ".pack" {
			n++
		}
		return nil
	})
	return size, n
}
