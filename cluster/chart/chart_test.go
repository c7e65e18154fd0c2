// Package chart tests the Helm chart that installs Slipway on Kubernetes.
package chart

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	podsecurity "k8s.io/pod-security-admission/api"
	checks "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"slipway/cluster/kube"
)

// needed sets the values that have no default.
const needed = `
baseURL: https://slipway.example.com
siteDomain: sites.example.net
images: {registry: registry.example.com/slipway, tag: 1.2.3+x}
database: {existingSecret: slipway-database}
objectStore: {url: "s3://files?endpoint=https://s3.example.com", existingSecret: slipway-store}
`

// variants holds values that together render every branch of the templates.
var variants = map[string]string{
	"default": "",
	"other": `
images: {pullSecrets: [registry], pullPolicy: Always}
secretsKey: {existingSecret: mine}
acme: {directories: ["https://acme.example.com/directory"], email: ops@example.com}
settings: {sign-up: open, rate-limit: 200, billing: true, trusted-proxy: [10.0.0.1/32, 10.0.0.2/32]}
secretSettings: [{name: SLIPWAY_SMTP_PASSWORD, secret: mail, key: password}]
edge:
  kind: DaemonSet
  http3: true
  drainDelay: 30s
  service: {type: NodePort, annotations: {a: b}, nodePorts: {http: 30080, https: 30443}}
  nodeSelector: {edge: "true"}
  tolerations: [{key: edge, operator: Exists, effect: NoSchedule}]
worker: {replicas: 1, nodeSelector: {worker: "true"}, tolerations: [{operator: Exists}]}
programs: {namespace: programs, firstUID: 1000200000, storage: {class: fast, access: ReadWriteMany}, network: {enforced: false, ownRanges: [203.0.113.0/24]}, quota: {pods: 10}}
`,
	"cluster address": "images: {prepull: false}\nedge: {service: {type: ClusterIP}}",
}

// render renders the chart with merged values, and parses its objects strictly: a field that the API doesn't know is an
// error.
func render(values ...string) ([]runtime.Object, error) {
	c, err := loader.LoadDir("slipway")
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for _, text := range values {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return nil, err
		}
		all = loader.MergeMaps(all, v)
	}
	release := common.ReleaseOptions{Name: "slipway", Namespace: "hosting", IsInstall: true}
	to, err := util.ToRenderValues(c, all, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, to)
	if err != nil {
		return nil, err
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for part := range strings.SplitSeq("\n"+files[name], "\n---\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			o, _, err := strict.Decode([]byte(part), nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, part)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

func must(t *testing.T, values ...string) []runtime.Object {
	t.Helper()
	objects, err := render(append([]string{needed}, values...)...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// of returns the objects of one type, by name.
func of[T any](objects []runtime.Object) map[string]*T {
	all := map[string]*T{}
	for _, o := range objects {
		if x, ok := o.(any).(*T); ok {
			all[o.(meta.Object).GetName()] = x
		}
	}
	return all
}

// pods returns the pod templates by the name of their Deployment or other owner.
func pods(objects []runtime.Object) map[string]*core.PodTemplateSpec {
	all := map[string]*core.PodTemplateSpec{}
	for name, d := range of[apps.Deployment](objects) {
		all[name] = &d.Spec.Template
	}
	for name, d := range of[apps.DaemonSet](objects) {
		all[name] = &d.Spec.Template
	}
	return all
}

// All fields of the objects are known. Pods meet the Pod Security Standard "restricted", only workers have a token,
// selectors match pods, and each mount has a volume.
func TestObjects(t *testing.T) {
	evaluator, err := checks.NewEvaluator(checks.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			objects := must(t, values)
			seen := map[string]bool{}
			for _, o := range objects {
				m := o.(meta.Object)
				id := o.GetObjectKind().GroupVersionKind().Kind + "/" + m.GetNamespace() + "/" + m.GetName()
				if seen[id] || m.GetLabels()["app.kubernetes.io/instance"] != "slipway" {
					t.Errorf("%s is there twice, or has the labels %v", id, m.GetLabels())
				}
				seen[id] = true
			}
			made := pods(objects)
			for name, p := range made {
				for _, r := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &p.ObjectMeta, &p.Spec) {
					if !r.Allowed {
						t.Errorf("%s: %s: %s", name, r.ForbiddenReason, r.ForbiddenDetail)
					}
				}
				worker := strings.HasSuffix(name, "-worker")
				if token := p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken; token != worker || (p.Spec.ServiceAccountName != "") != worker {
					t.Errorf("%s has a token: %t, the account %q", name, token, p.Spec.ServiceAccountName)
				}
				volumes := map[string]bool{}
				for _, v := range p.Spec.Volumes {
					volumes[v.Name] = true
				}
				for _, c := range p.Spec.Containers {
					if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
						t.Errorf("%s: its root can be written", name)
					}
					if c.Resources.Limits.Memory().IsZero() {
						t.Errorf("%s: no limit of memory", name)
					}
					for _, m := range c.VolumeMounts {
						if !volumes[m.Name] {
							t.Errorf("%s mounts %s, which it lacks", name, m.Name)
						}
					}
				}
			}
			selects := func(what string, s labels.Selector, want int) {
				t.Helper()
				n := 0
				for _, p := range made {
					if s.Matches(labels.Set(p.Labels)) {
						n++
					}
				}
				if n != want {
					t.Errorf("%s selects %d kinds of pods", what, n)
				}
			}
			for name, s := range of[core.Service](objects) {
				selects("the Service "+name, labels.SelectorFromSet(s.Spec.Selector), 1)
			}
			for name, b := range of[policy.PodDisruptionBudget](objects) {
				s, err := meta.LabelSelectorAsSelector(b.Spec.Selector)
				if err != nil {
					t.Fatal(err)
				}
				selects("the budget "+name, s, 1)
			}
			for name, p := range made {
				if c := p.Spec.Containers[0]; c.ReadinessProbe == nil && !strings.HasSuffix(name, "-images") {
					t.Errorf("%s has no probe", name)
				}
			}
		})
	}
}

