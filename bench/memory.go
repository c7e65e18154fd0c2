package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"slipway/e2e/world"
)

// memory measures the memory and startup time of the process: empty, and with many live sites.
func (b *bench) memory(w *world.World) error {
	empty, err := b.starts(w)
	if err != nil {
		return err
	}
	idle, err := settled(w)
	if err != nil {
		return err
	}
	own, err := status(w, "RssAnon") // not mapped from files
	if err != nil {
		return err
	}
	b.add(row{what: "memory, idle", value: megabytes(idle), yardstick: "not of its file " + megabytes(own) + " (≤ 18 MB)", goal: "≤ 50 MB"})

	// One real site, whose release all other sites share.
	if err := b.commit(w, "shared", 20, "shared"); err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	id, url, err := b.create(w, b.key, "shared", "shared")
	if err != nil {
		return err
	}
	if err := b.shows(w, browser, url, "shared"); err != nil {
		return err
	}
	if err := b.restarted(w, func() error { return seedLike(b.ctx, w, b.live, id) }); err != nil {
		return err
	}
	full, err := b.starts(w)
	if err != nil {
		return err
	}
	loaded, err := settled(w)
	if err != nil {
		return err
	}
	b.add(row{
		what: fmt.Sprintf("memory, %d live sites", b.live), value: megabytes(loaded), yardstick: "idle " + megabytes(idle),
		ratio: fmt.Sprintf("%.2f×", float64(loaded)/float64(idle)),
	})

	_, port, err := net.SplitHostPort(w.HTTPS)
	if err != nil {
		return err
	}
	const visited = 1000
	for range visited {
		url := fmt.Sprintf("https://seeded-%d.localhost:%s/", rand.IntN(b.live), port)
		a, err := w.Site(b.ctx, browser, world.Request{Method: "GET", URL: url})
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return fmt.Errorf("visit %s: %w", url, err)
		}
		browser.CloseIdleConnections()
	}
	seen, err := settled(w)
	if err != nil {
		return err
	}
	b.add(row{
		what: fmt.Sprintf("memory, %d of them visited", visited), value: megabytes(seen), yardstick: "idle " + megabytes(idle),
		ratio: fmt.Sprintf("%.2f×", float64(seen)/float64(idle)),
	})
	b.timing(fmt.Sprintf("start to ready, %d live sites", b.live), full, empty, "empty", "< 2 s")
	return nil
}

// starts restarts the program five times and returns the median time until it is ready.
func (b *bench) starts(w *world.World) (time.Duration, error) {
	var took []time.Duration
	for range 5 {
		if err := w.Stop(b.ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := w.Start(b.ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return median(took), nil
}

// settled returns the resident memory in kB after three quiet seconds.
func settled(w *world.World) (int, error) {
	time.Sleep(3 * time.Second)
	return resident(w)
}

// resident returns the program's current resident memory in kB.
func resident(w *world.World) (int, error) { return status(w, "VmRSS") }

func status(w *world.World, name string) (int, error) {
	var kb int
	_, err := fmt.Sscanf(field(fmt.Sprintf("/proc/%d/status", w.PID()), name), "%d", &kb)
	return kb, err
}

func megabytes(kb int) string { return fmt.Sprintf("%.0f MB", float64(kb)/1000) }
