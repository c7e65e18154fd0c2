package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// harmless are settings of every git that is started here: what a repository brings, its own configuration too, runs no program. They
// outrank every file.
var harmless = []string{
	"safe.bareRepository=explicit", // a folder of the repository may look like a repository
	"core.fsmonitor=false",
	"core.hooksPath=/dev/null",
	"core.pager=cat",
	"core.sshCommand=false",
	"core.askPass=",
	"credential.helper=",
	"diff.external=",
	"gpg.program=false",
	"log.showSignature=false",
	"submodule.recurse=false",
	"protocol.allow=never",
}

// git returns a command of git in a folder. It reaches no other repository: an object that is missing isn't fetched.
func git(ctx context.Context, dir string, args ...string) *exec.Cmd {
	var all []string
	for _, s := range harmless {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(ctx, "git", append(all, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
	return cmd
}

// Git runs git in a folder and returns what it prints; empty where it can't.
func Git(ctx context.Context, dir string, args ...string) string {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	out, err := git(ctx, dir, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Dirty reports whether a work tree has changes that aren't committed. It says yes where a filter of the repository's would have to run
// to know. Git is started in no submodule.
func Dirty(ctx context.Context, dir string) bool {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	names, err := git(ctx, dir, "config", "-z", "--name-only", "--get-regexp", `^filter\.`).Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: there is none
		return true
	}
	cmd := git(ctx, dir, "status", "--porcelain", "--ignore-submodules=dirty")
	n := 0
	for name := range strings.SplitSeq(string(names), "\x00") {
		if at := strings.LastIndexByte(name, '.'); at > 0 {
			for _, key := range []string{"clean", "smudge", "process", "required"} { // in the environment, as names may have a =
				cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s.%s", n, name[:at], key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=", n))
				n++
			}
		}
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	out, err := cmd.Output()
	return err != nil || len(bytes.TrimSpace(out)) > 0
}

// Remotes returns the repositories that a work tree has as remotes.
func Remotes(ctx context.Context, dir string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(Git(ctx, dir, "remote", "-v")) {
		if f := strings.Fields(line); len(f) > 1 {
			found[Repository(f[1])] = true
		}
	}
	return found
}

// Repository writes a repository's address as host/owner/repo, in whichever form it is given.
func Repository(address string) string {
	address = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(address), "/"), ".git")
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	} else if host, path, ok := strings.Cut(address, ":"); ok { // git@host:owner/repo
		address = host + "/" + path
	}
	if i := strings.IndexByte(address, '@'); i >= 0 && i < strings.IndexByte(address+"/", '/') {
		address = address[i+1:]
	}
	return address
}
