// Package root owns roots: read-only Debian file systems that builds and programs have in place of the host's programs and
// libraries.
//
// A root is made on this machine by mmdebstrap from Debian's signed packages, tried in a sandbox, and renamed into place when
// all of it is on disk, so that an interrupted installation leaves nothing. What is made comes from the Catalogue alone. Callers
// that need the same root wait for one installation, those of other processes too, and a root that is in use isn't removed.
package root

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/lease"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// Config says where roots are kept and from where they are made.
type Config struct {
	Dir     string         // absolute, ours, lasting; made if missing
	Sandbox sandbox.Runner // tries roots. Plain can't use them.
	UID     int            // of trials: no site may have it
	Mirror  string         // of Debian. Optional: empty means Debian's own.
	Log     *slog.Logger   // Optional.

	command string // in place of mmdebstrap, for tests
	byUnit  bool   // systemd runs it in any case, for tests
}

// Debian's own mirrors.
const (
	debian   = "http://deb.debian.org/debian"
	security = "http://deb.debian.org/debian-security"
)

// Roots keeps roots. It is safe for concurrent use, and several processes may share a Dir.
type Roots struct {
	c     Config
	locks *lease.Locks
	now   func() time.Time

	ctx  context.Context // of installations, which outlive the callers that wait for them
	stop context.CancelFunc
	work panics.Background

	mu sync.Mutex // guards making
	// share: total the kinds of the catalogue; owner what others leave; edge callers that need the same root wait for it
	making map[string]*making
}

// Root is one that is there.
type Root struct {
	Kind
	ID       string // the kind's name and a digest of its packages and their versions
	Made     time.Time
	Size     int64             // bytes on disk
	Versions map[string]string // of its packages, by name
	Used     time.Time         // when a build or program took it last
	Stale    bool              // a newer root of its kind is there
}

// manifest is the content of root.json.
type manifest struct {
	Kind     string
	Made     time.Time
	Size     int64
	Versions map[string]string
}

