package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slipway/e2e/world"
)

// relay measures the overhead of requests that arrive at a node without the program.
func (b *bench) relay(w *world.World) error {
	if b.postgres == "" {
		fmt.Fprintln(os.Stderr, "  left out: several nodes need PostgreSQL (go run ./scripts/withpostgres go run ./bench -only relay)")
		return nil
	}
	other, err := world.New(b.binary, filepath.Join(b.dir, "relay-other"))
	if err != nil {
		return err
	}
	defer other.Close()
	ports, err := world.FreePorts(2)
	if err != nil {
		return err
	}
	err = b.stopped(w, func() error {
		common := []string{"--blobs", filepath.Join(b.dir, "relay-blobs")}
		at := slices.Index(w.Flags, "--database")
		other.Flags = append(append(other.Flags, common...), w.Flags[at], w.Flags[at+1], "--node-listen", ports[1], "--roles", "edge")
		w.Flags = append(append(w.Flags, common...), "--node-listen", ports[0])
		key, err := os.ReadFile(filepath.Join(w.Data, "secrets.key"))
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(other.Data, 0o700), os.WriteFile(filepath.Join(other.Data, "secrets.key"), key, 0o600))
	})
	if err != nil {
		return err
	}
	if err := other.Start(b.ctx); err != nil {
		return err
	}
	dir := filepath.Join(w.Dir, "app")
	if err := world.WriteFiles(dir, benchProgram); err != nil {
		return err
	}
	if _, err := w.Git.Commit("bench/app", "main", dir, "app"); err != nil {
		return err
	}
	here, err := b.program(w, "app", "app")
	if err != nil {
		return err
	}
	there := here
	if there.client, err = other.Browser(); err != nil {
		return err
	}
	var local, relayed []time.Duration
	for range 30 { // alternate
		for _, x := range []struct {
			program
			took *[]time.Duration
		}{{here, &local}, {there, &relayed}} {
			for range 100 {
				begun := time.Now()
				if err := x.get(); err != nil {
					return err
				}
				*x.took = append(*x.took, time.Since(begun))
			}
		}
	}
	b.add(row{
		what:      "latency added by another node, p50",
		value:     ms(median(relayed) - median(local)),
		yardstick: fmt.Sprintf("%s, at the program's node %s", ms(median(relayed)), ms(median(local))),
		goal:      "0.5 ms",
	})
	host := here.url[len("https://"):]
	err = b.rates("requests per second through another node, both on the same processors", w, other, host)
	if err != nil || runtime.NumCPU() < 2 {
		return err
	}
	// Two machines would have two processors, so the program's node gets one of its own, even when it is called
	// directly.
	if err := errors.Join(w.Stop(b.ctx), other.Stop(b.ctx), on(1, func() error { return w.Start(b.ctx) })); err != nil {
		return err
	}
	return on(0, func() error {
		if err := other.Start(b.ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		if err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) { err := there.get(); return err == nil, err }); err != nil {
			return err
		}
		return b.rates("requests per second through another node, each on a processor of its own, the load on that of the other node", w, other, host)
	})
}

// rates compares, alternating, a node's answers for its own program with another node's answers for the same program.
func (b *bench) rates(what string, w, other *world.World, host string) error {
	var ours, theirs, ratios []float64
	for range 5 {
		a, _, err := b.perSecond([]string{"--h1", "-c32"}, other.HTTPS, host)
		if err != nil {
			return err
		}
		n, _, err := b.perSecond([]string{"--h1", "-c32"}, w.HTTPS, host)
		if err != nil {
			return err
		}
		ours, theirs, ratios = append(ours, a), append(theirs, n), append(ratios, a/n)
	}
	for _, l := range [][]float64{ours, theirs, ratios} {
		slices.Sort(l)
	}
	b.add(row{
		what:      what,
		value:     fmt.Sprintf("%.0f", ours[2]),
		yardstick: fmt.Sprintf("at the program's node %.0f", theirs[2]),
		ratio:     fmt.Sprintf("%.2f×", ratios[2]),
		goal:      "≥ 0.6×",
	})
	return nil
}

// on runs do, and the processes that it starts, on one processor.
func on(processor int, do func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	only.Set(processor)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &only)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	return do()
}
