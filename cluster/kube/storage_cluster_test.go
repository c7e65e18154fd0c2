//go:build cluster

package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// storageClass is the storage class of the volumes that provision creates.
const storageClass = "slipway-test"

// provision acts as a provisioner of local volumes: it creates a folder on the node for each claim.
func provision(ctx context.Context, c kubernetes.Interface, namespace, dir string) error {
	expands := true
	_, err := c.StorageV1().StorageClasses().Create(ctx, &storage.StorageClass{
		ObjectMeta: meta.ObjectMeta{Name: storageClass}, Provisioner: "slipway.dev/test", AllowVolumeExpansion: &expands,
	}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	go func() {
		made := map[string]bool{}
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			claims, err := c.CoreV1().PersistentVolumeClaims(namespace).List(ctx, meta.ListOptions{})
			if err != nil {
				continue
			}
			there := map[string]bool{}
			for _, claim := range claims.Items {
				there["volume-"+string(claim.UID)] = true
			}
			for name := range made {
				if !there[name] && removeOne(dir, name) == nil { // like most storage classes
					delete(made, name)
				}
			}
			for _, claim := range claims.Items {
				if name := "volume-" + string(claim.UID); !made[name] && provisionOne(ctx, c, claim, name, filepath.Join(dir, name)) == nil {
					made[name] = true
				}
			}
		}
	}()
	return nil
}

// removeOne deletes the volume of a deleted claim, and the link by which tests find it.
func removeOne(dir, name string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		link := filepath.Join(dir, e.Name())
		if at, failed := os.Readlink(link); failed == nil && at == filepath.Join(dir, name) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
}

func provisionOne(ctx context.Context, c kubernetes.Interface, claim core.PersistentVolumeClaim, name, at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if site := claim.Annotations[markSite]; site != "" && claim.Annotations[markPreview] == "" {
		link := filepath.Join(filepath.Dir(at), site) // the link by which tests find it
		_ = os.Remove(link)
		if err := os.Symlink(at, link); err != nil {
			return err
		}
	}
	_, err := c.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.PersistentVolumeSpec{
			Capacity: core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]}, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain, StorageClassName: storageClass,
			ClaimRef:               &core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: at}},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
				MatchExpressions: []core.NodeSelectorRequirement{{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{"n1"}}},
			}}}},
		},
	}, meta.CreateOptions{})
	return err
}

// storingScript is a program that writes what requests ask for and counts the requests.
const storingScript = `
const fs = require('fs')
let n = 0
require('http').createServer((q, r) => {
  const [, what, arg] = decodeURIComponent(q.url).split('!')
  try {
    if (what === 'fill') fs.appendFileSync('data/big', Buffer.alloc(Number(arg)))
    if (what === 'write') fs.appendFileSync('data/file', arg)
    r.end(what === 'read' ? fs.readFileSync('data/file', 'utf8') : 'done ' + ++n)
  } catch (e) { r.end(e.code) }
}).listen(process.env.PORT, process.env.HOST)
`

func (c *cluster) storing(name, site string) (runtime.Spec, func() string) {
	s, said := c.spec(name, storingScript)
	s.Site, s.Storage, s.Limits.Storage = id.Site(site), []runtime.Storage{{Path: "data"}}, 8<<20
	return s, said
}

