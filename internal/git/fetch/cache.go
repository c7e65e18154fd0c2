package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"slipway/internal/platform/id"
)

// maxPacks caps how many fetches go into a cache before it is replaced by a new one.
const maxPacks = 50

// site is the cache of one site. At most one generation is current; older ones stay until the last Tree that reads from
// them is closed.
type site struct {
	turn chan struct{} // holds one token; its holder may fetch
	wait int           // users of turn; guarded by Fetcher.mu
	cur  *generation   // guarded by turn
	read bool          // whether the directory was scanned; guarded by turn
	n    int           // number of the newest generation; guarded by turn
}

// generation is one bare repository, in the folder git. Our notes on it lie beside that folder, where git's uid can't
// write. While git may be writing, the file slipway-busy exists: if it exists at a start, the repository may be
// corrupt.
type generation struct {
	site  id.Site
	dir   string
	uid   int  // owner of the repository's files; 0 means not known; guarded by Fetcher.ids
	fresh bool // empty so far, so it can't be the cause of an error
	dead  bool // remove it with the last pin; guarded by Fetcher.mu
}

// lock waits for the site's turn.
func (s *Fetcher) lock(ctx context.Context, id id.Site) (unlock func(), err error) {
	st, done := s.enter(id)
	select {
	case <-st.turn:
		return func() { st.turn <- struct{}{}; done() }, nil
	case <-ctx.Done():
		done()
		return nil, fmt.Errorf("wait for another fetch of the site: %w", context.Cause(ctx))
	}
}

// tryLock takes the site's turn if it is free.
func (s *Fetcher) tryLock(id id.Site) (unlock func(), ok bool) {
	st, done := s.enter(id)
	select {
	case <-st.turn:
		return func() { st.turn <- struct{}{}; done() }, true
	default:
		done()
		return nil, false
	}
}

// enter returns the site's entry, which stays until done is called.
func (s *Fetcher) enter(id id.Site) (st *site, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st = s.sites[id]
	if st == nil {
		st = &site{turn: make(chan struct{}, 1)}
		st.turn <- struct{}{}
		s.sites[id] = st
	}
	st.wait++
	return st, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.wait--
		if st.wait == 0 && !st.read { // so the turn is free, too
			delete(s.sites, id)
		}
	}
}

func (s *Fetcher) site(id id.Site) *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sites[id]
}

// generation returns the site's current cache. It begins a new one if there is none, the last process died while
// writing to it, it has grown too large, or it belongs to another repository.
func (s *Fetcher) generation(ctx context.Context, id id.Site, repository string) (*generation, error) {
	st := s.site(id)
	if !st.read {
		dir, err := s.latest(string(id))
		if err != nil {
			return nil, err
		}
		if dir != "" {
			st.cur = &generation{site: id, dir: dir}
			st.n, _ = strconv.Atoi(filepath.Base(dir))
		}
		st.read = true
	}
	if g := st.cur; g != nil {
		size, n := packs(g.git())
		_, there := os.Lstat(filepath.Join(g.git(), "HEAD"))
		owner, err := os.ReadFile(filepath.Join(g.dir, "slipway-repository"))
		if err == nil && there == nil && string(owner) == repository && n <= maxPacks && size <= s.c.MaxPack && !g.busy() {
			g.fresh = false
			return g, nil
		}
	}
	return s.renew(ctx, id, repository)
}

// latest finds the generation that an earlier process left, and removes older ones.
func (s *Fetcher) latest(id string) (string, error) {
	entries, err := os.ReadDir(s.path("sites", id))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read cache: %w", err)
	}
	best := 0
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > best {
			best = n
		}
	}
	for _, e := range entries {
		if e.Name() != strconv.Itoa(best) {
			os.RemoveAll(s.path("sites", id, e.Name()))
		}
	}
	if best == 0 {
		return "", nil
	}
	return s.path("sites", id, strconv.Itoa(best)), nil
}

// renew retires the current generation and begins the next one.
func (s *Fetcher) renew(_ context.Context, id id.Site, repository string) (*generation, error) {
	st := s.site(id)
	if st.cur != nil {
		if err := s.retire(st.cur); err != nil {
			return nil, fmt.Errorf("remove cache: %w", err)
		}
		st.cur = nil
	}
	st.n++ // never reuse a number: an old Tree may still read from its directory
	g := &generation{site: id, dir: s.path("sites", string(id), strconv.Itoa(st.n)), fresh: true}
	if err := os.RemoveAll(g.dir); err != nil {
		return nil, fmt.Errorf("clear cache: %w", err)
	}
	// This is what `git init --bare` makes, without the process and the templates.
	for _, d := range []string{"objects/info", "objects/pack", "refs/heads", "refs/slipway"} {
		if err := os.MkdirAll(filepath.Join(g.git(), d), 0o700); err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
	}
	for name, text := range map[string]string{
		"git/HEAD":           "ref: refs/heads/none\n",
		"git/config":         "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
		"slipway-repository": repository,
	} {
		// unsynced: a cache: one that Git can't read is fetched again
		if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
	}
	st.cur = g
	return g, nil
}

// retire removes a generation now, or when its last reader is done.
func (s *Fetcher) retire(g *generation) error {
	s.mu.Lock()
	g.dead = true
	busy := s.pins[g.dir] > 0
	s.mu.Unlock()
	if busy {
		return nil
	}
	return os.RemoveAll(g.dir)
}

func (s *Fetcher) pin(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[g.dir]++
}

func (s *Fetcher) unpin(g *generation) error {
	s.mu.Lock()
	s.pins[g.dir]--
	if s.pins[g.dir] == 0 {
		delete(s.pins, g.dir)
	}
	gone := g.dead && s.pins[g.dir] == 0
	s.mu.Unlock()
	if !gone {
		return nil
	}
	err := os.RemoveAll(g.dir)
	os.Remove(filepath.Dir(g.dir)) // the site's folder, if this was the last generation in it
	return err
}

func (s *Fetcher) pinned(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pins[dir] > 0
}

// forget removes all generations of a site except those that are being read.
func (s *Fetcher) forget(id id.Site) error {
	st := s.site(id)
	if st.cur != nil {
		if err := s.retire(st.cur); err != nil {
			return err
		}
		st.cur = nil
	}
	entries, err := os.ReadDir(s.path("sites", string(id)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := s.path("sites", string(id), e.Name())
		if s.pinned(dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	os.Remove(s.path("sites", string(id))) // stays while a Tree is open
	return nil
}

// git returns the directory of the bare repository.
func (g *generation) git() string { return filepath.Join(g.dir, "git") }

// begin notes that git is about to write. The note survives a kill, of git or of us.
func (g *generation) begin() error {
	// unsynced: its name counts, and that survives a kill
	if err := os.WriteFile(filepath.Join(g.dir, "slipway-busy"), nil, 0o600); err != nil {
		return fmt.Errorf("mark cache: %w", err)
	}
	return nil
}

func (g *generation) settled() { os.Remove(filepath.Join(g.dir, "slipway-busy")) }

func (g *generation) busy() bool {
	_, err := os.Lstat(filepath.Join(g.dir, "slipway-busy"))
	return err == nil
}
