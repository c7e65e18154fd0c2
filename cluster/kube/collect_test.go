package kube

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A lease that changes isn't silent, whatever its timestamp says. One that doesn't change is silent after a while that
// this process observed itself, not counting time during which it was away.
func TestPeers(t *testing.T) {
	t.Parallel()
	p := newPeers()
	now := time.Now()
	leases := func(dies, lives string) []coordination.Lease {
		one := func(name, version string) coordination.Lease {
			return coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name, ResourceVersion: version}}
		}
		return []coordination.Lease{one("own", "1"), one("dies", dies), one("lives", lives)}
	}
	p.last = now
	after := func(d time.Duration, dies, lives string) (names string) {
		now = now.Add(d)
		for _, l := range p.silent(leases(dies, lives), "own", now) {
			names += l.Name
		}
		return names
	}
	for range 5 {
		if got := after(beat, "1", now.String()); got != "" {
			t.Fatalf("%s is taken for gone after %v", got, beat)
		}
	}
	if got := after(beat, "1", now.String()); got != "dies" {
		t.Errorf("gone: %q", got)
	}
	if got := after(time.Hour, "1", "2"); got != "" {
		t.Errorf("after an hour in which this process heard nothing, gone: %q", got)
	}
	if got := after(beat, "2", "2"); got != "" {
		t.Errorf("heard again, and gone: %q", got)
	}
}
