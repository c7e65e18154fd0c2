package programs

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway/e2e/world"
)

// spy is an application that performs the operations that requests ask for, like a malicious or compromised one.
const spy = `
const http = require('http'), net = require('net'), fs = require('fs'), path = require('path')
const once = (c, r) => {
  c.setTimeout(3000, () => c.destroy(new Error('timeout')))
  c.on('connect', () => { r.end('GOT a connection'); c.destroy() })
  c.on('error', e => r.end('nothing: ' + (e.code || e.message)))
}
const begin = p => { // some files have no end
  const fd = fs.openSync(p, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK), b = Buffer.alloc(1 << 18)
  try { return b.subarray(0, fs.readSync(fd, b)) } finally { fs.closeSync(fd) }
}
const others = (dir, left) => { // processes of control groups that it doesn't see itself
  let found = []
  for (const e of fs.readdirSync(dir, { withFileTypes: true })) {
    const p = path.join(dir, e.name)
    if (e.isDirectory()) { if (left > 0) found = found.concat(others(p, left - 1)) }
    else if (e.name === 'cgroup.procs') {
      for (const pid of fs.readFileSync(p, 'latin1').split('\n')) if (pid && !fs.existsSync('/proc/' + pid)) found.push(p + ': ' + pid)
    }
  }
  return found
}
const search = (dir, text, left) => {
  let found = []
  for (const e of fs.readdirSync(dir, { withFileTypes: true })) {
    const p = path.join(dir, e.name)
    try {
      if (e.isDirectory()) { if (left > 0 && p !== '/proc/kcore') found = found.concat(search(p, text, left - 1)) }
      else if (e.isFile() && begin(p).includes(text)) found.push(p)
    } catch { }
  }
  return found
}
http.createServer((q, r) => {
  const u = new URL(q.url, 'http://x'), a = name => u.searchParams.get(name)
  try {
    switch (u.pathname) {
    case '/tcp': return once(net.connect({ host: a('host'), port: Number(a('port')) }), r)
    case '/unix': return once(net.connect(a('path')), r)
    case '/read': return r.end('GOT ' + fs.readFileSync(a('path'), 'latin1').length + ' bytes')
    case '/list': return r.end('GOT ' + fs.readdirSync(a('path')).join(' '))
    case '/write': fs.writeFileSync(a('path'), 'x'); return r.end('GOT it written')
    case '/kill': process.kill(Number(a('pid')), 0); return r.end('GOT a process')
    case '/search': return r.end(JSON.stringify(search(a('path'), a('text'), 6)))
    case '/others': return r.end('GOT ' + JSON.stringify(others(a('path'), 6)))
    case '/env': return r.end(JSON.stringify(process.env))
    }
    r.end('spy got 0')
  } catch (e) { r.end('nothing: ' + (e.code || e.message)) }
}).listen(process.env.PORT)`