// arguments returns the container's arguments.
func arguments(p *core.PodTemplateSpec) []string { return p.Spec.Containers[0].Args }

// An upgrade with --reuse-values from a chart without programs.firstUID doesn't change user IDs.
func TestReusedValues(t *testing.T) {
	for _, a := range arguments(pods(must(t, "programs: {firstUID: null}"))["slipway-worker"]) {
		if strings.HasPrefix(a, "--kubernetes-first-uid") {
			t.Errorf("the worker has the argument %s", a)
		}
	}
}

// Settings and secrets reach edges and workers. Secrets aren't part of the pod's specification.
func TestSettings(t *testing.T) {
	made := pods(must(t, variants["other"]))
	for of, want := range map[string][]string{
		"slipway-edge": {
			"--roles=api,edge", "--drain-delay=30s", "--http3", "--sign-up=open", "--rate-limit=200", "--billing=true",
			"--trusted-proxy=10.0.0.1/32", "--trusted-proxy=10.0.0.2/32", "--acme-ca=https://acme.example.com/directory",
		},
		"slipway-worker": {
			"--roles=worker,edge", "--kubernetes-namespace=programs", "--allow-unenforced-network", "--kubernetes-storage-class=fast", "--kubernetes-storage-access=ReadWriteMany", "--kubernetes-first-uid=1000200000", "--node-address=$(POD_IP):7443", "--sign-up=open",
		},
	} {
		p := made[of]
		for _, a := range want {
			if !slices.Contains(arguments(p), a) {
				t.Errorf("%s lacks %s: %q", of, a, arguments(p))
			}
		}
		env := map[string]*core.SecretKeySelector{}
		plain := map[string]string{}
		for _, e := range p.Spec.Containers[0].Env {
			plain[e.Name] = e.Value
			if e.ValueFrom != nil {
				env[e.Name] = e.ValueFrom.SecretKeyRef
			}
		}
		for name, want := range map[string]string{
			"SLIPWAY_BLOBS": "s3://files?endpoint=https://s3.example.com", "SLIPWAY_SITE_DOMAIN": "sites.example.net", "SLIPWAY_BASE_URL": "https://slipway.example.com",
		} {
			if plain[name] != want {
				t.Errorf("%s has %s=%q", of, name, plain[name])
			}
		}
		for name, secret := range map[string]string{
			"SLIPWAY_DATABASE": "slipway-database", "AWS_SECRET_ACCESS_KEY": "slipway-store", "SLIPWAY_SMTP_PASSWORD": "mail",
		} {
			if env[name] == nil || env[name].Name != secret {
				t.Errorf("%s has %s from %v", of, name, env[name])
			}
		}
	}
	if a := arguments(pods(must(t))["slipway-worker"]); slices.Contains(a, "--allow-unenforced-network") {
		t.Error("by default, the worker has --allow-unenforced-network")
	}
	var images []kube.Image
	text := of[core.ConfigMap](must(t))["slipway-images"].Data["images.json"]
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&images); err != nil || len(images) != 5 || len(images[4].PHP) != 1 || images[0].Name != "registry.example.com/slipway/slipway-runtime:1.2.3-x-node24" || images[0].Node == "" {
		t.Errorf("images of programs %s: %v", text, err)
	}
}

