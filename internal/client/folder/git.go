package folder

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// Git runs git in a folder and returns what it prints; empty where it can't.
func Git(ctx context.Context, dir string, args ...string) string {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
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
