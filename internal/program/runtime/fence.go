package runtime

import (
	"context"
	"errors"
	"time"
)

// Lease says whether what runs here is this node's own. *node.Self does.
type Lease interface {
	Holds() bool
	// Lapses returns how often the lease had ended when it was renewed.
	Lapses() int64
	// Until returns when the lease ends unless it is renewed, as watchdog.Now.
	Until() time.Duration
}

// fenceEvery is how often the lease is looked at: others wait for longer after its end (package placement).
const fenceEvery = 250 * time.Millisecond

// overdue is how long after the end of the lease the watchdog kills what this process should have ended. Others wait for longer.
const overdue = time.Second

// Fence ends what writes to storage that other nodes mount too, as soon as the lease has ended: another node may begin to write
// there. It needs no database, which may be why the lease ended. While Fence makes no progress, a process beside this one does so (package
// watchdog). It returns when ctx has ended and all of that has.
func (p *Processes) Fence(ctx context.Context) error {
	if p.c.Lease == nil || !p.c.Volume.Shared() {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(fenceEvery)
	defer tick.Stop()
	for range tick.C {
		if kept := p.fence(); !kept && ctx.Err() != nil {
			p.watchdog.Close()
			return nil
		}
	}
	return nil
}

// fence is one look at the lease. It reports whether something still runs that writes to storage.
func (p *Processes) fence() (kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endOutlived()
}

// endOutlived is fence for who holds the lock.
func (p *Processes) endOutlived() (kept bool) {
	for x := range p.running {
		kept = kept || x.kept
		if p.outlived(x) {
			p.c.Log.Warn("program ended: this node's lease has ended, and another one may write to its storage", "site", p.running[x])
			x.watched.Kill()
			x.kill()
		}
	}
	p.watchdog.Extend(p.c.Lease.Until() + overdue) // what outlived an earlier lease has its signal
	return kept
}

// guard has the watchdog hold a program of p.
type guard struct {
	p *Processes
	x *process
}

// Hold is called when the program is about to run.
func (g guard) Hold(init int) (err error) {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.p.endOutlived()
	if g.p.outlived(g.x) {
		return errors.New("this node's lease has ended")
	}
	g.x.watched, err = g.p.watchdog.Hold(init)
	return err
}

// outlived reports whether a program that keeps something has outlived the lease under which it was started.
func (p *Processes) outlived(x *process) bool {
	return p.c.Lease != nil && x.kept && p.c.Volume.Shared() && (!p.c.Lease.Holds() || p.c.Lease.Lapses() != x.lapses)
}
