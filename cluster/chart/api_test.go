package chart

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startServer starts an API server with etcd, without nodes and controllers. Both are there once scripts/cluster has built
// them. It returns a file that says where it is, too.
func startServer(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "slipway-cluster", "*", "bin", "kube-apiserver"))
	if len(found) == 0 {
		t.Skip("there is no API server yet: make test-cluster builds it")
	}
	bin, dir := filepath.Dir(found[len(found)-1]), t.TempDir()
	var ports [3]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		l.Close()
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	token, in := rand.Text(), func(name string) string { return filepath.Join(dir, name) }
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"%s"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]}`, ports[2], token)
	for name, text := range map[string]string{
		"sa.key":     string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"tokens.csv": token + ",admin,admin,system:masters\n",
		"kubeconfig": config,
	} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	etcd := "http://127.0.0.1:" + ports[0]
	for _, argv := range [][]string{
		{
			"etcd", "--data-dir", in("etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", "http://127.0.0.1:" + ports[1],
		},
		{
			"kube-apiserver", "--etcd-servers=" + etcd, "--secure-port=" + ports[2], "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
			"--cert-dir=" + in("pki"), "--token-auth-file=" + in("tokens.csv"), "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
			"--service-account-issuer=https://slipway.test", "--service-account-key-file=" + in("sa.key"),
			"--service-account-signing-key-file=" + in("sa.key"), "--service-cluster-ip-range=10.96.0.0/16", "--profiling=false",
		},
	} {
		log, err := os.Create(in(argv[0] + ".log"))
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(filepath.Join(bin, argv[0]), argv[1:]...)
		c.Stdout, c.Stderr = log, log
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = c.Start()
		log.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
			if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("%s", text[max(0, len(text)-2000):])
			}
		})
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", meta.GetOptions{})
		if err == nil {
			return client, in("kubeconfig")
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}

// An API server takes all objects of the chart, also as an upgrade of each other. The key stays the same through upgrades, and
// through an uninstallation. Workers have rights in the namespace of programs alone.
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
		if name == "other" { // the namespace of programs and the key's Secret stay those of the installation
			text = strings.NewReplacer("namespace: programs, ", "", "secretsKey: {existingSecret: mine}", "").Replace(text)
		}
		helm("upgrade", "slipway", "slipway", "--values="+main, "--values="+values(text), "--wait=hookOnly")
	}
	if key() != first {
		t.Error("an upgrade made another key")
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
		t.Error("a new installation has another key than the one before")
	}
}
