package chart

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway/cluster/kubetest"
)

// startServer starts the API server that scripts/cluster built. It returns a client and the path of a kubeconfig file.
func startServer(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	bin := kubetest.Binaries()
	if bin == "" {
		t.Skip("NOT RUN: there is no API server yet: make test-cluster builds it")
	}
	s, err := kubetest.StartServer(bin, "--authorization-mode=RBAC", "--endpoint-reconciler-type=none")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		s.Stop()
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client, s.Kubeconfig()
}

// An API server accepts all objects of the chart, for an installation and for upgrades between variants. The key
// survives upgrades and an uninstallation. Workers have rights only in the namespace of programs.
func TestServer(t *testing.T) {
	client, config := startServer(t)
	helm := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", append([]string{"tool", "helm", "--namespace=hosting"}, args...)...)
		c.Env = append(os.Environ(), "KUBECONFIG="+config, "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	values := func(text string) string {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	key := func() string {
		t.Helper()
		s, err := client.CoreV1().Secrets("hosting").Get(t.Context(), "slipway-key", meta.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Data["secrets.key"])
	}
	main := values(needed)
	helm("install", "slipway", "slipway", "--create-namespace", "--values="+main, "--wait=hookOnly")
	first := key()
	for _, name := range []string{"other", "cluster address", "default"} {
		text := variants[name]
		if name == "other" { // upgrades keep the namespace of programs and the key's Secret
			text = strings.NewReplacer("namespace: programs, ", "", "secretsKey: {existingSecret: mine}", "").Replace(text)
		}
		helm("upgrade", "slipway", "slipway", "--values="+main, "--values="+values(text), "--wait=hookOnly")
	}
	if key() != first {
		t.Error("an upgrade replaced the key")
	}
	may := func(verb, group, resource, namespace string) bool {
		t.Helper()
		resource, sub, _ := strings.Cut(resource, "/")
		r, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: "system:serviceaccount:hosting:slipway-worker", Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorization.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace},
		}}, meta.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Allowed
	}
	for _, allowed := range []string{"create pods", "watch pods", "get pods/log", "create secrets", "create persistentvolumeclaims"} {
		verb, resource, _ := strings.Cut(allowed, " ")
		if !may(verb, "", resource, "slipway-programs") {
			t.Errorf("workers may not %s of programs", allowed)
		}
		if may(verb, "", resource, "hosting") || may(verb, "", resource, "kube-system") || may(verb, "", resource, "") {
			t.Errorf("workers may %s elsewhere", allowed)
		}
	}
	for _, denied := range []string{"create pods/exec", "list secrets", "create services", "create serviceaccounts", "create serviceaccounts/token", "delete namespaces"} {
		verb, resource, _ := strings.Cut(denied, " ")
		if may(verb, "", resource, "slipway-programs") {
			t.Errorf("workers may %s", denied)
		}
	}
	helm("uninstall", "slipway", "--wait=hookOnly")
	if _, err := client.AppsV1().Deployments("hosting").Get(t.Context(), "slipway-edge", meta.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("edges after the uninstallation: %v", err)
	}
	roles, err1 := client.RbacV1().Roles("slipway-programs").List(t.Context(), meta.ListOptions{})
	policies, err2 := client.NetworkingV1().NetworkPolicies("slipway-programs").List(t.Context(), meta.ListOptions{})
	if err := errors.Join(err1, err2); err != nil || len(roles.Items)+len(policies.Items) != 0 {
		t.Errorf("%d roles and %d policies are left: %v", len(roles.Items), len(policies.Items), err)
	}
	helm("install", "slipway", "slipway", "--values="+main, "--wait=hookOnly")
	if key() != first {
		t.Error("a new installation has the key of the previous one")
	}
}
