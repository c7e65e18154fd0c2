//go:build !cluster

package kube

import (
	"encoding/json"
	"path"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// The pod of a WordPress with every feature meets the Pod Security Standard "restricted". Its bundles are mounted over
// its storage, its connections are in its description, and its object cache is only used while no other program uses
// its database.
func TestAPIServerWordPress(t *testing.T) {
	t.Parallel()
	w := newAPI(t)
	e, _, _ := w.engine("one")
	e.Connect(&served{dir: t.TempDir()})
	e.c.Images, e.c.Edge = []Image{{Name: "localhost/php:1", PHP: []string{"8.4.11"}}}, "127.0.0.1:443"
	s, said := w.spec("shop")
	s.Argv, s.PHP, s.Dir = nil, &runtime.PHP{}, "public"
	s.Database, s.Mail, s.Redis, s.RedisServer, s.Egress = true, true, true, true, true
	s.Ports, s.Own = []int{5432, 6380}, []string{"shop.example.com:443", "shop.slipway.example:443", "[::1]:443", "under_score:443"}
	s.Storage = []runtime.Storage{{Path: "public/wp-content", Name: "wp-content"}, {Path: "cache", Temporary: true}}
	s.Trees = []runtime.Tree{
		{Path: "public/wp-content/themes/own", Bundle: w.one, From: "content/themes/own"},
		{Path: "cache/own", Bundle: w.one},
		{Path: "beside", Bundle: w.one},
	}
	p, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	name := p.(*program).name
	made, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mounts := map[string]core.VolumeMount{}
	for _, m := range made.Spec.Containers[0].VolumeMounts {
		mounts[m.MountPath] = m
	}
	for at, sub := range map[string]string{"public/wp-content/themes/own": "content/themes/own", "cache/own": ""} {
		if m := mounts[path.Join(runtime.AppDir, at)]; m.Name == "" || !m.ReadOnly || m.SubPath != sub {
			t.Errorf("%s is mounted as %+v", at, m)
		}
	}
	if m := mounts[path.Join(runtime.AppDir, "beside")]; m.Name != "" {
		t.Errorf("a tree beside storage is mounted as %+v", m)
	}
	if h := made.Spec.HostAliases; len(h) != 1 || !slices.Equal(h[0].Hostnames, []string{"shop.example.com", "shop.slipway.example"}) {
		t.Errorf("its own names are %+v", h)
	}
	secret, err := w.client.CoreV1().Secrets(w.namespace).Get(t.Context(), name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var d pod.Description
	if err := json.Unmarshal(secret.Data[keySpec], &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Ways) != 4 || !d.Cache || d.FPM == "" || d.Argv[0] != "/usr/sbin/php-fpm8.4" || d.Trees[1].Stage == "" || d.Trees[3].Stage != "" {
		t.Errorf("the pod is described as %+v", d)
	}
	policy, err := w.client.NetworkingV1().NetworkPolicies(w.namespace).Get(t.Context(), name, meta.GetOptions{})
	if err != nil || len(policy.Spec.Egress[0].Ports) != 2 || policy.Spec.PodSelector.MatchLabels[labelPorts] != made.Labels[labelPorts] {
		t.Errorf("its further ports: %+v, %v", policy, err)
	}
	epochs := func(when string, want ...int64) {
		t.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.epochs[name]; !slices.Equal(got, want) {
			t.Errorf("%s it was told of the epochs %v and not %v", when, got, want)
		}
	}
	epochs("at first", 1)
	if !e.ClearRedis(s.Site) || e.ClearRedis("site_other") {
		t.Error("ClearRedis does not report which sites have an object cache")
	}
	epochs("when it was cleared", 1, 1)
	other, _ := w.spec("task")
	other.Site, other.Argv, other.PHP, other.Database = s.Site, []string{"php", "task.php"}, &runtime.PHP{}, true
	q, err := e.Start(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	epochs("beside another", 1, 1, 0)
	q.Stop(patience)
	epochs("alone again", 1, 1, 0, 1)
	if t.Failed() {
		t.Log(said())
	}
}
