//go:build cluster

package chart

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"slipway/cluster/kubetest"
	"slipway/internal/platform/blob/s3test"
)

// The namespaces of the release and of its programs.
const (
	hosting  = "hosting"
	programs = "slipway-programs"
)

// installed is an installation of the chart on the cluster that scripts/cluster started.
type installed struct {
	t      *testing.T
	config *rest.Config
	client kubernetes.Interface
	built  string // folder with the built programs
	values string // file with the chart's values
	git    string // folder with the repositories
	key    string // API key
	bucket string // URL of the bucket for files
	place  string // location of the installation's backups

	database  func(name string) (url string) // creates a database on the server beside the cluster
	newBucket func() *url.URL                // creates a bucket in that object store; the pods have its keys in their environment
}

// until calls try until it succeeds, and fails the test after three minutes.
func (i *installed) until(what string, try func() error) {
	i.t.Helper()
	const patience = 3 * time.Minute
	for late := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			i.t.Fatalf("not after %v: %s: %v", patience, what, err)
		}
	}
}

// must returns the list of objects and similar functions, or ends the test on an error.
func (i *installed) must(all []string, err error) []string {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
	return all
}

// prepare sets up what an operator has before the installation: PostgreSQL, an object store and a Git host beside the
// cluster, the release's namespace with two Secrets, a storage class, and a values file.
func prepare(t *testing.T) *installed {
	address := os.Getenv("SLIPWAY_CLUSTER_ADDRESS")
	i := &installed{
		t: t, built: os.Getenv("SLIPWAY_CLUSTER_BUILT"), values: filepath.Join(t.TempDir(), "values.yaml"), git: t.TempDir(),
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		config.QPS = -1 // no rate limit: load lists ready edges all the time
		i.config = config
		i.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			i.tell()
		}
	})
	dsn, err := url.Parse(os.Getenv("SLIPWAY_TEST_DSN"))
	if err != nil {
		t.Fatal(err)
	}
	server := pass(t, address, "unix", filepath.Join(dsn.Query().Get("host"), ".s.PGSQL.5432"))
	i.database = func(name string) string { return "postgres://postgres@" + server + "/" + name + "?sslmode=disable" }
	store, err := s3test.Start(filepath.Join(t.TempDir(), "buckets"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Stop)
	endpoint := "http://" + pass(t, address, "tcp", store.Addr)
	i.newBucket = func() *url.URL {
		bucket, err := store.NewBucket()
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(bucket)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("endpoint", endpoint)
		query.Del("access-key")
		query.Del("secret-key")
		u.User, u.RawQuery = nil, query.Encode()
		return u
	}
	i.bucket = i.newBucket().String()
	i.place = i.newBucket().JoinPath("whole").String()

	if _, err := i.client.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{
		Name: hosting, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string]string{
		"database": {"url": i.database("postgres")},
		"store":    {"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey},
	} {
		if _, err := i.client.CoreV1().Secrets(hosting).Create(t.Context(), &core.Secret{ObjectMeta: meta.ObjectMeta{Name: name}, StringData: data}, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	i.until("the namespace has what each one has", func() error {
		_, err := i.client.CoreV1().ServiceAccounts(hosting).Get(t.Context(), "default", meta.GetOptions{})
		_, err2 := i.client.CoreV1().ConfigMaps(hosting).Get(t.Context(), "kube-root-ca.crt", meta.GetOptions{})
		return errors.Join(err, err2)
	})
	i.provision()
	t.Cleanup(kubetest.Enforce(t.Context(), i.client, programs))
	values := fmt.Sprintf(`
baseURL: https://slipway.example
siteDomain: sites.test
images: {registry: localhost, runtimes: [{suffix: node24, node: %s}]}
database: {existingSecret: database}
objectStore: {url: %q, existingSecret: store}
settings: {git-host: ["git.test=http://%s"]}
edge: {drainDelay: 5s, service: {type: ClusterIP}, dataSize: 1Gi}
worker: {dataSize: 1Gi}
programs: {network: {enforced: true}}
`, os.Getenv("SLIPWAY_CLUSTER_NODE24"), i.bucket, i.gitHost(address))
	values = strings.Replace(values, "registry: localhost", "registry: localhost, tag: "+os.Getenv("SLIPWAY_CLUSTER_TAG"), 1)
	if err := os.WriteFile(i.values, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// pass listens on a host and forwards connections to another address.
func pass(t *testing.T, host, network, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial(network, to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}

// provision creates the cluster's default storage class, and a volume for each claim.
func (i *installed) provision() {
	const class = "local"
	mode := storage.VolumeBindingImmediate
	if _, err := i.client.StorageV1().StorageClasses().Create(i.t.Context(), &storage.StorageClass{
		ObjectMeta:  meta.ObjectMeta{Name: class, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode,
	}, meta.CreateOptions{}); err != nil {
		i.t.Fatal(err)
	}
	dir := i.t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) { // pods must be able to read it
		if err := os.Chmod(at, 0o755); err != nil {
			i.t.Fatal(err)
		}
	}
	go func() {
		for ctx := i.t.Context(); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			claims, err := i.client.CoreV1().PersistentVolumeClaims(programs).List(ctx, meta.ListOptions{})
			if err != nil {
				continue
			}
			for _, c := range claims.Items {
				name := "volume-" + string(c.UID)
				if os.MkdirAll(filepath.Join(dir, name), 0o755) != nil {
					continue
				}
				// Fails if the volume already exists.
				_, _ = i.client.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{
					ObjectMeta: meta.ObjectMeta{Name: name},
					Spec: core.PersistentVolumeSpec{
						Capacity: core.ResourceList{core.ResourceStorage: c.Spec.Resources.Requests[core.ResourceStorage]}, AccessModes: c.Spec.AccessModes,
						PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain, StorageClassName: class,
						ClaimRef:               &core.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
						PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: filepath.Join(dir, name)}},
						NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
							MatchExpressions: []core.NodeSelectorRequirement{{Key: core.LabelHostname, Operator: core.NodeSelectorOpExists}},
						}}}},
					},
				}, meta.CreateOptions{})
			}
		}
	}()
}

