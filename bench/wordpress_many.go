package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/e2e/world"
)

// wordpressMany measures the memory of many WordPress sites of which ten are awake: the service and all its child
// processes, including the database server.
func (b *bench) wordpressMany(w *world.World) error {
	w.Flags = append(w.Flags, "--wordpress-source", "debian")
	if err := unlimitedDatabases(w); err != nil {
		return err
	}
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	empty, err := settled(w)
	if err != nil {
		return err
	}
	urls := make([]string, b.wordpresses)
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(4)
	begun := time.Now()
	for i := range urls {
		g.Go(func() error {
			var created struct{ Data struct{ ID, URL string } }
			if err := w.Call(ctx, b.key, "POST", "/sites", map[string]string{
				"name": fmt.Sprint("blog ", i),
				"type": "wordpress",
			}, &created); err != nil {
				return err
			}
			urls[i] = created.Data.URL
			return b.settledSite(w, created.Data.ID)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(begun)
	b.add(row{what: fmt.Sprintf("%d WordPress sites made, four at a time, each", len(urls)), value: ms(took / time.Duration(len(urls)))})
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	// The first visit starts the database server, which is measured separately.
	visit := func(i int) (time.Duration, error) {
		begun := time.Now()
		a, err := w.Site(b.ctx, browser, world.Request{
			Method: "GET",
			URL:    urls[i] + "/",
			Header: http.Header{"Cookie": {"PHPSESSID=none"}},
		})
		if err == nil {
			err = a.Err()
		}
		return time.Since(begun), err
	}
	// Scheduled events that were due at the start may have woken sites and the database server.
	if err := world.Until(b.ctx, time.Second, func() (bool, error) { return !runsPHP(w), nil }); err != nil {
		return err
	}
	asleep, err := settled(w)
	if err != nil {
		return err
	}
	if _, err := visit(0); err != nil {
		return err
	}
	one := settledTree(w)
	awake := min(10, len(urls)-1)
	var woken, cached []time.Duration
	for i := range awake {
		took, err := visit(1 + i)
		if err != nil {
			return err
		}
		woken = append(woken, took)
	}
	all := settledTree(w)
	// The first answer without a session fills the cache.
	for n := range 1000 {
		begun := time.Now()
		a, err := w.Site(b.ctx, browser, world.Request{Method: "GET", URL: urls[1+n%awake] + "/"})
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return err
		}
		if n >= 10*awake {
			cached = append(cached, time.Since(begun))
		}
	}
	b.add(row{
		what:      fmt.Sprintf("memory, %d WordPress sites asleep", len(urls)),
		value:     megabytes(asleep),
		yardstick: "no site " + megabytes(empty),
		ratio:     fmt.Sprintf("%.1f kB each, no process", float64(max(0, asleep-empty))/float64(len(urls))),
		goal:      "0 MB each beside the service",
	})
	b.add(row{what: "memory, one awake, with the database server", value: megabytes(one-asleep) + " more"})
	b.add(row{
		what:  fmt.Sprintf("memory, %d more awake", awake),
		value: fmt.Sprintf("%s more, %s each", megabytes(all-one), megabytes((all-one)/awake)),
	})
	b.add(row{what: fmt.Sprintf("memory in all, %d WordPress sites of which %d are awake", len(urls), awake+1), value: megabytes(all)})
	b.timing("first page of a site that sleeps, the database server runs, p50", median(woken), 0, "", "< 0.7 s")
	b.timing("of these, a page from the cache, p50", median(cached), 0, "", "")
	return nil
}

// runsPHP reports whether any site's PHP is running.
func runsPHP(w *world.World) bool {
	return slices.ContainsFunc(below(w.PID()), func(pid int) bool {
		return strings.HasPrefix(field(fmt.Sprintf("/proc/%d/status", pid), "Name"), "php-fpm")
	})
}

// unlimitedDatabases lets one user have a database for each site.
func unlimitedDatabases(w *world.World) error {
	i := slices.Index(w.Flags, "--limits")
	f, err := os.OpenFile(w.Flags[i+1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("databases = \"unlimited\"\n")
	return errors.Join(err, f.Close())
}

// settledTree returns the proportional memory, in kB, of the service and its descendants after three quiet seconds.
func settledTree(w *world.World) int {
	time.Sleep(3 * time.Second)
	kb := 0
	for _, pid := range below(w.PID()) {
		n := 0
		_, _ = fmt.Sscanf(field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss"), "%d", &n)
		kb += n
	}
	return kb
}

// below returns a process and all its descendants.
func below(root int) []int {
	parents := map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range names {
		var pid, parent int
		_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(name)), "%d", &pid)
		_, _ = fmt.Sscanf(field(name, "PPid"), "%d", &parent)
		parents[pid] = parent
	}
	var all []int
	for pid := range parents {
		at := pid
		for at > 1 && at != root {
			at = parents[at]
		}
		if at == root {
			all = append(all, pid)
		}
	}
	return all
}