// A pod's grace period is longer than its drain takes.
func TestGrace(t *testing.T) {
	for values, least := range map[string]int64{"": 15 + 20 + 10, "edge: {drainDelay: 100s}": 100 + 20 + 10} {
		if got := *pods(must(t, values))["slipway-edge"].Spec.TerminationGracePeriodSeconds; got <= least {
			t.Errorf("%q gives %d s, %d are needed", values, got, least)
		}
	}
	worker := pods(must(t))["slipway-worker"]
	if got := *worker.Spec.TerminationGracePeriodSeconds; !slices.Contains(arguments(worker), "--drain-delay=10s") || got <= 10+20+10+60 {
		t.Errorf("a worker has %d s: %q", got, arguments(worker))
	}
}

// Uninstalling keeps only data: the key, and the namespace with the volumes.
func TestKept(t *testing.T) {
	var kept []string
	for _, o := range must(t) {
		m := o.(meta.Object)
		if m.GetAnnotations()["helm.sh/resource-policy"] == "keep" {
			kept = append(kept, m.GetName())
		}
	}
	slices.Sort(kept)
	if !slices.Equal(kept, []string{"slipway-key", "slipway-programs"}) {
		t.Errorf("kept: %q", kept)
	}
	key := of[core.Secret](must(t))["slipway-key"].Data["secrets.key"]
	if len(key) != 65 || strings.Trim(string(key[:64]), "0123456789abcdef") != "" {
		t.Errorf("the key has %d bytes", len(key))
	}
	if len(of[core.Secret](must(t, variants["other"]))) != 0 {
		t.Error("a key is generated although one exists")
	}
}

