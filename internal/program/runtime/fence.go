package runtime

import (
	"context"
	"time"
)

// Lease says whether what runs here is this node's own. *node.Self does.
type Lease interface {
	Holds() bool
	// Lapses returns how often the lease had ended when it was renewed.
	Lapses() int64
}

// fenceEvery is how often the lease is looked at: others wait for longer after its end (package placement).
const fenceEvery = 250 * time.Millisecond

// Fence ends what writes to storage that other nodes mount too, as soon as the lease has ended: another node may begin to write
// there. It needs no database, which may be why the lease ended. It returns when ctx ends.
func (p *Processes) Fence(ctx context.Context) error {
	if p.c.Lease == nil || !p.c.Volume.Shared() {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(fenceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.fence()
		}
	}
}

func (p *Processes) fence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.running {
		if p.outlived(x) {
			p.c.Log.Warn("program ended: this node's lease has ended, and another one may write to its storage", "site", p.running[x])
			x.kill()
		}
	}
}

// outlived reports whether a program that keeps something has outlived the lease under which it was started.
func (p *Processes) outlived(x *process) bool {
	return p.c.Lease != nil && x.kept && p.c.Volume.Shared() && (!p.c.Lease.Holds() || p.c.Lease.Lapses() != x.lapses)
}
