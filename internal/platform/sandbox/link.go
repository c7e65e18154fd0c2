package sandbox

import (
	"fmt"
	"slices"

	"slipway/internal/platform/sandbox/network"
)

// ErrNobodyListens is returned by Dial until the command listens.
var ErrNobodyListens = network.ErrNobodyListens

// Link connects the host with a running sandbox: it dials ports that the command listens on, sends signals, and reads
// usage. A Link is safe for concurrent use and fails once the command has ended.
type Link struct {
	*network.Link
	usage func() Usage // current usage; nil without a cgroup
	procs func() []int // pids of its processes
	uid   int          // their uid
}

// Usage returns the sandbox's current usage, or zero if it has ended or has no cgroup.
func (l *Link) Usage() Usage {
	if l.Ended() != nil || l.usage == nil {
		return Usage{}
	}
	return l.usage()
}

// Unlinked returns the bytes of nameless files that the sandbox holds open on dir's file system, or zero once it has
// ended.
func (l *Link) Unlinked(dir string) int64 {
	if l.Ended() != nil || l.procs == nil {
		return 0
	}
	return unlinked(l.procs(), dir, nil, l.uid)
}

// handoverOf returns what a command's shim hands out.
func handoverOf(c *Command) (*network.Handover, error) {
	h := &network.Handover{Proxy: c.Network.Proxy, Forwards: map[int]string{}}
	if h.Proxy != "" {
		h.Ports = c.Network.carried()
	}
	for port, inside := range c.Forwards {
		i := slices.IndexFunc(c.Binds, func(b Bind) bool { return b.Target == inside })
		if i < 0 {
			return nil, fmt.Errorf("forward port %d: no socket is bound at %s", port, inside)
		}
		h.Forwards[port] = c.Binds[i].Source
	}
	return h, nil
}
