package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
)

// manyFiles is the maximum number of files in a folder.
const manyFiles = 200_000

// client measures the command line: its startup, and deploying a folder against rsync of the same folder.
func (b *bench) client(w *world.World) error {
	var starts, nothing []time.Duration
	for range 50 {
		for _, of := range []struct {
			took *[]time.Duration
			cmd  *exec.Cmd
		}{{&starts, exec.CommandContext(b.ctx, b.binary, "version")}, {&nothing, exec.CommandContext(b.ctx, "true")}} {
			begun := time.Now()
			if err := of.cmd.Run(); err != nil {
				return err
			}
			*of.took = append(*of.took, time.Since(begun))
		}
	}
	b.timing("slipway version, until it has ended", median(starts), median(nothing), "true", "≤ 30 ms")
	if err := b.beginning(w); err != nil {
		return err
	}
	return b.folders(w)
}

// beginning deploys a folder with one page by two commands.
func (b *bench) beginning(w *world.World) error {
	var took []time.Duration
	for n := range 5 {
		dir := filepath.Join(b.dir, fmt.Sprintf("beginning-%d", n))
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "index.html"), []byte("home"), 0o644))
		if err != nil {
			return err
		}
		var both time.Duration
		for _, command := range []string{"init", "deploy"} {
			one, _, err := b.slipway(w, dir, command)
			if err != nil {
				return err
			}
			both += one
		}
		took = append(took, both)
	}
	b.timing("slipway init and slipway deploy of a folder with one page", median(took), 0, "", "≤ 10 s")
	return nil
}

// slipway runs a command in a folder, and returns its duration and maximum memory in kB.
func (b *bench) slipway(w *world.World, dir string, args ...string) (took time.Duration, memory int64, err error) {
	cmd := exec.CommandContext(b.ctx, b.binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+b.dir, "XDG_CONFIG_HOME="+b.dir, "SLIPWAY_SERVER=http://"+w.Listen, "SLIPWAY_TOKEN="+b.key)
	var said bytes.Buffer
	cmd.Stderr = &said
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("slipway %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	took = time.Since(begun)
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		memory = used.Maxrss
	}
	return took, memory, nil
}

// folders deploys folders with the command line, and copies them with rsync.
func (b *bench) folders(w *world.World) error {
	if _, err := exec.LookPath("rsync"); err != nil {
		return errors.New("rsync is needed: apt-get install rsync")
	}
	for _, n := range []int{b.files, manyFiles} {
		dir, copied := filepath.Join(b.dir, fmt.Sprintf("folder-%d", n)), filepath.Join(b.dir, fmt.Sprintf("copied-%d", n))
		if err := pagesIn(dir, n); err != nil {
			return err
		}
		var made struct{ Data struct{ ID, Slug string } }
		in := map[string]any{"name": fmt.Sprintf("Folder %d", n), "type": "static", "source": "upload"}
		if err := b.call(w, "POST", "/sites", in, &made); err != nil {
			return err
		}
		if _, _, err := b.slipway(w, dir, "link", made.Data.ID); err != nil {
			return err
		}
		page := filepath.Join(dir, "0", "0.html")
		var most int64 // kB of the command
		for _, round := range []struct{ what, goal string }{
			{fmt.Sprintf("slipway deploy of %d files, all new", n), ""},
			{fmt.Sprintf("slipway deploy of %d files, none changed", n), goalOf(n)},
			{fmt.Sprintf("slipway deploy of %d files, 1 changed", n), goalOf(n)},
		} {
			times := 3
			if strings.HasSuffix(round.what, "new") {
				times = 1
			}
			var ours, theirs []time.Duration
			for i := range times {
				if strings.HasSuffix(round.what, "1 changed") {
					if err := os.WriteFile(page, fmt.Appendf(nil, "<p>changed %d</p>", i), 0o644); err != nil {
						return err
					}
				}
				took, memory, err := b.slipway(w, dir, "deploy")
				if err != nil {
					return err
				}
				most = max(most, memory)
				ours = append(ours, took)
				begun := time.Now()
				if out, err := exec.CommandContext(b.ctx, "rsync", "-a", "--fsync", dir+"/", copied+"/").CombinedOutput(); err != nil {
					return fmt.Errorf("rsync: %w: %s", err, out)
				}
				theirs = append(theirs, time.Since(begun))
			}
			b.timing(round.what, median(ours), median(theirs), "rsync -a --fsync", round.goal)
		}
		server, err := status(w, "VmHWM")
		if err != nil {
			return err
		}
		b.add(row{
			what:  fmt.Sprintf("most memory in deployments of %d files", n),
			value: fmt.Sprintf("the command %d MB, the server so far %d MB", most>>10, server>>10),
		})
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(copied)); err != nil {
			return err
		}
	}
	return nil
}

// goalOf returns the goal for deploying few changes.
func goalOf(files int) string {
	if files == 10_000 {
		return "≤ 1500 ms"
	}
	return ""
}

// pagesIn writes n files of about 2 KiB, except for the home page, a hundred per folder. They are old enough for their
// digests to be cached.
func pagesIn(dir string, n int) error {
	old := time.Now().Add(-time.Hour)
	for i := range n - 1 {
		name := filepath.Join(dir, fmt.Sprint(i/100), fmt.Sprint(i)+".html")
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
		}
		text := bytes.Repeat(fmt.Appendf(nil, "<p>page %d</p>\n", i), 120)
		if err := errors.Join(os.WriteFile(name, text, 0o644), os.Chtimes(name, old, old)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "index.html"), []byte("home"), 0o644)
}
