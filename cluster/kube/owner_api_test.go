//go:build !cluster

package kube

import (
	"net"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A program's objects and the process's lease are owned by the installation's ConfigMap, so the cluster deletes them
// with it. An engine whose ConfigMap doesn't exist doesn't start.
func TestAPIServerOwner(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	first, _, _ := w.engine("one")
	c := first.c
	c.Name, c.Owner = "two", "slipway"
	if _, err := New(t.Context(), c); err == nil {
		t.Fatal("New succeeded without the installation's ConfigMap")
	}
	owner, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "slipway"}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Packs, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	e, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e.port = w.port
	s, said := w.spec("owned")
	p, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatalf("%v: %s", err, said())
	}
	t.Cleanup(func() { p.Stop(0) })
	secret, err := w.client.CoreV1().Secrets(w.namespace).Get(t.Context(), p.(*program).name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), leaseName("two"), meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []meta.Object{secret, lease} {
		if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].Kind != "ConfigMap" || refs[0].UID != owner.UID {
			t.Errorf("%s belongs to %+v", o.GetName(), refs)
		}
	}
}
