package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway/e2e/world"
)

func (b *bench) call(w *world.World, method, path string, body, out any) error {
	return w.Call(b.ctx, b.key, method, path, body, out)
}

// create creates a static site of a repository below bench/ for the owner of the key.
func (b *bench) create(w *world.World, key, name, repo string) (id, url string, err error) {
	var made struct{ Data struct{ ID, URL string } }
	err = w.Call(b.ctx, key, "POST", "/sites", map[string]string{
		"name":       name,
		"type":       "static",
		"repository": "git.test/bench/" + repo,
		"branch":     "main",
	}, &made)
	return made.Data.ID, made.Data.URL, err
}

// restarted stops the program, calls do, and starts the program again.
func (b *bench) restarted(w *world.World, do func() error) error {
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return w.Start(b.ctx)
}

// repository commits files to one of the benchmarks' repositories.
func (b *bench) repository(w *world.World, name string, files map[string]string) error {
	dir := filepath.Join(w.Dir, name)
	if err := world.WriteFiles(dir, files); err != nil {
		return err
	}
	_, err := w.Git.Commit("bench/"+name, "main", dir, name)
	return err
}

// ends waits until the resource at a path has the status good, and fails if it has the status bad.
func (b *bench) ends(w *world.World, key, path, good, bad string) (err error) {
	ctx, done := context.WithTimeout(b.ctx, 10*time.Minute)
	defer done()
	waited := world.Until(ctx, 5*time.Millisecond, func() (bool, error) {
		var is struct{ Status, StatusReason, Error string }
		e := w.Call(ctx, key, "GET", path, nil, &is)
		if is.Status == bad {
			err = fmt.Errorf("%s: %s%s", path, is.StatusReason, is.Error)
		}
		return is.Status == good || is.Status == bad, e
	})
	return errors.Join(err, waited)
}

// process is what /proc says of a process.
type process struct {
	pid, parent, group int
	cpu                time.Duration // used so far, in units of 10 ms (USER_HZ is 100 on every Linux that Go supports)
	resident           int           // kB
}

// processes returns the processes of the machine.
func processes() (all []process) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the process has exited
		}
		_, rest, _ := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), ") ")
		fields := strings.Fields(rest) // from the third on, the state: proc(5)
		if len(fields) < 22 {
			continue
		}
		number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		all = append(all, process{
			pid: pid, parent: number(1), group: number(2),
			cpu:      time.Duration(number(11)+number(12)) * 10 * time.Millisecond,
			resident: number(21) * os.Getpagesize() / 1024,
		})
	}
	return all
}

// below returns a process and all its descendants.
func below(root int) (pids []int) {
	parents := map[int]int{}
	for _, p := range processes() {
		parents[p.pid] = p.parent
	}
	for pid := range parents {
		at := pid
		for at > 1 && at != root {
			at = parents[at]
		}
		if at == root {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cpuTime returns the CPU time of a process group so far.
func cpuTime(group int) time.Duration {
	return cpuOf(func(_, of int) bool { return of == group })
}

// cpuOf returns the CPU time so far of the processes that is selects by pid and process group.
func cpuOf(is func(pid, group int) bool) (total time.Duration) {
	for _, p := range processes() {
		if is(p.pid, p.group) {
			total += p.cpu
		}
	}
	return total
}

// residentGroup returns the resident memory of a process group in kB.
func residentGroup(group int) (kb int) {
	for _, p := range processes() {
		if p.group == group {
			kb += p.resident
		}
	}
	return kb
}
