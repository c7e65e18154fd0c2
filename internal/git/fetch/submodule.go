package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// Limits of submodules. Their files count toward the limits of the whole tree.
const (
	maxModules    = 50
	maxNestedness = 4
	maxModuleFile = 64 << 10 // bytes of .gitmodules
)

// moduleMark separates a site's id from the name of a submodule's cache.
const moduleMark = "_m_"

// submodules fetches the commit's submodules and adds their files to the tree. It doesn't use git's own submodule
// commands (CVE-2018-17456, CVE-2024-32002, CVE-2025-48384): each submodule is a request for the commit that the tree
// names, with the same checks of hosts and addresses. The site's credential is sent only if the host is the same.
func (s *Fetcher) submodules(ctx context.Context, r Request, t *Tree) error {
	left := maxModules
	return s.descend(ctx, r, t, t, "", 1, &left)
}

// descend adds the submodules of in, which is at prefix, to the tree all.
func (s *Fetcher) descend(ctx context.Context, r Request, all, in *Tree, prefix string, depth int, left *int) error {
	var links []File
	for _, f := range in.files {
		if f.Mode == ModeSubmodule && f.in == nil {
			links = append(links, f)
		}
	}
	if len(links) == 0 {
		return nil
	}
	text, err := in.ReadFile(ctx, ".gitmodules", maxModuleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an undeclared submodule: git ignores it, too
	}
	if err != nil {
		return err
	}
	urls := parseModules(string(text))
	for _, link := range links {
		url, declared := urls[link.Path]
		if !declared {
			continue
		}
		at := path.Join(prefix, link.Path)
		wrong := func(err error) error {
			f := fault.As(err)
			if f == nil {
				return fmt.Errorf("submodule %s: %w", at, err)
			}
			e := *f
			e.Message = fmt.Sprintf("Submodule %s can't be fetched: %s", strings.ToValidUTF8(at, "?"), f.Message)
			return &e
		}
		*left--
		if *left < 0 || depth > maxNestedness {
			return tooLarge(r, fmt.Sprintf("it has more than %d submodules, or they nest deeper than %d levels", maxModules, maxNestedness))
		}
		repo, err := resolveModule(in.repository, url)
		if err != nil {
			return wrong(err)
		}
		sub, err := s.module(ctx, r, repo, link.OID)
		if err != nil {
			return wrong(err)
		}
		all.subs = append(all.subs, module{at, sub})
		for _, name := range sub.Unfetched {
			all.Unfetched = append(all.Unfetched, path.Join(at, name))
		}
		if err := s.join(r, all, sub, at); err != nil {
			return err
		}
		if err := s.descend(ctx, r, all, sub, at, depth+1, left); err != nil {
			return err
		}
	}
	slices.SortFunc(all.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// module fetches one submodule. If its host is the site's own, it uses the site's credential, and tries without one if
// that fails, such as for a public theme beside a private site.
func (s *Fetcher) module(ctx context.Context, r Request, repo Repository, commit string) (*Tree, error) {
	sum := sha256.Sum256([]byte(repo.String()))
	m := Request{Site: r.Site + moduleMark + id.Site(hex.EncodeToString(sum[:8])), Repository: repo, Commit: commit, Owner: r.Owner}
	if c := r.Credential; c != nil && repo.host == r.Repository.host && !r.Untrusted {
		m.Credential = c
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx, m.Site)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t, err := s.fetch(ctx, m)
	if m.Credential != nil && (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Forbidden)) {
		m.Credential = nil
		var e error
		t, e = s.fetch(ctx, m)
		if e == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.lfs(ctx, m, t); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// join replaces a submodule's link by its files. It checks the limits before it builds the paths: they get longer by
// the path of the link, and the same submodule may be linked many times.
func (s *Fetcher) join(r Request, all, sub *Tree, at string) error {
	all.files = slices.DeleteFunc(all.files, func(f File) bool { return f.Path == at })
	var bytes, names int64
	for _, f := range all.files {
		bytes += f.Size
		names += int64(len(f.Path))
	}
	if len(all.files)+len(sub.files) > s.c.MaxFile {
		return tooLarge(r, fmt.Sprintf("with its submodules it has more than %d files", s.c.MaxFile))
	}
	deep := strings.Count(at, "/") + 1
	for _, f := range sub.files {
		if len(at)+1+len(f.Path) > maxPath || deep+strings.Count(f.Path, "/") >= maxDepth {
			return tooLarge(r, longPath())
		}
		bytes += f.Size
		if bytes > s.c.MaxSize {
			return tooLarge(r, "with its submodules its files are over the limit of "+text.Size(s.c.MaxSize))
		}
		names += int64(len(at) + 1 + len(f.Path))
		if names > maxNames {
			return tooLarge(r, "the paths of its files are over the limit of "+text.Size(maxNames))
		}
		f.Path, f.in = path.Join(at, f.Path), sub
		all.files = append(all.files, f)
	}
	return nil
}

// module is a submodule's commit and its path in the tree.
type module struct {
	at   string
	tree *Tree
}

// parseModules reads .gitmodules (git-config(1), as far as git itself writes it) and returns the URL of each path. If a
// path occurs twice, the last one counts.
func parseModules(text string) map[string]string {
	urls := map[string]string{}
	at, url := "", ""
	end := func() {
		if at != "" && url != "" {
			urls[path.Clean(at)] = url
		}
		at, url = "", ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			end()
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "path":
			at = value
		case "url":
			url = value
		}
	}
	end()
	return urls
}

// resolveModule turns a URL of .gitmodules into a repository. A relative URL is resolved against the repository that
// contains .gitmodules (gitsubmodules(7)).
func resolveModule(base Repository, url string) (Repository, error) {
	if strings.HasPrefix(url, "./") || strings.HasPrefix(url, "../") {
		to := path.Join(base.path, url)
		if strings.HasPrefix(to, "../") || to == ".." {
			return Repository{}, fault.New(fault.Invalid, "invalid_repository",
				"its relative address points outside the host", "")
		}
		url = base.host + "/" + to
	}
	return ParseRepository(url)
}

// checkoutModules writes the submodules into a working tree, where git left empty directories for them.
func (t *Tree) checkoutModules(ctx context.Context, dir string) error {
	for _, m := range t.subs {
		to := filepath.Join(dir, filepath.FromSlash(m.at))
		if real, err := filepath.EvalSymlinks(filepath.Dir(to)); err != nil || real != filepath.Dir(to) {
			return fmt.Errorf("check out submodule %s: a link stands in its way: %w", m.at, errors.Join(err, errCorrupt))
		}
		if err := m.tree.checkout(ctx, to, false); err != nil {
			return err
		}
	}
	return nil
}

// moduleSites lists the caches of a site's submodules.
func (s *Fetcher) moduleSites(site id.Site) []string {
	found, _ := filepath.Glob(s.path("sites", string(site)+moduleMark+"*"))
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

// forgetModules removes the caches of a site's submodules.
func (s *Fetcher) forgetModules(ctx context.Context, site id.Site) error {
	if strings.Contains(string(site), moduleMark) {
		return nil
	}
	for _, module := range s.moduleSites(site) {
		if err := s.Forget(ctx, id.Site(module)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
