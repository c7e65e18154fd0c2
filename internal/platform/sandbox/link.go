package sandbox

import (
	"fmt"
	"slices"

	"slipway/internal/platform/sandbox/network"
)

// ErrNobodyListens is the error of a failed Dial while the command does not listen yet.
var ErrNobodyListens = network.ErrNobodyListens

// Link reaches into a running sandbox from the host: it connects to ports that the
// command listens on, sends the command signals, and says what the sandbox uses. A Link is
// safe for concurrent use and useless once the command has ended.
type Link struct {
	*network.Link
	usage func() Usage // what the sandbox uses; nil where nobody counts
	procs func() []int // what runs in it
	uid   int          // whose it is
}

// Usage returns what the sandbox uses now; zero once it has ended, and where there is no
// cgroup.
func (l *Link) Usage() Usage {
	if l.Ended() != nil || l.usage == nil {
		return Usage{}
	}
	return l.usage()
}

// Unlinked returns the bytes on disk of files beside dir that have no name any more, and that
// the sandbox holds open; zero once it has ended.
func (l *Link) Unlinked(dir string) int64 {
	if l.Ended() != nil || l.procs == nil {
		return 0
	}
	return unlinked(l.procs(), dir, l.uid)
}

// handoverOf returns what the shim of a command hands out.
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
