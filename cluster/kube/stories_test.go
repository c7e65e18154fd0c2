//go:build cluster

package kube

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway/cluster/kubetest"
	"slipway/e2e/world"
)

// The end-to-end tests of programs and WordPress (e2e/programs, e2e/wordpress) pass on a cluster. They use the same
// service binary, with this engine, and see it only from outside.
func TestStories(t *testing.T) {
	tell(t, "stories", os.Getenv("SLIPWAY_CLUSTER_STORIES"), map[string][]string{"programs": nil, "wordpress": nil})
}

// The end-to-end tests of several nodes (e2e/nodes), and of programs with two nodes, pass with two processes of this
// engine.
func TestStoriesOfTwo(t *testing.T) {
	tell(t, "two", os.Getenv("SLIPWAY_CLUSTER_STORIES_OF_TWO"), map[string][]string{"programs": {world.NodesVar + "=2"}, "nodes": nil})
}

// tell runs the tests of these packages in parallel, because they mostly wait, each with its own environment.
func tell(t *testing.T, namespace, stories string, packages map[string][]string) {
	t.Helper()
	if stories == "" {
		t.Skip("no stories were asked for")
	}
	c, dir := client(t), os.Getenv("SLIPWAY_CLUSTER_BUILT")
	serving := serving(t, c, namespace)
	var all sync.WaitGroup
	for _, of := range slices.Sorted(maps.Keys(packages)) {
		told := exec.CommandContext(t.Context(), filepath.Join(dir, of+".test"), "-test.v", "-test.run", stories, "-test.timeout=20m")
		told.Dir = filepath.Join(os.Getenv("SLIPWAY_CLUSTER_SOURCE"), "e2e", of)
		told.Env = slices.Concat(os.Environ(), packages[of], serving, []string{"SLIPWAY_E2E_BUILT=" + dir})
		told.Stdout, told.Stderr = os.Stdout, os.Stderr
		all.Go(func() {
			if err := told.Run(); err != nil {
				t.Errorf("%s: %v", of, err)
			}
		})
	}
	all.Wait()
}

// nameServer creates the pod by which network policies recognize the cluster's DNS server. The DNS server runs on the
// node itself.
func nameServer(t testing.TB, c kubernetes.Interface) {
	t.Helper()
	pods, no := c.CoreV1().Pods("kube-system"), false
	until(t, "the cluster's own namespace has its service account", func() bool {
		_, err := c.CoreV1().ServiceAccounts("kube-system").Get(t.Context(), "default", meta.GetOptions{})
		return err == nil
	})
	_, err := pods.Create(t.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "dns", Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec: core.PodSpec{
			HostNetwork: true, NodeName: "n1", AutomountServiceAccountToken: &no, Containers: []core.Container{{Name: "dns", Image: "localhost/pause:1"}},
		},
	}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	until(t, "the cluster has a DNS server", func() bool {
		p, err := pods.Get(t.Context(), "dns", meta.GetOptions{})
		return err == nil && p.Status.PodIP != ""
	})
}

// serving prepares a namespace for the programs of a service, and returns the environment for package world.
func serving(t *testing.T, c kubernetes.Interface, namespace string) (env []string) {
	t.Helper()
	address := os.Getenv("SLIPWAY_CLUSTER_ADDRESS")
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), Namespace(namespace), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The services run in parallel. Each listens for its pods on its own port in this range, and their canaries use
	// higher ports.
	const first, last = 10_000, 32_000
	end := int32(last)
	for _, p := range Policies([]string{address + "/32", "10.244.0.1/32"}, first, nil) {
		for i, r := range p.Spec.Egress {
			if r.Ports[0].Port.IntValue() == first {
				p.Spec.Egress[i].Ports[0].EndPort = &end
			}
		}
		if _, err := c.NetworkingV1().NetworkPolicies(namespace).Create(t.Context(), p, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the namespace has its service account", func() bool {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", meta.GetOptions{})
		return err == nil
	})
	nameServer(t, c)
	t.Cleanup(kubetest.Enforce(t.Context(), c, namespace))
	volumes := t.TempDir()
	if err := provision(t.Context(), c, namespace, volumes); err != nil {
		t.Fatal(err)
	}
	images, err := json.Marshal(testImages())
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "images.json")
	if err := os.WriteFile(list, images, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := "--kubernetes-namespace " + namespace + " --kubernetes-images " + list + " --kubernetes-address " + address +
		" --kubernetes-listen " + address + ":{port} --kubernetes-canary " + address + ":0 --kubernetes-build-image " + os.Getenv("SLIPWAY_CLUSTER_BUILD_IMAGE") +
		" --kubernetes-storage-class " + storageClass
	flags += " --kubernetes-first-uid {world}0000" // nodes count processes by user ID, so each test has its own range
	return []string{
		world.Serve + "=" + filepath.Join(os.Getenv("SLIPWAY_CLUSTER_BUILT"), "slipway-cluster"), world.ServeFlags + "=" + flags,
		world.Volumes + "=" + volumes,
	}
}
