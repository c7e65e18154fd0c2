package main

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"slipway/e2e/world"
)

// deploy measures deployments of a site with a hundred files: as a new site, and with all files changed.
func (b *bench) deploy(w *world.World) error {
	first, again, clone, err := b.deployments(w)
	if err != nil {
		return err
	}
	const yardstick = "clone + fsynced copy"
	b.timing("deploy, new site of 100 files", median(first), median(clone), yardstick, "≤ 2×, < 300 ms")
	b.timing("deploy, 100 files all changed", median(again), median(clone), yardstick, "≤ 2×, < 300 ms")
	return nil
}

// deployments creates sites of a hundred files, and then changes all files.
func (b *bench) deployments(w *world.World) (first, again, clone []time.Duration, err error) {
	browser, err := w.Browser()
	if err != nil {
		return nil, nil, nil, err
	}
	for n := range b.rounds {
		name := fmt.Sprintf("hundred-%d", n)
		if err := b.commit(w, name, 100, "first"); err != nil {
			return nil, nil, nil, err
		}
		took, err := b.cloneAndCopy(w, name)
		if err != nil {
			return nil, nil, nil, err
		}
		clone = append(clone, took)
		start := time.Now()
		id, url, err := b.create(w, b.key, fmt.Sprintf("hundred %d", n), name)
		if err != nil {
			return nil, nil, nil, err
		}
		if err := b.shows(w, browser, url, "first"); err != nil {
			return nil, nil, nil, err
		}
		first = append(first, time.Since(start))
		if err := b.commit(w, name, 100, "second"); err != nil {
			return nil, nil, nil, err
		}
		took, err = b.redeployOnce(w, browser, id, url, "second")
		if err != nil {
			return nil, nil, nil, err
		}
		again = append(again, took)
	}
	return first, again, clone, nil
}

// redeploy measures a large site with one changed file.
func (b *bench) redeploy(w *world.World) error {
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	const name = "large"
	if err := b.commit(w, name, b.files, "first"); err != nil {
		return err
	}
	clone, err := b.cloneAndCopy(w, name)
	if err != nil {
		return err
	}
	start := time.Now()
	id, url, err := b.create(w, b.key, name, name)
	if err != nil {
		return err
	}
	if err := b.shows(w, browser, url, "first"); err != nil {
		return err
	}
	firstTook := time.Since(start)
	var one []time.Duration
	for n := range 7 {
		marker := fmt.Sprintf("round %d", n)
		if err := os.WriteFile(filepath.Join(b.content(name), "index.html"), []byte(marker), 0o600); err != nil {
			return err
		}
		if _, err := w.Git.Commit("bench/"+name, "main", b.content(name), marker); err != nil {
			return err
		}
		took, err := b.redeployOnce(w, browser, id, url, marker)
		if err != nil {
			return err
		}
		one = append(one, took)
	}
	const yardstick = "clone + fsynced copy"
	b.timing(fmt.Sprintf("deploy, new site of %d files", b.files), firstTook, clone, yardstick, "")
	b.timing(fmt.Sprintf("deploy, 1 of %d files changed", b.files), median(one), clone, yardstick, "")
	return nil
}

func (b *bench) redeployOnce(w *world.World, browser *http.Client, id, url, marker string) (time.Duration, error) {
	start := time.Now()
	if err := w.Call(b.ctx, b.key, "POST", "/sites/"+id+"/deploy", nil, nil); err != nil {
		return 0, err
	}
	err := b.shows(w, browser, url, marker)
	return time.Since(start), err
}

// shows waits for the marker on a site's page and returns the time.
func (b *bench) shows(w *world.World, browser *http.Client, url, marker string) error {
	return world.Until(b.ctx, time.Millisecond, func() (bool, error) {
		a, err := w.Site(b.ctx, browser, world.Request{Method: "GET", URL: url + "/"})
		return err == nil && a.Status == http.StatusOK && strings.Contains(string(a.Body), marker), err
	})
}

func (b *bench) content(name string) string { return filepath.Join(b.dir, "content", name) }

// commit writes n new files of about 4 KB to a repository; the home page contains the marker.
func (b *bench) commit(w *world.World, name string, n int, marker string) error {
	files := map[string]string{"index.html": marker}
	for i := 1; i < n; i++ {
		var text strings.Builder
		for text.Len() < 4000 {
			fmt.Fprintf(&text, "<p>%x is not %x</p>\n", rand.Uint64(), rand.Uint64())
		}
		files[fmt.Sprintf("part%d/page%d.html", i%50, i)] = text.String()
	}
	if err := os.RemoveAll(b.content(name)); err != nil {
		return err
	}
	if err := world.WriteFiles(b.content(name), files); err != nil {
		return err
	}
	_, err := w.Git.Commit("bench/"+name, "main", b.content(name), marker)
	return err
}

// cloneAndCopy is the baseline: it copies the same files from the same host to disk, synced.
func (b *bench) cloneAndCopy(w *world.World, name string) (time.Duration, error) {
	dir, err := os.MkdirTemp(b.dir, "yardstick-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	clone := exec.CommandContext(b.ctx, "git", "clone", "--quiet", "--depth", "1", w.Git.URL+"/bench/"+name, filepath.Join(dir, "clone"))
	if out, err := clone.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("git clone: %w: %s", err, out)
	}
	err = copySynced(filepath.Join(dir, "clone"), filepath.Join(dir, "copy"))
	return time.Since(start), err
}

// copySynced copies a tree without .git, and syncs each file and folder.
func copySynced(from, to string) error {
	var folders []string
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			if e.Name() == ".git" {
				return filepath.SkipDir
			}
			folders = append(folders, target)
			return os.MkdirAll(target, 0o700)
		}
		return copyFile(path, target)
	})
	for _, f := range folders {
		if err := syncFolder(f); err != nil {
			return err
		}
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