// Wrong, unknown and missing values are rejected.
func TestSchema(t *testing.T) {
	for values, want := range map[string]string{
		"edges: {}":                                          "edges",
		"edge: {replica: 3}":                                 "replica",
		"edge: {kind: StatefulSet}":                          "kind",
		"edge: {drainDelay: 1m}":                             "drainDelay",
		"worker: {replicas: 0}":                              "replicas",
		"baseURL: http://x.example.com":                      "baseURL",
		"baseURL: https://x.example.com/a":                   "baseURL",
		"siteDomain: ''":                                     "siteDomain",
		"images: {registry: ''}":                             "registry",
		"images: {runtimes: []}":                             "runtimes",
		"objectStore: {url: /var/lib}":                       "url",
		"database: {existingSecret: ''}":                     "existingSecret",
		"settings: {roles: edge}":                            "roles",
		"settings: {database: postgres://}":                  "database",
		"worker: {resources: {limits: {memory: null}}}":      "memory",
		"secretSettings: [{name: lower, secret: a, key: b}]": "name",
	} {
		if _, err := render(needed, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
	if _, err := render(""); err == nil {
		t.Error("a chart without values was accepted")
	}
}

// The chart's network policies are those that the engine's tests check, and a default policy that denies everything
// else.
func TestPolicies(t *testing.T) {
	workers := networking.NetworkPolicyPeer{
		NamespaceSelector: &meta.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "hosting"}},
		PodSelector: &meta.LabelSelector{MatchLabels: map[string]string{
			"app.kubernetes.io/name": "slipway", "app.kubernetes.io/instance": "slipway", "app.kubernetes.io/component": "worker",
		}},
	}
	objects := must(t, "programs: {network: {ownRanges: [203.0.113.0/24]}}")
	have := of[networking.NetworkPolicy](objects)
	for _, want := range kube.PoliciesOf([]networking.NetworkPolicyPeer{workers}, 8444, []string{"203.0.113.0/24"}) {
		got := have[want.Name]
		if got == nil || !reflect.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("%s is\n%+v\nthe engine's is\n%+v", want.Name, got, want)
		}
		delete(have, want.Name)
	}
	if closed := have["slipway-default"]; len(have) != 1 || closed == nil || len(closed.Spec.PolicyTypes) != 2 || closed.Spec.Ingress != nil || closed.Spec.Egress != nil {
		t.Errorf("beside them there are %v", have)
	}
	want := kube.Namespace("slipway-programs")
	got := of[core.Namespace](objects)["slipway-programs"]
	for key, value := range want.Labels {
		if strings.HasPrefix(key, "pod-security") && got.Labels[key] != value {
			t.Errorf("the namespace has %s=%s", key, got.Labels[key])
		}
	}
}

// The role of workers allows exactly the API calls that the engine's source contains.
func TestRole(t *testing.T) {
	calls := map[string]bool{"pods list": true, "pods watch": true} // of the informer
	resources := map[string]string{
		"Pods": "pods", "Secrets": "secrets", "PersistentVolumeClaims": "persistentvolumeclaims", "Jobs": "jobs", "ConfigMaps": "configmaps", "Deployments": "deployments",
		"Services": "services", "NetworkPolicies": "networkpolicies", "Leases": "leases", "Nodes": "nodes", "Namespaces": "namespaces", "StorageClasses": "storageclasses", "ServiceAccounts": "serviceaccounts",
	}
	verbs := []string{"Create", "Update", "Patch", "Delete", "DeleteCollection", "Get", "List", "Watch", "UpdateStatus", "Apply", "GetLogs", "Evict"}
	err := fs.WalkDir(os.DirFS(".."), "kube", func(p string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Join("..", p), nil, 0)
		if err != nil {
			return err
		}
		noun := func(e ast.Expr) string { // Client.CoreV1().Pods(namespace)
			if on, ok := e.(*ast.CallExpr); ok {
				if s, ok := on.Fun.(*ast.SelectorExpr); ok {
					return resources[s.Sel.Name]
				}
			}
			return ""
		}
		kept := map[string]string{} // variable → resource
		ast.Inspect(file, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
				for i, e := range a.Rhs {
					if v, ok := a.Lhs[i].(*ast.Ident); ok && noun(e) != "" {
						kept[v.Name] = noun(e)
					}
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			verb, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(verbs, verb.Sel.Name) {
				return true
			}
			name := noun(verb.X)
			if v, ok := verb.X.(*ast.Ident); ok {
				name = kept[v.Name]
			}
			if name != "" {
				if verb.Sel.Name == "GetLogs" {
					calls[name+"/log get"] = true
				} else {
					calls[name+" "+strings.ToLower(verb.Sel.Name)] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	roles := of[rbac.Role](must(t))
	for _, rule := range roles["slipway-worker"].Rules {
		for _, r := range rule.Resources {
			for _, v := range rule.Verbs {
				granted[r+" "+v] = true
			}
		}
	}
	want, got := slices.Sorted(maps.Keys(calls)), slices.Sorted(maps.Keys(granted))
	if len(want) < 6 || !slices.Equal(got, want) {
		t.Errorf("granted:  %q\nthe engine needs: %q", got, want)
	}
	if len(roles) != 1 || len(of[rbac.ClusterRole](must(t))) != 0 {
		t.Error("the chart has other roles")
	}
}