// New prepares roots and starts nothing.
func New(c Config) (*Roots, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("prepare roots: directory %q is not absolute", c.Dir)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	for _, d := range []string{"", "kept", "new", "lock"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("prepare roots: %w", err)
		}
	}
	dir, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("prepare roots: %w", err)
	}
	c.Dir = dir
	r := &Roots{c: c, locks: lease.New(filepath.Join(dir, "lock")), now: time.Now, making: map[string]*making{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// Close ends installations and waits until their processes are dead.
func (r *Roots) Close() {
	r.stop()
	r.work.Wait()
}

// Run replaces roots by ones with security updates while they are used, and removes old ones, until ctx ends. Then it closes.
func (r *Roots) Run(ctx context.Context) error {
	defer r.Close()
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := r.update(ctx); err != nil && ctx.Err() == nil {
			r.c.Log.WarnContext(ctx, "roots not updated", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// A root is updated when it is so old, unless none of its kind is in use or was for so long.
const (
	maxAge  = 7 * 24 * time.Hour
	maxIdle = 30 * 24 * time.Hour
)

func (r *Roots) update(ctx context.Context) error {
	all, err := r.List()
	if err != nil {
		return err
	}
	used := map[string]bool{} // kinds of which programs may still have an older root
	for _, x := range all {
		if !used[x.Name] && (r.now().Sub(x.Used) <= maxIdle || r.inUse(x.ID)) {
			used[x.Name] = true
		}
	}
	today := r.now().UTC().Format(time.DateOnly)
	var failed error
	for _, x := range all {
		_, known := Named(x.Name)
		if !known || x.Stale || r.now().Sub(x.Made) < maxAge || !used[x.Name] || x.Until < today { // there are no updates after Until
			continue
		}
		failed = errors.Join(failed, r.Install(ctx, x.Kind, nil))
	}
	return errors.Join(failed, r.Sweep(ctx))
}

// inUse reports whether a build or program has a root.
func (r *Roots) inUse(id string) bool {
	if _, err := os.Lstat(r.locks.Path(id)); err != nil { // Try would make it, and List would call the root used now
		return false
	}
	f, err := r.locks.Try(id, true)
	if f != nil {
		lease.Unlock(f)
	}
	return f == nil && err == nil
}

func (r *Roots) kept(id string) string { return filepath.Join(r.c.Dir, "kept", id) }

const (
	treeName     = "tree"
	manifestName = "root.json"
	maxManifest  = 4 << 20
)

// Look returns the roots in a directory, as List does, and makes nothing there.
func Look(dir string) ([]Root, error) {
	return (&Roots{c: Config{Dir: dir}, locks: lease.New(filepath.Join(dir, "lock"))}).List()
}

// List returns the roots that are there, by the order of the catalogue and the newest of a kind first.
func (r *Roots) List() ([]Root, error) {
	entries, err := os.ReadDir(filepath.Join(r.c.Dir, "kept"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list roots: %w", err)
	}
	var all []Root
	for _, e := range entries {
		one, err := r.read(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	place := func(x Root) int { return slices.IndexFunc(Catalogue, func(k Kind) bool { return k.Name == x.Name }) }
	slices.SortFunc(all, func(a, b Root) int { return cmp.Or(cmp.Compare(place(a), place(b)), b.Made.Compare(a.Made)) })
	for i := range all {
		all[i].Stale = i > 0 && all[i-1].Name == all[i].Name
	}
	return all, nil
}

func (r *Roots) read(id string) (Root, error) {
	text, err := os.ReadFile(filepath.Join(r.kept(id), manifestName))
	if err != nil {
		return Root{}, fmt.Errorf("read root %s: %w", id, err)
	}
	var m manifest
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&m); err != nil || len(text) > maxManifest {
		return Root{}, fmt.Errorf("read root %s: %w", id, cmp.Or(err, errors.New("it is too long")))
	}
	k, ok := Named(m.Kind)
	if !ok { // of an earlier or later version of ours
		k = Kind{Name: m.Kind, Title: m.Kind}
	}
	x := Root{Kind: k, ID: id, Made: m.Made, Size: m.Size, Versions: m.Versions}
	if st, err := os.Stat(r.locks.Path(id)); err == nil {
		x.Used = st.ModTime()
	}
	return x, nil
}

// Lease is a root in use.
type Lease struct {
	Root

	tree string
	once sync.Once
	file *os.File
}

// Tree returns its file system, for sandbox.Command's System; that of nil is the host's.
func (l *Lease) Tree() string {
	if l == nil {
		return ""
	}
	return l.tree
}

// Release gives up the lease. It may be called again, and on nil.
func (l *Lease) Release() {
	if l != nil {
		l.once.Do(func() { lease.Unlock(l.file) })
	}
}

// Etc lists folders of a root's /etc that its programs read.
var etc = []string{"ImageMagick-6", "ImageMagick-7", "fonts"}

// Binds returns the parts of its /etc, beside those that every sandbox has.
func (l *Lease) Binds() (list []sandbox.Bind) {
	if l == nil {
		return nil
	}
	for _, name := range etc {
		at := filepath.Join("/etc", name)
		if st, err := os.Lstat(l.tree + at); err == nil && st.IsDir() {
			list = append(list, sandbox.Bind{Source: l.tree + at, Target: at})
		}
	}
	return list
}

// take returns the newest root of a kind, or nil if there is none.
func (r *Roots) take(k Kind) (*Lease, error) {
	for range 3 { // again if it is replaced or removed meanwhile
		all, err := r.List()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(x Root) bool { return x.Name == k.Name })
		if i < 0 {
			return nil, nil
		}
		l := &Lease{Root: all[i], tree: filepath.Join(r.kept(all[i].ID), treeName)}
		if l.file, err = r.locks.Try(l.ID, false); err != nil {
			return nil, err
		}
		if l.file == nil {
			continue
		}
		if _, err := os.Lstat(l.tree); err != nil {
			l.Release()
			continue
		}
		now := r.now()
		_ = os.Chtimes(r.locks.Path(l.ID), now, now) // only what List says of it depends on that
		return l, nil
	}
	return nil, nil
}

// Has reports whether a root of a kind is there.
func (r *Roots) has(name string) bool {
	list, _ := filepath.Glob(filepath.Join(r.c.Dir, "kept", name+"-*", manifestName))
	return slices.ContainsFunc(list, func(p string) bool {
		digest := strings.TrimPrefix(filepath.Base(filepath.Dir(p)), name+"-")
		return !strings.Contains(digest, "-")
	})
}

// Use takes a root of a kind and makes it first if there is none. say is called from this goroutine with progress for a
// log; nil says nothing. The caller must call Release.
func (r *Roots) Use(ctx context.Context, k Kind, say func(format string, args ...any)) (*Lease, error) {
	for range 2 {
		if l, err := r.take(k); l != nil || err != nil {
			return l, err
		}
		if err := r.Install(ctx, k, say); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("take %s: it is removed as soon as it is installed", k.Title)
}

// From returns where the tools come from and until when they get updates; "" for nil.
func (l *Lease) From() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf(" from %s, with security updates until %s", l.Debian, l.Until)
}