// gitHost serves the repositories on a host and returns HOST:PORT.
func (i *installed) gitHost(address string) string {
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		i.t.Fatal(err)
	}
	backend := i.run(nil, "git", "--exec-path")
	s := &http.Server{Handler: &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(backend), "git-http-backend"), Root: "/", Stderr: io.Discard,
		Env: []string{
			"GIT_PROJECT_ROOT=" + i.git, "GIT_HTTP_EXPORT_ALL=1", "HOME=/nonexistent", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=uploadpack.allowFilter", "GIT_CONFIG_VALUE_1=true",
		},
	}}
	go s.Serve(l)
	i.t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// commit creates a repository with these files.
func (i *installed) commit(name string, files map[string]string) {
	i.t.Helper()
	work := i.folder(files)
	bare := filepath.Join(i.git, name+".git")
	i.run(nil, "sh", "-ec", `git init --quiet --bare --initial-branch=main "$1"; cd "$2"; git init --quiet --initial-branch=main; git add --all
git -c user.name=Test -c user.email=test@example.test -c commit.gpgsign=false commit --quiet --message=first; git push --quiet "$1" main`, "sh", bare, work)
}

// folder creates a folder with these files.
func (i *installed) folder(files map[string]string) string {
	i.t.Helper()
	dir := i.t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			i.t.Fatal(err)
		}
	}
	return dir
}

