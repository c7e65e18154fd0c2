package runtime

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// layerer is a Runner that can keep what a command writes apart from what it sees. *sandbox.Bubblewrap is one.
type layerer interface {
	Layers(dir, source string, uid int) error
}

// leastFile is how many bytes of the disk limit a file takes at least.
const leastFile = 4 << 10

// layers knows whether this host can mount layers.
type layers struct {
	mu    sync.Mutex // guards what follows
	work  bool
	tried time.Time // the last time without success
}

// tryAgain is how long a host that couldn't mount a layer isn't asked again: it may have lacked descriptors or room.
const tryAgain = time.Minute

// layered reports whether programs can write to a layer over a tree.
func (p *Processes) layered(tree string, uid int) bool {
	runner, ok := p.c.Runner.(layerer)
	l := &p.layers
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.work || !ok || !l.tried.IsZero() && time.Since(l.tried) < tryAgain {
		return l.work
	}
	if err := runner.Layers(p.c.Dir, tree, uid); err != nil {
		if l.tried.IsZero() {
			p.c.Log.Info("releases are read-only for programs: this host can't mount layers over them (Linux 5.19 or newer, as root)", "err", err)
		}
		l.tried = time.Now()
		return false
	}
	l.work = true
	return true
}

// layer returns the directory of a program's layer below dir, or "" if its bundle is read-only.
func (p *Processes) layer(s Spec, tree, dir string, uid int) string {
	if s.ReadOnly || s.PHP != nil || !p.layered(tree, uid) {
		return ""
	}
	return filepath.Join(dir, "layer")
}

// When a layer is looked at: a first time soon, so that the log says early what is lost.
const (
	firstLook = 5 * time.Second
	nextLooks = time.Minute
)

// noteWritten looks at a program's layer until the returned function is called, after the program's end.
func (p *Processes) noteWritten(s Spec, x *process, b sandbox.Bind) (end func()) {
	if b.Layer == "" || s.Losses == nil {
		return func() {}
	}
	seen := map[Written]bool{}
	look := func() {
		found := writtenTo(b.Upper(), x.files.tree, s.Dir)
		found = slices.DeleteFunc(found, func(w Written) bool { return seen[w] })
		for _, w := range found {
			seen[w] = true
		}
		if len(found) > 0 {
			s.Losses.Wrote(found)
		}
	}
	stop := make(chan struct{})
	var work panics.Background
	work.Go(func() {
		t := time.NewTimer(firstLook)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				look()
				t.Reset(nextLooks)
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		work.Wait()
		look()
	}
}

// Limits of a look at a layer, which a program fills as it likes.
const (
	maxWritten = 20
	maxLooked  = 5000
	deepLooked = 8
)

// caches are names of folders whose files a program makes again when it needs them.
var caches = map[string]bool{
	".cache": true, "cache": true, "caches": true, "tmp": true, "temp": true, ".npm": true, "__pycache__": true, ".turbo": true,
}

// writtenTo lists where in the bundle files were written: new folders, folders of the bundle with new or changed files, and
// such files at the top. It leaves out caches. upper is the layer's directory, dir the program's working folder.
func writtenTo(upper string, tree *os.Root, dir string) []Written {
	root, err := os.OpenRoot(upper) // no link of the program leads out of it
	if err != nil {
		return nil
	}
	defer root.Close()
	var all []Written
	looked := 0
	add := func(w Written) {
		if len(all) < maxWritten && !slices.Contains(all, w) && utf8.ValidString(w.Path) {
			all = append(all, w)
		}
	}
	// walk reports whether a folder has files in it, of which it may have added the places.
	var walk func(at string, depth int, isNew bool) bool
	walk = func(at string, depth int, isNew bool) (found bool) {
		f, err := root.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		for looked < maxLooked && len(all) < maxWritten && depth < deepLooked {
			list, err := f.ReadDir(256)
			for _, e := range list {
				looked++
				name := path.Join(at, e.Name())
				switch {
				case e.IsDir() && caches[e.Name()]:
				case e.IsDir() && isNew:
					found = walk(name, depth+1, true) || found
				case e.IsDir():
					info, err := tree.Lstat(name)
					own := err == nil && info.IsDir()
					if walk(name, depth+1, !own) && !own {
						add(Written{name, true})
					}
				case e.Type().IsRegular() && isNew:
					found = true
				case e.Type().IsRegular() && (at == "." || at == path.Clean(dir)):
					add(Written{Path: name})
				case e.Type().IsRegular():
					add(Written{at, true})
				}
				if isNew && found {
					return true
				}
			}
			if err != nil {
				break
			}
		}
		return found
	}
	walk(".", 0, false)
	slices.SortFunc(all, func(a, b Written) int { return strings.Compare(a.Path, b.Path) })
	return all
}