// An application can reach only its own resources and public addresses: not the host, the service, another site or its
// build's secrets.
func TestInsideAnApplication(t *testing.T) {
	t.Parallel()
	h := install(t, func(w *world.World) { // the installation's first site is the victim
		for i := slices.Index(w.Flags, "--outbound-allow"); i >= 0; i = slices.Index(w.Flags, "--outbound-allow") {
			w.Flags = slices.Delete(w.Flags, i, i+2) // no private address is allowed
		}
	})
	victim := h.ID
	h.call("POST", "/sites/"+victim+"/env", map[string]any{
		"key":    "VICTIM",
		"value":  "victims-secret-42",
		"secret": true,
		"target": []string{"runtime"},
	}, nil)
	if text, err := h.visit("GET", "/", ""); err != nil {
		t.Fatal(text, err)
	}
	dir := t.TempDir()
	if err := world.WriteFiles(dir, map[string]string{
		"package.json":  `{"name": "spy", "private": true, "scripts": {"build": "test -n \"$BUILD_ONLY\" && mkdir -p dist && date > dist/built", "start": "node ` + script + `"}}`,
		script:          spy,
		".env":          "DOTENV=repository-secret",
		"server/api.js": "// server-bundle",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Git.Commit("acme/spy", "main", dir, "spy"); err != nil {
		t.Fatal(err)
	}
	var made struct{ Data struct{ ID, URL string } }
	h.call("POST", "/sites", map[string]any{
		"name": "spy", "type": "static", "repository": "git.test/acme/spy", // without a branch, so the default one
		"run": map[string]any{"ports": []int{22, 5432}},
	}, &made)
	h.ID, h.URL = made.Data.ID, made.Data.URL
	h.call("POST", "/sites/"+h.ID+"/env", map[string]any{
		"key":    "BUILD_ONLY",
		"value":  "build-secret-4711",
		"secret": true,
		"target": []string{"build"},
	}, nil)
	h.call("POST", "/sites/"+h.ID+"/env", map[string]any{
		"key":    "PREVIEW_ONLY",
		"value":  "preview-secret-4712",
		"secret": true,
		"target": []string{"preview"},
	}, nil)
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	h.ended(out.DeploymentID)
	h.shows("spy got 0")
	ask := func(path string, args ...string) string {
		t.Helper()
		q := url.Values{}
		for i := 0; i < len(args); i += 2 {
			q.Set(args[i], args[i+1])
		}
		return string(h.get(path + "?" + q.Encode()).Body)
	}

	// Every port on which this installation listens, at every address of the host.
	ports := map[string]bool{"22": true, "80": true, "443": true, "3000": true, "3306": true, "5432": true}
	for _, addr := range []string{h.HTTPS, h.HTTP, h.Listen, strings.TrimPrefix(h.Git.URL, "http://")} {
		if u, err := url.Parse(addr); err == nil && u.Host != "" {
			addr = u.Host
		}
		if _, port, err := net.SplitHostPort(addr); err == nil {
			ports[port] = true
		}
	}
	delete(ports, "3000") // its own port on its own loopback
	hosts := []string{
		"127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "localhost", "169.254.169.254", "10.0.0.1", "172.16.0.1",
		"192.168.0.1", "100.64.0.1", "fd00::1", "git.test", "sites.localhost",
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			hosts = append(hosts, n.IP.String())
		}
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	// The sandbox's forwarder accepts connections to these local ports and then rejects the destination.
	own := map[string]bool{"80": true, "443": true, "22": true, "5432": true}
	var dials sync.WaitGroup
	for _, host := range hosts {
		for port := range ports {
			if own[port] && (host == "127.0.0.1" || host == "127.0.0.2" || host == "localhost" || host == "0.0.0.0") {
				continue
			}
			if net.ParseIP(host) == nil && host != "localhost" && port != "443" && port != "5432" {
				continue // only the name matters, so one web port is enough
			}
			dials.Go(func() {
				if got := ask("/tcp", "host", host, "port", port); !strings.HasPrefix(got, "nothing") {
					t.Errorf("%s port %s: %s", host, port, got)
				}
			})
		}
	}
	dials.Wait()

	// Files and sockets of the host, the service and the other site can't be opened.
	var sockets []string
	_ = filepath.WalkDir(h.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			sockets = append(sockets, path)
		}
		return nil
	})
	for _, path := range append(
		sockets, "/run/mysqld/mysqld.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/slipway/proxy.sock",
		"\x00slipway",
	) {
		got := ask("/unix", "path", path)
		if path == "/run/slipway/proxy.sock" {
			continue // its connection to the proxy, tested above
		}
		if !strings.HasPrefix(got, "nothing") {
			t.Errorf("socket %q: %s", path, got)
		}
	}
	for _, path := range []string{h.Data, h.Dir, "/root", "/home", "/var/lib", "/etc/slipway", "/boot", "/mnt"} {
		if got := ask("/list", "path", path); !strings.HasPrefix(got, "nothing") {
			t.Errorf("folder %s: %s", path, got)
		}
	}
	for _, path := range []string{"/etc/shadow", filepath.Join(h.Data, "slipway.db"), "/proc/kcore", "/dev/mem", "/app/../../etc/shadow"} {
		if got := ask("/read", "path", path); !strings.HasPrefix(got, "nothing") && got != "GOT 0 bytes" {
			t.Errorf("file %s: %s", path, got)
		}
	}
	// A pod sees only its own cgroup.
	if got := ask("/others", "path", "/sys/fs/cgroup"); !strings.HasPrefix(got, "nothing") && got != "GOT []" {
		t.Errorf("control groups: %s", got)
	}
	for _, path := range []string{
		"/etc/x", "/usr/x", "/x", "/proc/sys/kernel/core_pattern", "/dev/x", "/sys/fs/cgroup/x", "/sys/fs/cgroup/memory/x",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
	} {
		if got := ask("/write", "path", path); !strings.HasPrefix(got, "nothing") {
			t.Errorf("writing %s: %s", path, got)
		}
	}
	for _, pid := range append(h.processes(), fmt.Sprint(os.Getpid()), fmt.Sprint(h.PID())) {
		if len(pid) > 2 { // short pids may also exist in its own namespace
			if got := ask("/kill", "pid", pid); !strings.HasPrefix(got, "nothing") {
				t.Errorf("process %s: %s", pid, got)
			}
		}
	}

	// Secrets of the build, of previews, of the other site and of the service aren't visible.
	var env map[string]string
	if err := json.Unmarshal([]byte(ask("/env")), &env); err != nil {
		t.Fatal(err)
	}
	if env["SLIPWAY_BRANCH"] != "main" {
		t.Errorf("at its first start it is told the branch %q", env["SLIPWAY_BRANCH"])
	}
	for k, v := range env {
		if strings.Contains(
			v,
			"secret-4",
		) || k == "BUILD_ONLY" || strings.HasPrefix(
			k,
			"SLIPWAY_",
		) && !strings.Contains("SLIPWAY_SITE_ID SLIPWAY_DEPLOYMENT_ID SLIPWAY_COMMIT SLIPWAY_BRANCH SLIPWAY_TARGET SLIPWAY_URL", k) {
			t.Errorf("its environment has %s=%s", k, v)
		}
	}
	for _, text := range []string{"build-secret-4711", "preview-secret-4712", "victims-secret-42", h.key} {
		for _, path := range []string{"/app", "/build", "/tmp", "/run", "/proc"} {
			if got := ask("/search", "path", path, "text", text); got != "[]" && !strings.HasPrefix(got, "nothing") {
				t.Errorf("below %s %q is found in %s", path, text, got)
			}
		}
	}

	// Its source files aren't served, not even while it is stopped.
	for _, stopped := range []bool{false, true} {
		if stopped {
			h.call("POST", "/sites/"+h.ID+"/stop", nil, nil)
			h.until("the stop", func() (bool, error) { return h.get("/").Status == 503, nil })
		}
		for _, path := range []string{
			"/.env",
			"/.git/config",
			"/server/api.js",
			"/package.json",
			"/" + script,
			"/node_modules/x",
			"/%2e%2e/etc/passwd",
			"//etc/passwd",
		} {
			a := h.get(path)
			text := string(a.Body)
			if strings.Contains(
				text,
				"repository-secret",
			) || strings.Contains(
				text,
				"server-bundle",
			) || strings.Contains(
				text,
				"createServer",
			) || strings.Contains(text, `"private"`) || strings.Contains(text, "[core]") || strings.Contains(text, "root:") {
				t.Errorf("%s, stopped %v: %d %.100q", path, stopped, a.Status, text)
			}
		}
	}
}