// asked sends a request to a program. No response within the time is an error.
func asked(p runtime.Program, question string, within time.Duration) (string, error) {
	h := http.Client{Timeout: within, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) },
	}}
	resp, err := h.Get("http://program/!" + question)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func (c *cluster) begin(e *Engine, s runtime.Spec) runtime.Program {
	c.t.Helper()
	p, err := e.Start(c.t.Context(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { p.Stop(0) })
	return p
}

// ask repeats a request until the program answers.
func (c *cluster) ask(p runtime.Program, question string) (answer string) {
	c.t.Helper()
	until(c.t, "it answers "+question, func() (ok bool) {
		var err error
		answer, err = asked(p, question, patience)
		return err == nil
	})
	return answer
}

// A site's storage is kept, and its size is known while the program runs and later. The site and its previews have
// separate storage, which is deleted when it is forgotten. A program that exceeds its limit is ended, and one that
// starts far above the limit can only read.
func TestStorage(t *testing.T) {
	c := newCluster(t, client(t), "storage", true)
	s, said := c.storing("one", "site_stores")
	p := c.begin(c.Engine, s)
	if got := c.ask(p, "write!hello"); got != "done 1" {
		t.Fatal(got)
	}
	until(t, "what it stores is counted", func() bool {
		n, err := c.StorageSize(t.Context(), s.Site)
		return err == nil && n > 0 && n < 1<<20
	})
	if _, err := asked(p, "fill!20000000", patience); err != nil {
		t.Log(err)
	}
	if e := p.Exit(); e.Reason != "storage limit" {
		t.Errorf("with too much it ended as %+v", e)
	}
	if n, err := c.StorageSize(t.Context(), s.Site); err != nil || n < 20_000_000 || n > 30_000_000 {
		t.Errorf("at its end %d bytes, %v", n, err)
	}
	s.ID = "run_two" // slightly above the limit
	p = c.begin(c.Engine, s)
	if got := c.ask(p, "write!more"); got != "done 1" {
		t.Errorf("with full storage it answers %s", got)
	}
	until(t, "it says that storage is full", func() bool { return strings.Contains(said(), "Storage is full: ") })
	if _, err := asked(p, "fill!100000000", patience); err != nil {
		t.Log(err)
	}
	p.Exit()
	s.ID = "run_three"
	p = c.begin(c.Engine, s)
	if got := c.ask(p, "write!never"); got != "EROFS" {
		t.Errorf("with far too much it answers %s", got)
	}
	until(t, "it says that storage is read-only", func() bool { return strings.Contains(said(), "Storage is full and read-only: ") })
	if got := c.ask(p, "read"); got != "hellomore" {
		t.Errorf("the program reads %q", got)
	}
	preview, _ := c.storing("preview", "site_stores")
	preview.Preview = "pull7"
	q := c.begin(c.Engine, preview)
	if got := c.ask(q, "read"); got != "ENOENT" {
		t.Errorf("a preview begins with %q", got)
	}
	if sites, err := c.StorageSites(); err != nil || !slices.Equal(sites, []id.Site{s.Site}) {
		t.Errorf("sites with storage: %v, %v", sites, err)
	}
	if stores, err := c.PreviewStores(); err != nil || !slices.Equal(stores[s.Site], []string{"pull7"}) {
		t.Errorf("previews with storage: %v, %v", stores, err)
	}
	q.Stop(0)
	p.Stop(0)
	// Without the annotation, a pod determines the size.
	name := claimName(s.Site, "")
	claim, err := c.client.CoreV1().PersistentVolumeClaims("storage").Get(t.Context(), name, meta.GetOptions{})
	if err != nil || claim.Annotations[markStored] == "" {
		t.Fatalf("noted: %v, %v", claim.Annotations, err)
	}
	delete(claim.Annotations, markStored)
	if _, err := c.client.CoreV1().PersistentVolumeClaims("storage").Update(t.Context(), claim, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.StorageSize(t.Context(), s.Site); err != nil || n < 100_000_000 || n > 200_000_000 {
		t.Errorf("counted by a pod: %d bytes, %v", n, err)
	}
	if err := c.ForgetPreview(s.Site, "pull7"); err != nil {
		t.Error(err)
	}
	if err := c.ForgetStorage(s.Site); err != nil {
		t.Error(err)
	}
	until(t, "claims are gone", func() bool {
		list, err := c.client.CoreV1().PersistentVolumeClaims("storage").List(t.Context(), meta.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	s.ID = "run_four"
	if got := c.ask(c.begin(c.Engine, s), "read"); got != "ENOENT" {
		t.Errorf("forgotten storage has %q", got)
	}
}

// While a site is held, its program doesn't answer and no other one starts. When it is released, waiting requests are
// answered.
func TestHold(t *testing.T) {
	c := newCluster(t, client(t), "hold", true)
	s, _ := c.storing("held", "site_held")
	p := c.begin(c.Engine, s)
	c.ask(p, "write!x")
	release := c.Hold(s.Site)
	type answer struct {
		text string
		err  error
	}
	answers, started := make(chan answer, 1), make(chan error, 1)
	go func() { text, err := asked(p, "write!y", patience); answers <- answer{text, err} }()
	again := s
	again.ID = "run_meanwhile"
	go func() {
		q, err := c.Start(t.Context(), again)
		if err == nil {
			q.Stop(0)
		}
		started <- err
	}()
	other, _ := c.storing("other", "site_other") // takes a while, during which nothing may happen to the held site
	c.ask(c.begin(c.Engine, other), "write!z")
	select {
	case a := <-answers:
		t.Errorf("held, it answers %+v", a)
	case err := <-started:
		t.Errorf("held, another one was started: %v", err)
	default:
	}
	release()
	if a := <-answers; a.err != nil || a.text != "done 2" {
		t.Errorf("released, it answers %+v", a)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
}

// Another process of the installation that takes over a site ends the first process's pod, and starts no program before
// that pod is gone.
func TestNoTwoWriters(t *testing.T) {
	c := newCluster(t, client(t), "writers", true)
	s, _ := c.storing("first", "site_moves")
	p := c.begin(c.Engine, s)
	c.ask(p, "write!1")
	two := c.c
	two.Name = "two"
	var err error
	if two.Packs, err = net.Listen("tcp", two.Address+":0"); err != nil {
		t.Fatal(err)
	}
	if two.Canary, err = net.Listen("tcp", two.Address+":0"); err != nil {
		t.Fatal(err)
	}
	for _, policy := range Policies([]string{two.Address + "/32", "10.244.0.1/32"}, two.Packs.Addr().(*net.TCPAddr).Port, nil) {
		policy.Name += "-two"
		if _, err := c.client.NetworkingV1().NetworkPolicies("writers").Create(t.Context(), policy, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel) // after its programs have ended
	other, err := New(ctx, two)
	if err != nil {
		t.Fatal(err)
	}
	s.ID = "run_second"
	q := c.begin(other, s)
	if got := c.ask(q, "read"); got != "1" {
		t.Errorf("the program reads %q", got)
	}
	pods, err := c.client.CoreV1().Pods("writers").List(t.Context(), meta.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
	if e := p.Exit(); e.Code == 0 {
		t.Errorf("the first one ended as %+v", e)
	}
	// The first process can read what the second one's program stores without ending the program.
	fetched, err := c.FetchStorage(t.Context(), s.Site)
	if err != nil {
		t.Fatal(err)
	}
	defer fetched.Close()
	folders, err := c.StorageFolders(s.Site)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, folders["data"], "file"); got != "1 " {
		t.Errorf("read by the first one: %q", got)
	}
	if got := c.ask(q, "read"); got != "1" {
		t.Errorf("while the first one reads, it reads %q", got)
	}
}

// Files that PHP stores are served from storage. Sessions and files outlive the pod.
func TestPHPStorage(t *testing.T) {
	c := newCluster(t, client(t), "phpstorage", true)
	s, said := c.spec("phpstores", "")
	s.Bundle = c.bundle(map[string]string{
		"index.php": `<?php session_id("sessionsessionsessionsession"); ini_set("session.use_strict_mode", "0"); session_start();
$_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1; file_put_contents("/app/up/n.txt", $_SESSION["n"]); echo $_SESSION["n"];`,
	})
	s.Argv, s.PHP, s.Storage = nil, &runtime.PHP{}, []runtime.Storage{{Path: "up"}}
	s.Limits.Memory = 256 << 20
	for i, want := range []string{"1", "2"} {
		s.ID = "run_php" + want
		p := c.begin(c.Engine, s)
		ask := site(p)
		if code, text := ask("GET", "/", ""); code != http.StatusOK || text != want {
			t.Errorf("visit %d: %d %q\n%s", i, code, text, said())
		}
		if code, text := ask("GET", "/up/n.txt", ""); code != http.StatusOK || text != want {
			t.Errorf("file %d: %d %q", i, code, text)
		}
		p.Stop(0)
	}
}
