package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/platform/fault"
)

// historySuffix marks the cache that holds a site's commits without their files.
const historySuffix = moduleMark + "history"

// checkBranch returns a fault unless the request's commit is the branch's newest or an ancestor of it. Hosts serve
// every commit that they store, including those of forks. The shallow history usually contains the commit; if not,
// checkBranch fetches the branch's whole history, without files if the host supports that.
func (s *Fetcher) checkBranch(ctx context.Context, remote *remote, config [][2]string, r Request, g *generation) error {
	if err := s.getBranch(ctx, remote, config, r, g, s.shallow(r), "--no-tags"); err != nil {
		return err
	}
	on, err := s.leadsTo(ctx, g, r.Commit)
	if err != nil || on {
		return err
	}
	if _, err := os.Lstat(filepath.Join(g.git(), "shallow")); errors.Is(err, os.ErrNotExist) {
		return notOnBranch(r) // the history was complete
	}
	h := r
	h.Site += historySuffix
	unlock, err := s.lock(ctx, h.Site)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.generation(ctx, h.Site, r.Repository.String())
	if err != nil {
		return err
	}
	if err := all.begin(); err != nil {
		return err
	}
	if err := s.getBranch(ctx, remote, config, h, all, "--filter=tree:0", "--no-tags"); err != nil {
		return err // keep the note, so that the next check begins with an empty cache
	}
	all.settled()
	if on, err = s.leadsTo(ctx, all, r.Commit); err == nil && !on {
		err = notOnBranch(r)
	}
	return err
}

// leadsTo reports whether commit is the commit that was fetched last, or one of its ancestors.
func (s *Fetcher) leadsTo(ctx context.Context, g *generation, commit string) (bool, error) {
	// The first command prints the branch's commit, or the tag's own id. Listing commits doesn't fail for an unknown
	// one, as a lookup would.
	for _, list := range []string{"rev-parse", "rev-list"} {
		found := &lineFinder{want: commit}
		if _, err := s.run(ctx, command{args: []string{list, headRef}, site: g.site, gen: g, stdout: found}); err != nil {
			return false, fmt.Errorf("compare with branch: %w", err)
		}
		if found.found {
			return true, nil
		}
	}
	return false, nil
}

// lineFinder looks for a line in what is written to it. It buffers at most one line.
type lineFinder struct {
	want  string
	line  []byte
	found bool
}

func (f *lineFinder) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n':
			f.found = f.found || string(f.line) == f.want
			f.line = f.line[:0]
		case len(f.line) <= len(f.want): // a longer line can't match
			f.line = append(f.line, b)
		}
	}
	return len(p), nil
}

func notOnBranch(r Request) error {
	return fault.New(fault.Invalid, "commit_not_on_branch",
		fmt.Sprintf("Commit %.12s is not on the branch %s of %s", r.Commit, r.Branch, r.Repository),
		"a forced push may have removed it; deploy the branch's latest commit, or roll back to an earlier deployment").Got(r.Commit)
}
