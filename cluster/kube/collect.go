package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// beat is the interval at which a process renews its lease and looks for expired ones.
	beat = 10 * time.Second
	// silence is the age at which a process's lease expires. Its programs are removed at the next beat.
	silence = 40 * time.Second
)

func leaseName(engine string) string { return "slipway-engine-" + dashed(engine, 63) }

// peers records when this process last saw a change of the other processes' leases. Clocks of machines aren't compared.
type peers struct {
	heard map[string]heard // by lease name
	last  time.Time        // last beat that reached the cluster

	strangers map[string]bool // pods of this process that were unknown at the last beat
}

type heard struct {
	version string
	at      time.Time
}

func newPeers() *peers { return &peers{heard: map[string]heard{}, last: time.Now()} }

// silent records the leases seen at a time, and returns those unchanged for too long.
func (p *peers) silent(leases []coordination.Lease, own string, now time.Time) (gone []coordination.Lease) {
	if now.Sub(p.last) > silence/2 {
		clear(p.heard) // this process was itself disconnected
	}
	p.last = now
	there := map[string]bool{}
	for _, l := range leases {
		there[l.Name] = true
		before, known := p.heard[l.Name]
		switch {
		case l.Name == own:
		case !known || before.version != l.ResourceVersion:
			p.heard[l.Name] = heard{l.ResourceVersion, now}
		case now.Sub(before.at) > silence:
			gone = append(gone, l)
		}
	}
	for name := range p.heard {
		if !there[name] {
			delete(p.heard, name)
		}
	}
	return gone
}

// live renews this process's lease every beat, and removes the programs of dead processes until ctx ends.
func (e *Engine) live(ctx context.Context) {
	p := newPeers()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, beat)
		if err := errors.Join(e.renew(within), e.collect(within, p)); err != nil && ctx.Err() == nil {
			e.c.Log.Warn("API server of the cluster not reached", "err", err)
		}
		cancel()
		e.sweep(p)
	}
}

// sweep removes pods of this process that it doesn't know, because their removal failed. It only removes pods that were
// already unknown at the last beat, since a new pod may not be registered yet.
func (e *Engine) sweep(p *peers) {
	before := p.strangers
	p.strangers = map[string]bool{}
	for _, object := range e.pods.List() {
		pod, ok := object.(*core.Pod)
		if !ok || pod.DeletionTimestamp != nil || e.program(pod.Name) != nil {
			continue
		}
		p.strangers[pod.Name] = true
		if before[pod.Name] {
			e.remove(pod.Name, 1)
		}
	}
}

// renew writes this process's lease.
func (e *Engine) renew(ctx context.Context) error {
	leases, now := e.c.Client.CoordinationV1().Leases(e.c.Namespace), meta.NowMicro()
	for {
		l, err := leases.Get(ctx, leaseName(e.c.Name), meta.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = leases.Create(ctx, &coordination.Lease{
				ObjectMeta: meta.ObjectMeta{Name: leaseName(e.c.Name), Labels: map[string]string{labelManaged: managedBy, labelPart: "engine", labelEngine: e.c.Name}, OwnerReferences: e.owner},
				Spec:       coordination.LeaseSpec{HolderIdentity: &e.c.Name, RenewTime: &now},
			}, meta.CreateOptions{})
		case err == nil:
			l.Spec.HolderIdentity, l.Spec.RenewTime = &e.c.Name, &now
			_, err = leases.Update(ctx, l, meta.UpdateOptions{})
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue
		}
		return err
	}
}

// collect removes the programs of processes whose leases have expired. A process that comes back creates what it needs.
func (e *Engine) collect(ctx context.Context, p *peers) error {
	list, err := e.c.Client.CoordinationV1().Leases(e.c.Namespace).List(ctx, meta.ListOptions{
		LabelSelector: labelManaged + "=" + managedBy + "," + labelPart + "=engine",
	})
	if err != nil {
		return err
	}
	for _, l := range p.silent(list.Items, leaseName(e.c.Name), time.Now()) {
		name := l.Labels[labelEngine]
		if name == "" || name == e.c.Name {
			continue
		}
		// Whoever updates the lease first wins, so a process that is back keeps its programs.
		l.Spec.HolderIdentity = &e.c.Name
		taken, err := e.c.Client.CoordinationV1().Leases(e.c.Namespace).Update(ctx, &l, meta.UpdateOptions{})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		e.c.Log.Warn("removing programs of a failed node", "engine", name)
		if err := e.removeOf(ctx, name, ""); err != nil {
			return err
		}
		err = e.c.Client.CoordinationV1().Leases(e.c.Namespace).Delete(ctx, l.Name, meta.DeleteOptions{
			Preconditions: &meta.Preconditions{ResourceVersion: &taken.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// removeOf removes all of an engine's programs that also match selector.
func (e *Engine) removeOf(ctx context.Context, engine, selector string) error {
	of := labelEngine + "=" + engine + selector
	// A pod belongs to its Secret, but the cluster takes a while to delete dependents. Pods with storage are deleted
	// with a grace period, so that they exist until they have ended and the next writer can wait for that.
	now, soon := int64(0), int64(1)
	pods := e.c.Client.CoreV1().Pods(e.c.Namespace)
	err := errors.Join(
		pods.DeleteCollection(ctx, meta.DeleteOptions{GracePeriodSeconds: &soon}, meta.ListOptions{LabelSelector: of + "," + labelClaim}),
		pods.DeleteCollection(ctx, meta.DeleteOptions{GracePeriodSeconds: &now}, meta.ListOptions{LabelSelector: of + ",!" + labelClaim}),
		e.c.Client.CoreV1().Secrets(e.c.Namespace).DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{LabelSelector: of}),
	)
	if err != nil {
		return fmt.Errorf("remove programs of %s: %w", engine, err)
	}
	return nil
}