// run runs a command and returns its output.
func (i *installed) run(env []string, name string, args ...string) string {
	i.t.Helper()
	c := exec.CommandContext(i.t.Context(), name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		i.t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (i *installed) helm(args ...string) {
	i.t.Helper()
	begun := time.Now()
	i.run([]string{"HOME=" + i.t.TempDir()}, filepath.Join(i.built, "helm"), append(args, "--namespace="+hosting)...)
	i.t.Logf("helm %s took %v", args[0], time.Since(begun).Round(time.Second))
}

// pods returns the release's pods that match a label selector.
func (i *installed) pods(selector string) (all []core.Pod) {
	list, err := i.client.CoreV1().Pods(hosting).List(context.WithoutCancel(i.t.Context()), meta.ListOptions{LabelSelector: selector})
	if err != nil {
		i.t.Error(err)
		return nil
	}
	return list.Items
}

// ready sends the request of a pod's readiness probe.
func ready(ctx context.Context, p core.Pod) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Status.PodIP+":8080/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// logs returns a pod's log, or its last lines.
func (i *installed) logs(namespace, pod string, lines int64) string {
	o := &core.PodLogOptions{}
	if lines > 0 {
		o.TailLines = &lines
	}
	text, err := i.client.CoreV1().Pods(namespace).GetLogs(pod, o).DoRaw(context.WithoutCancel(i.t.Context()))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// logsOfStart checks the pods' logs after the start: all edges together print one setup link, and no pod warns that
// builds are refused, because builds run in pods.
func (i *installed) logsOfStart() {
	i.t.Helper()
	links := map[string]bool{}
	for _, p := range i.pods("app.kubernetes.io/component in (edge, worker)") {
		text := i.logs(hosting, p.Name, 0)
		if strings.Contains(text, "builds are refused") {
			i.t.Errorf("%s: %s", p.Name, text)
		}
		for _, link := range regexp.MustCompile(`https://slipway\.example/setup/\S+`).FindAllString(text, -1) {
			links[link] = true
		}
	}
	if len(links) != 1 {
		i.t.Errorf("setup links: %q", slices.Sorted(maps.Keys(links)))
	}
}

// tell logs the state of the pods to help with failures.
func (i *installed) tell() {
	for _, namespace := range []string{hosting, programs} {
		pods, err := i.client.CoreV1().Pods(namespace).List(context.Background(), meta.ListOptions{})
		if err != nil {
			i.t.Log(err)
			return
		}
		for _, p := range pods.Items {
			state := ""
			for _, c := range p.Status.ContainerStatuses {
				state += fmt.Sprintf(", %s: ready %v, %d restarts", c.Name, c.Ready, c.RestartCount)
			}
			i.t.Logf("%s is %s%s\n%s", p.Name, p.Status.Phase, state, i.logs(namespace, p.Name, 60))
		}
	}
}

// edges returns the addresses of ready edges, like a load balancer.
func (i *installed) edges() (all []string) {
	for _, p := range i.pods("app.kubernetes.io/component=edge") {
		for _, c := range p.Status.Conditions {
			if c.Type == core.PodReady && c.Status == core.ConditionTrue && p.DeletionTimestamp == nil {
				all = append(all, p.Status.PodIP)
			}
		}
	}
	return all
}

// inEdge runs a command in an edge.
func (i *installed) inEdge(stdin string, argv ...string) string {
	i.t.Helper()
	return i.in("edge", stdin, argv...)
}

// in runs a command in a pod of the release, like kubectl exec.
func (i *installed) in(component, stdin string, argv ...string) string {
	i.t.Helper()
	var pod string
	for _, p := range i.pods("app.kubernetes.io/component=" + component) {
		if p.DeletionTimestamp == nil {
			pod = p.Name
		}
	}
	req := i.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(hosting).Name(pod).SubResource("exec").
		VersionedParams(&core.PodExecOptions{Container: "slipway", Command: argv, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(i.config, http.MethodGet, req.URL().String())
	if err != nil {
		i.t.Fatal(err)
	}
	var out, wrong bytes.Buffer
	if err := e.StreamWithContext(i.t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &wrong}); err != nil {
		i.t.Fatalf("%q: %v\n%s%s", argv, err, &out, &wrong)
	}
	return out.String()
}

// atEdge returns a client that sends all requests to one edge.
func atEdge(edge string) *http.Client {
	return &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // certificates are from the installation's own authority
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(edge, "443"))
			},
		},
	}
}

