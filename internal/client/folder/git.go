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

// harmless lists settings for every git process: nothing in a repository, such as its configuration, may run a program.
// They override all configuration files.
var harmless = []string{
	"safe.bareRepository=explicit", // a folder in the repository may look like a bare repository
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

// git returns a git command for a folder. It doesn't fetch missing objects from other repositories.
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

// Git runs git in a folder and returns its output, or "" if it fails.
func Git(ctx context.Context, dir string, args ...string) string {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	out, err := git(ctx, dir, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Dirty reports whether a work tree has uncommitted changes. It returns true if only a filter of the repository could
// tell. It doesn't run git in submodules.
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
			for _, key := range []string{"clean", "smudge", "process", "required"} { // passed in the environment, since names may contain =
				cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s.%s", n, name[:at], key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=", n))
				n++
			}
		}
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	out, err := cmd.Output()
	return err != nil || len(bytes.TrimSpace(out)) > 0
}

// Remotes returns the repositories of a work tree's remotes.
func Remotes(ctx context.Context, dir string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(Git(ctx, dir, "remote", "-v")) {
		if f := strings.Fields(line); len(f) > 1 {
			found[Repository(f[1])] = true
		}
	}
	return found
}

// Repository normalizes a repository's address to host/owner/repo.
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
