package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hardening is the configuration of every git that we start. It stands in the
// environment, where it outranks every file.
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
	// Old and harmless: the zero-padded modes and odd dates of repositories from 2008.
	"fetch.fsck.zeroPaddedFilemode=ignore",
	"fetch.fsck.missingSpaceBeforeDate=ignore",
	"fetch.fsck.badTimezone=ignore",
	"fetch.fsck.missingEmail=ignore",
	"fetch.recurseSubmodules=false",
	"fetch.unpackLimit=1", // every fetch is one pack: easy to count, quick to throw away
	"fetch.writeCommitGraph=false",
	"submodule.recurse=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"pack.threads=2",
	"advice.detachedHead=false",
}

// command is one run of git.
type command struct {
	args   []string
	env    []string // beside the common ones
	config [][2]string
	dir    string // working directory; "" means the empty home
	stdin  io.Reader
	stdout io.Writer
	watch  string // repository whose packs may not outgrow MaxPack meanwhile; "" for none
}

// environment is all that a child sees.
func (s *Source) environment(c command) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + s.path("home"),
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + s.path("gitconfig"),
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_LFS_SKIP_SMUDGE=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_CEILING_DIRECTORIES=" + s.c.Dir,
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
	env = append(env, c.env...) // the last of a name wins
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

func (s *Source) command(ctx context.Context, c command) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.c.Git, c.args...)
	cmd.Env = s.environment(c)
	cmd.Dir = c.dir
	if cmd.Dir == "" {
		cmd.Dir = s.path("home")
	}
	cmd.Stdin, cmd.Stdout = c.stdin, c.stdout
	// A group of its own, so that the helpers die with git; and all die with us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run waits for git to end; stderr is what it complained of, at most 64 KiB.
func (s *Source) run(ctx context.Context, c command) (stderr string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := s.command(ctx, c)
	said := &limited{max: 64 << 10}
	cmd.Stderr = said
	if c.watch != "" {
		done := make(chan struct{})
		defer close(done)
		go func() { // ends with this call
			tick := time.NewTicker(500 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
					if size, _ := packs(c.watch); size > 2*s.c.MaxPack {
						cancel(errTooLarge)
					}
				}
			}
		}()
	}
	err = cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("git %s: %w", c.args[0], cause)
	} else if err != nil {
		err = fmt.Errorf("git %s: %w", c.args[0], err)
	}
	return said.String(), err
}

var errTooLarge = errors.New("pack too large")

// packs sums up the pack directory of a repository, half-written packs included.
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
