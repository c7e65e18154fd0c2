//go:build cluster

package kube

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway/internal/program/runtime"
)

// filesScript is a program that evaluates JavaScript from the request's path, in its storage.
const filesScript = `
require('http').createServer((q, r) => {
  const fs = require('fs'), [, script] = decodeURIComponent(q.url).split('!')
  try { r.end(String(eval(script))) } catch (e) { r.end(String(e)) }
}).listen(process.env.PORT, process.env.HOST)
`

func readAll(t *testing.T, dir string, names ...string) (all string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		all += string(text) + " "
	}
	return all
}

// killing is a connection that calls kill after left bytes were written.
type killing struct {
	io.ReadWriter
	left int
	kill func()
}

func (k *killing) Write(p []byte) (int, error) {
	if k.left -= len(p); k.left < 0 && k.kill != nil {
		k.kill()
		k.kill = nil
	}
	return k.ReadWriter.Write(p)
}

// A site's storage can be read and changed as local directories while its program runs and while it is held, with
// content, modes and links. A keeper that is killed halfway changes nothing.
func TestStorageAsDirectories(t *testing.T) {
	c := newCluster(t, client(t), "mirror", true)
	s, said := c.spec("files", filesScript)
	s.Site, s.Storage, s.Limits.Storage = "site_files", []runtime.Storage{{Path: "data"}, {Path: "deep/er"}}, 64<<20
	p := c.begin(c.Engine, s)
	if got := c.ask(p, `fs.writeFileSync('data/a', 'one'); fs.chmodSync('data/a', 0o440); fs.mkdirSync('data/sub'); `+
		`fs.writeFileSync('data/sub/b', 'two'); fs.symlinkSync('/etc/passwd', 'data/out'); fs.writeFileSync('deep/er/c', 'three'); 1`); got != "1" {
		t.Fatal(got, said())
	}
	fetched, err := c.FetchStorage(t.Context(), s.Site)
	if err != nil {
		t.Fatal(err)
	}
	folders, err := c.StorageFolders(s.Site)
	if err != nil || len(folders) != 2 {
		t.Fatalf("%v, %v", folders, err)
	}
	if got := readAll(t, folders["data"], "a", "sub/b") + readAll(t, folders["deep/er"], "c"); got != "one two three " {
		t.Errorf("copied: %q", got)
	}
	if to, err := os.Readlink(filepath.Join(folders["data"], "out")); err != nil || to != "/etc/passwd" {
		t.Errorf("a link to %q, %v", to, err)
	}
	if info, err := os.Stat(filepath.Join(folders["data"], "a")); err != nil || info.Mode().Perm() != 0o440 {
		t.Errorf("a file is %v, %v", info, err)
	}
	if got := c.ask(p, `fs.writeFileSync('data/sub/b', 'four'); 2`); got != "2" {
		t.Fatal(got)
	}

	release := c.Hold(s.Site) // holds the program, but not the keeper
	again, err := c.FetchStorage(t.Context(), s.Site)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if got := readAll(t, folders["data"], "a", "sub/b"); got != "one four " {
		t.Errorf("what was changed: %q", got)
	}
	if err := errors.Join(
		os.Remove(filepath.Join(folders["data"], "out")),
		os.WriteFile(filepath.Join(folders["data"], "new"), []byte("five"), 0o751), os.Truncate(filepath.Join(folders["data"], "sub/b"), 0),
	); err != nil {
		t.Fatal(err)
	}
	if err := c.KeepStorage(t.Context(), s.Site); err != nil {
		t.Fatal(err)
	}
	release()
	const look = `fs.readdirSync('data') + ' ' + fs.readFileSync('data/a') + fs.readFileSync('data/new') + fs.readFileSync('data/sub/b') + ` +
		`fs.statSync('data/new').mode.toString(8) + ' ' + fs.statSync('data/a').mode.toString(8)`
	const stored = "a,new,sub onefive100751 100440"
	if got := c.ask(p, look); got != stored {
		t.Errorf("the program sees %q", got)
	}

	m := c.mirrors.has(s.Site)
	if err := os.WriteFile(filepath.Join(folders["data"], "large"), make([]byte, 1), 0o644); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 8<<20)
	for i := range block {
		block[i] = byte(i)%255 + 1
	}
	if err := os.WriteFile(filepath.Join(folders["data"], "large"), block, 0o644); err != nil {
		t.Fatal(err)
	}
	claim, err := c.claimOf(t.Context(), s.Site)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(0)
	err = c.keeping(t.Context(), m, *claim, false, func(conn io.ReadWriter) error {
		keeper := m.keeper
		return m.copy.Give(&killing{conn, 1 << 20, func() {
			if err := c.client.CoreV1().Pods("mirror").Delete(t.Context(), keeper.name, meta.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Error(err)
			}
			<-keeper.ended
			at := net.JoinHostPort(keeper.pod().Status.PodIP, strconv.Itoa(c.port))
			until(t, "kubelet has killed it, too", func() bool {
				conn, err := net.DialTimeout("tcp", at, time.Second)
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
		}})
	})
	if err == nil {
		t.Error("a killed keeper reports success")
	}
	if got := c.ask(p, look); got != stored {
		t.Errorf("after a keeper was killed the program sees %q", got)
	}
	if again, err = c.FetchStorage(t.Context(), s.Site); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := os.Stat(filepath.Join(folders["data"], "large")); err == nil {
		t.Error("the local copy still has the file that could not be stored")
	}
	fetched.Close()
	if _, err := c.StorageFolders(s.Site); err == nil {
		t.Error("StorageFolders lists folders that exist only in a volume")
	}
	until(t, "no keeper is left", func() bool {
		list, err := c.client.CoreV1().Pods("mirror").List(t.Context(), meta.ListOptions{})
		return err == nil && len(list.Items) == 1
	})

	// A site without a volume gets one.
	dir, err := c.MakeStorage(t.Context(), "site_new", "up/loads")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("restored"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.KeepStorage(t.Context(), "site_new"); err != nil {
		t.Fatal(err)
	}
	s.ID, s.Site, s.Storage = "run_new", "site_new", []runtime.Storage{{Path: "up/loads"}}
	if got := c.ask(c.begin(c.Engine, s), `fs.readFileSync('up/loads/x')`); got != "restored" {
		t.Errorf("a new site's program reads %q", got)
	}
	if err := c.ForgetStorage("site_new"); err != nil {
		t.Error(err)
	}
}
