package sandbox

import (
	"slices"
	"time"

	"slipway/internal/platform/sandbox/cgroup"
)

// Aside moves a process of ours out of cgroups that can be frozen and contain the service, as far as possible. done
// removes the process's own group after its end. A Reap treats the process as an orphan, as it does sandboxes.
func (e *engine) Aside(pid int) (done func()) {
	freezing := slices.DeleteFunc(slices.Clone(e.hs), func(h cgroup.Hierarchy) bool { return !h.V2 && !h.Controllers["freezer"] })
	g, err := cgroup.New(freezing, e.parent, "aside-"+newID(), Limits{Foreground: true}.withDefaults().group())
	if err != nil {
		return func() {}
	}
	if err := g.Attach(pid); err != nil {
		e.log.Warn("process not moved aside: it is stopped where the service's group is frozen", "err", err)
	}
	return func() { _ = g.Remove(2 * time.Second) }
}