// ask sends a request to an edge. A status other than 2xx is an error.
func ask(edge string, req *http.Request) (string, error) {
	resp, err := atEdge(edge).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.300s", resp.Status, text)
	}
	return string(text), err
}

// page requests a site's home page from an edge.
func page(ctx context.Context, edge, host string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
	if err != nil {
		return "", err
	}
	return ask(edge, req)
}

// api sends a request to the REST API at an edge.
func (i *installed) api(method, path, body string) string {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), method, "https://slipway.example/api/v1"+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.key)
	req.Header.Set("Content-Type", "application/json")
	text, err := ask(i.edges()[0], req)
	if err != nil {
		i.t.Fatalf("%s %s: %v", method, path, err)
	}
	return text
}

// site creates a repository with these files and a site from it, which is then deployed.
func (i *installed) site(name string, files map[string]string) {
	i.t.Helper()
	i.commit("acme/"+name, files)
	i.api(http.MethodPost, "/sites", fmt.Sprintf(`{"name": %q, "type": "static", "repository": "git.test/acme/%[1]s"}`, name))
}

// answer checks each site at both edges.
func (i *installed) answer(sites map[string]string) error {
	edges := i.edges()
	if len(edges) != 2 {
		return fmt.Errorf("edges that are ready: %q", edges)
	}
	for _, e := range edges {
		for host, want := range sites {
			if text, err := page(i.t.Context(), e, host); err != nil || text != want {
				return fmt.Errorf("%s at %s: %q, %w", host, e, text, err)
			}
		}
	}
	return nil
}

// load sends requests for the sites to ready edges, with two clients per site, while during runs, and counts the
// responses. A failed request fails the test.
func (i *installed) load(sites map[string]string, during func()) (good, failed int64) {
	loading, stop := context.WithCancel(i.t.Context())
	defer stop()
	var visitors sync.WaitGroup
	var right, wrong atomic.Int64
	slowest := make([]time.Duration, 2*len(sites))
	for n, host := range slices.Repeat(slices.Sorted(maps.Keys(sites)), 2) {
		visitors.Go(func() {
			for k := n; loading.Err() == nil; k++ {
				edges := i.edges()
				if len(edges) == 0 {
					wrong.Add(1)
					i.t.Error("no edge is ready")
					return
				}
				begun := time.Now()
				if text, err := page(context.WithoutCancel(loading), edges[k%len(edges)], host); err != nil || text != sites[host] {
					wrong.Add(1)
					i.t.Errorf("%s after %v: %q, %v", host, time.Since(begun).Round(time.Millisecond), text, err)
				} else {
					right.Add(1)
				}
				slowest[n] = max(slowest[n], time.Since(begun))
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	during()
	stop()
	visitors.Wait()
	i.t.Logf("slowest of each visitor of %q: %v", slices.Repeat(slices.Sorted(maps.Keys(sites)), 2), slowest)
	return right.Load(), wrong.Load()
}

// objects lists all objects in the two namespaces, and the chart's objects without a namespace, except Events.
func (i *installed) objects() (all []string, err error) {
	kinds, err := i.client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range kinds {
		prefix := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			prefix = "/api/v1"
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" {
				continue
			}
			var found meta.PartialObjectMetadataList
			text, err := i.client.Discovery().RESTClient().Get().AbsPath(prefix, r.Name).
				SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(i.t.Context())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			if err := json.Unmarshal(text, &found); err != nil {
				return nil, err
			}
			for _, o := range found.Items {
				switch {
				case o.Namespace == hosting || o.Namespace == programs:
					all = append(all, r.Kind+" "+o.Namespace+"/"+o.Name)
				case o.Namespace == "" && o.Labels["app.kubernetes.io/instance"] == "slipway":
					all = append(all, r.Kind+" "+o.Name)
				}
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
