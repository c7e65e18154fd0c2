//go:build cluster

package kube

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/cluster/builder"
	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// publicAddress is a public address that the node has during a test.
const publicAddress = "203.0.113.10"

// registry starts an npm registry with one package, at a public address.
func registry(t *testing.T) (url string) {
	t.Helper()
	if out, err := exec.Command("ip", "addr", "replace", publicAddress+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp", publicAddress+":80")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	w := tar.NewWriter(z)
	for name, body := range map[string]string{
		"package/package.json": `{"name":"shout","version":"1.2.3","main":"i.js","bin":{"shout":"cli.js"}}`,
		"package/i.js":         `module.exports = s => s.toUpperCase() + '!'`,
		"package/cli.js":       "#!/usr/bin/env node\nconst fs = require('fs'); fs.mkdirSync('dist', {recursive: true}); fs.writeFileSync('dist/index.html', require('./i.js')(process.argv[2]))\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(body))
	}
	_, _ = w.Close(), z.Close()
	sum := sha512.Sum512(text.Bytes())
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/shout":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"name":"shout","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"shout","version":"1.2.3","bin":{"shout":"cli.js"},
"dist":{"tarball":"http://%s/shout.tgz","integrity":"sha512-%s"}}}}`, publicAddress, base64.StdEncoding.EncodeToString(sum[:]))
		case "/shout.tgz":
			_, _ = w.Write(text.Bytes())
		default:
			http.NotFound(w, r)
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + publicAddress
}

// journal records what a build reports.
type journal struct {
	mu  sync.Mutex // guards all
	all []string
}

func (j *journal) add(text string)               { j.mu.Lock(); defer j.mu.Unlock(); j.all = append(j.all, text) }
func (j *journal) Line(level, message, _ string) { j.add(level + ": " + message) }
func (j *journal) Enter(stage string)            { j.add("[" + stage + "]") }
func (j *journal) Skip(stage string)             { j.add("[-" + stage + "]") }
func (j *journal) Wait(int)                      {}
func (j *journal) Begin()                        {}
func (j *journal) String() string                { j.mu.Lock(); defer j.mu.Unlock(); return strings.Join(j.all, "\n") }

// builds runs builds in pods of a namespace.
type builds struct {
	*cluster
	b *builder.Builder
	n int
}

func (b *builds) task(plan framework.Plan, files map[string]string) build.Task {
	b.t.Helper()
	b.n++
	dir, err := os.MkdirTemp(b.root, "task-")
	if err != nil {
		b.t.Fatal(err)
	}
	x := build.Task{
		ID: fmt.Sprintf("dep_%d", b.n), Site: "site_builds", Owner: "usr_builds", Source: filepath.Join(dir, "source"), Output: filepath.Join(dir, "output"), Cache: filepath.Join(dir, "pack"),
		Job: build.Job{UID: 210_000, Plan: plan, Limits: sandbox.Defaults},
	}
	x.Limits.Memory, x.Limits.Pids = 256<<20, 128
	if err := os.Mkdir(x.Output, 0o700); err != nil {
		b.t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(x.Source, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return x
}

func (b *builds) build(x build.Task) (*journal, error) {
	var j journal
	_, err := b.b.Build(b.t.Context(), x, &j)
	return &j, err
}

// shells returns a plan of shell commands whose output is in dist.
func shells(commands ...string) framework.Plan {
	p := framework.Plan{Name: "Test", Runtime: framework.Static, Output: "dist"}
	for _, c := range commands {
		p.Build = append(p.Build, framework.Command{Shell: c})
	}
	return p
}

// A Node.js project is built in a pod with a package from a public registry, with the same result as on a single
// machine. Private addresses can't be reached. A build that exhausts a resource affects only its own pod and reports
// the same error as on a single machine.
func TestBuilds(t *testing.T) {
	cl := client(t)
	c := newCluster(t, cl, "builds", true)
	c.c.BuildImage = os.Getenv("SLIPWAY_CLUSTER_BUILD_IMAGE")
	b := &builds{cluster: c, b: builder.New(builder.Config{Pods: c.Engine})}
	address := os.Getenv("SLIPWAY_CLUSTER_ADDRESS")
	url := registry(t)

	t.Run("project", func(t *testing.T) {
		plan := framework.Plan{
			Name: "Node", Runtime: framework.Static, Output: "dist", Manager: "npm", Modules: []string{"node_modules"}, Inputs: []string{"package.json"}, Install: []framework.Command{{Argv: []string{"npm", "install"}}},
			Build: []framework.Command{{Argv: []string{"npm", "run", "build"}}, {Shell: "echo $SECRET; pwd > dist/where; env | grep -c . > /dev/null"}},
		}
		x := b.task(plan, map[string]string{
			"package.json": `{"name":"x","dependencies":{"shout":"^1.0.0"},"scripts":{"build":"shout hello"}}`,
		})
		x.Env = map[string]string{"npm_config_registry": url, "SECRET": "hunter2hunter2"}
		x.Secrets = []build.Secret{{Name: "SECRET", Value: "hunter2hunter2"}}
		j, err := b.build(x)
		if err != nil {
			t.Fatalf("%v: %+v\n%s", err, fault.As(err), j)
		}
		got := map[string]string{}
		err = fs.WalkDir(os.DirFS(x.Output), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				text, _ := os.ReadFile(filepath.Join(x.Output, name))
				got[name] = string(text)
			}
			return err
		})
		// The paths are the same as in a sandbox on a single machine.
		if want := map[string]string{"index.html": "HELLO!", "where": "/build/repo\n"}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("output %q, %v", got, err)
		}
		log := j.String()
		for _, want := range []string{"[prepare]\n[install]\ninfo: $ npm install", "\n[build]\n", "info: [secret]", "\n[publish]"} {
			if !strings.Contains(log, want) {
				t.Errorf("no %q in\n%s", want, log)
			}
		}
		if strings.Contains(log, "hunter2") {
			t.Errorf("the secret is in the log:\n%s", log)
		}

		// Another pod gets this one's caches.
		x.ID, x.Output = "dep_again", filepath.Join(t.TempDir(), "output")
		if err := os.Mkdir(x.Output, 0o700); err != nil {
			t.Fatal(err)
		}
		j, err = b.build(x)
		text, _ := os.ReadFile(filepath.Join(x.Output, "index.html"))
		if err != nil || string(text) != "HELLO!" || !strings.Contains(j.String(), "info: Dependencies are unchanged since the last build: installation skipped") {
			t.Errorf("again: %q, %v\n%s", text, err, j)
		}
	})

	t.Run("network", func(t *testing.T) {
		x := b.task(shells("mkdir dist", "node dial.js"), map[string]string{"dial.js": dials})
		x.Env = map[string]string{"TARGETS": strings.Join([]string{
			address + ":6443", address + ":10250", c.c.Canary.Addr().String(), "169.254.169.254:80", publicAddress + ":80",
		}, " ")}
		j, err := b.build(x)
		if log := j.String(); err != nil || !strings.Contains(log, "tried") || strings.Count(log, "REACHED") != 1 || !strings.Contains(log, "REACHED "+publicAddress+":80") {
			t.Errorf("%v\n%s", err, log)
		}
	})

	for name, bomb := range map[string]struct {
		command string
		why     sandbox.Reason // reason reported as on a single machine; if empty, see details
		details string
		limit   func(*build.Task)
	}{
		"memory": {
			command: `node -e "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))"`, why: sandbox.OutOfMemory,
		},
		"disk": {
			command: `node -e "const fs = require('fs'); for (let i = 0; ; i++) fs.writeFileSync('f' + i, Buffer.alloc(1 << 20, 1))"`, why: sandbox.DiskFull,
			limit: func(x *build.Task) { x.Limits.Disk = 64 << 20 },
		},
		"time": {command: "sleep 1000", why: sandbox.Timeout, limit: func(x *build.Task) { x.Limits.Wall = 3e9 }},
		"kill": {command: "kill -9 -1", details: "look for a command that ends other processes"},
	} {
		t.Run(name, func(t *testing.T) {
			x := b.task(shells(bomb.command), map[string]string{"a": ""})
			if bomb.limit != nil {
				bomb.limit(&x)
			}
			j, err := b.build(x)
			f := fault.As(err)
			if bomb.why != "" {
				bomb.details = fault.As(x.Ended("build", bomb.why)).Details
			}
			if f == nil || f.Code != build.CodeFailed || f.Message != "The build did not finish" || !strings.Contains(f.Details, bomb.details) {
				t.Errorf("%#v: %s", f, j)
			}
		})
	}
	t.Run("fork", func(t *testing.T) {
		j, err := b.build(b.task(shells("mkdir dist; i=0; while [ $i -lt 1000 ]; do sleep 1000 & i=$((i+1)); done; wait"), map[string]string{"a": ""}))
		if f := fault.As(err); f == nil || f.Code != build.CodeFailed || !strings.Contains(j.String(), "annot fork") {
			t.Errorf("%#v: %s", f, j)
		}
	})

	until(t, "nothing is left", func() bool {
		pods, err := cl.CoreV1().Pods("builds").List(context.Background(), meta.ListOptions{})
		secrets, err2 := cl.CoreV1().Secrets("builds").List(context.Background(), meta.ListOptions{})
		return err == nil && err2 == nil && len(pods.Items) == 0 && len(secrets.Items) == 0
	})
}
