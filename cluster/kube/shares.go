package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// shares holds the programs that can change data cached by others of their site.
type shares struct {
	mu sync.Mutex // guards by
	// share: total the programs that run; owner those that it may run; edge gone with the program
	by map[id.Site]map[*program]bool
}

func reaches(s runtime.Spec) bool { return s.Database || s.Redis }

func (h *shares) enter(x *program) {
	if !reaches(x.spec) {
		return
	}
	h.mu.Lock()
	if h.by[x.spec.Site] == nil {
		h.by[x.spec.Site] = map[*program]bool{}
	}
	h.by[x.spec.Site][x] = true
	h.mu.Unlock()
	x.e.ClearRedis(x.spec.Site)
}

// leave removes a program, and reports whether others of the site continue.
func (h *shares) leave(x *program) (others bool) {
	if !reaches(x.spec) {
		return false
	}
	h.mu.Lock()
	delete(h.by[x.spec.Site], x)
	others = len(h.by[x.spec.Site]) > 0
	if !others {
		delete(h.by, x.spec.Site)
	}
	h.mu.Unlock()
	x.e.ClearRedis(x.spec.Site)
	return others
}

func (h *shares) of(site id.Site) []*program {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.by[site]))
}

// ClearRedis invalidates the object cache of a site's programs after someone else changed the site's database. found
// reports whether a program has an object cache. While several programs use the site's database, all object caches are
// off.
func (e *Engine) ClearRedis(site id.Site) (found bool) {
	var all sync.WaitGroup
	for _, x := range e.share.of(site) {
		if x.caches() {
			found = true
			all.Go(x.bump)
		}
	}
	all.Wait()
	return found
}

// NoRedis returns why Redis is unavailable here, or "".
func (e *Engine) NoRedis() string {
	if !e.c.Redis {
		return "On Kubernetes the object cache needs a Redis server that the operator names with --redis"
	}
	return ""
}

// caches reports whether a program has an object cache.
func (x *program) caches() bool { return isFPM(x.spec) && x.spec.Redis && x.spec.RedisServer }

// bump starts a new epoch of a program's object cache. A program that isn't running yet gets its first epoch at the
// start.
func (x *program) bump() {
	x.bumping.Lock() // so that the latest state is sent last
	defer x.bumping.Unlock()
	if p := x.pod(); !x.begun.Load() || p == nil || !x.runs() {
		return
	}
	var used int64
	if len(x.e.share.of(x.spec.Site)) == 1 {
		used = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	c, reply, err := x.ask(ctx, pod.Epoch, used)
	if err == nil {
		c.Close()
	}
	if (err != nil || reply != pod.Yes) && x.runs() { // stale values are worse than no program
		x.e.c.Log.Error("object cache not cleared; the program is ended", "program", x.name, "err", err)
		go x.Stop(0)
	}
}
