package builds

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

// groups returns a glob pattern of the installation's cgroup in every hierarchy.
func (h *harness) groups() string {
	dir, err := filepath.EvalSymlinks(filepath.Join(h.Data, "builds/sandbox"))
	if err != nil {
		h.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(dir))
	return "/sys/fs/cgroup/*/slipway*/" + hex.EncodeToString(sum[:6])
}

// nothingLeft fails the test unless a site's builds leave no process, cgroup, mount or scratch directory.
func (h *harness) nothingLeft(s aSite) {
	h.t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			h.t.Logf("left: %q", left)
		}
	}()
	h.until(patience, "end of all that a build had", func() bool { left = h.left(s); return len(left) == 0 })
}

// left lists the processes and files that remain of a site's builds.
func (h *harness) left(s aSite) []string {
	out := h.leftovers()
	mark := []byte("SLIPWAY_SITE_ID=" + s.ID)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if env, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && bytes.Contains(env, mark) {
			out = append(out, "process "+e.Name())
		}
	}
	groups, _ := filepath.Glob(h.groups() + "/*/")
	out = append(out, groups...)
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || bytes.Contains(mounts, []byte(h.Data)) {
		out = append(out, fmt.Sprint("a mount ", err))
	}
	return out
}

// watch requests a site from the API 20 times a second until stop is called. stop returns the p99 of the response times,
// and most, adjusted to the load of the machine.
func (h *harness) watch(s aSite, most time.Duration) (stop func() (p99, may time.Duration)) {
	quit := make(chan struct{})
	var took []time.Duration
	may := most
	var wg, asked sync.WaitGroup
	var mu sync.Mutex // guards took
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				may = max(may, world.Patience(most))
			}
			asked.Go(func() {
				at := time.Now()
				err := h.Call(h.t.Context(), s.key, "GET", "/sites/"+s.ID, nil, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					h.t.Errorf("while builds misbehave: %v", err)
				}
				took = append(took, time.Since(at))
			})
		}
	})
	return func() (p99, _ time.Duration) {
		close(quit)
		wg.Wait()
		asked.Wait()
		slices.Sort(took)
		h.t.Logf(
			"%d requests meanwhile: median %s, p99 %s, worst %s",
			len(took),
			took[len(took)/2],
			took[len(took)*99/100],
			took[len(took)-1],
		)
		return took[len(took)*99/100], may
	}
}

// Builds that exhaust a resource fail with a reason, and the service responds quickly meanwhile.
func TestGreedyBuilds(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as int) {
		// These builds reach another limit long before the time limit.
		h, mark := newHarness(
			t, as, "--builds", "1", "--build-memory", "128", "--build-disk", "256", "--build-time", "1m",
		), strconv.Itoa(as)
		// For the builds that only the time limit ends.
		brief := newHarness(t, as, "--builds", "1", "--build-memory", "128", "--build-time", "3s")
		h.commit("acme/good", shell("mkdir dist; echo good > dist/index.html"))
		good := h.site("acme/good", nil)
		h.built(good, h.first(good))
		brief.commit("acme/page", map[string]string{"index.html": "a page"}) // needs no build
		page := brief.site("acme/page", nil)
		brief.built(page, brief.first(page))
		stops := []func() (p99, may time.Duration){h.watch(good, 500*time.Millisecond), brief.watch(page, 500*time.Millisecond)}
		for _, b := range []struct {
			name  string
			files map[string]string
			why   string
		}{
			{"memory", node("const all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1))"), "out of memory"},
			{"heap", node("const all = []; for (;;) all.push(new Array(1000).fill({}))"), "memory"},
			{"forks", shell("bomb() { bomb | bomb & }\nbomb\nsleep 863996" + mark + "\n"), ""},
			{
				"threads",
				node("const { Worker } = require('worker_threads'); for (let i = 0; i < 10000; i++) new Worker('setInterval(() => {}, 1000)', { eval: true })"),
				"",
			},
			{
				"disk",
				shell("mkdir dist; i=0; while fallocate -l 64M dist/$i || head -c 64M /dev/zero > dist/$i; do i=$((i+1)); done; sleep 863996" + mark),
				"disk",
			},
			{"log", shell("exec yes 'the same line again and again'"), "log limit"},
			{"endless", shell("while :; do :; done"), "timed out"},
		} {
			on := h
			if b.name == "forks" || b.name == "endless" {
				on = brief
			}
			on.commit("acme/"+b.name, b.files)
			s := on.site("acme/"+b.name, nil)
			at := time.Now()
			d := on.failed(s, on.first(s), b.why)
			t.Logf("%s: %.1f s: %.200s", b.name, time.Since(at).Seconds(), d.Error)
			on.nothingLeft(s)
		}
		h.until(patience, "end of all processes", func() bool { return len(processes("sleep\x00863996"+mark)) == 0 })
		for _, stop := range stops {
			if p99, may := stop(); p99 > may {
				t.Errorf("the service's own p99 was %s meanwhile, want at most 500 ms, here and now %s", p99, may)
			}
		}
		h.shows(good.URL, "good")
		again := h.deploy(good, nil)
		h.built(good, again)
	})
}

// snoop is a build that tries forbidden operations and publishes the results. The sandbox's own tests try system calls;
// this covers what the product adds.
const snoop = `
const fs = require('fs'), net = require('net'), http = require('http'), { spawnSync } = require('child_process')
const want = JSON.parse(fs.readFileSync('want.json', 'utf8'))
const got = {}
const note = (what, f) => { try { got[what] = String(f()) } catch (e) { got[what] = 'refused ' + e.code } }
note('shadow', () => fs.readFileSync('/etc/shadow'))
note('data', () => fs.readdirSync(want.data))
note('other', () => fs.readdirSync(want.work))
note('root', () => fs.readdirSync('/root'))
note('usr', () => fs.writeFileSync('/usr/canary', 'x'))
note('sys', () => {
  const seen = fs.readdirSync('/sys') + ' ' + fs.readdirSync('/sys/fs')
  if (seen === 'fs cgroup') throw { code: 'all but its own cgroup' }
  return seen
})
note('cgroup', () => fs.writeFileSync('/sys/fs/cgroup/memory/memory.limit_in_bytes', '-1'))
note('cgroup 2', () => fs.writeFileSync('/sys/fs/cgroup/memory.max', 'max'))
note('userns', () => { const r = spawnSync('unshare', ['-Ur', 'true']); if (r.status !== 0) throw { code: 'status' }; return 'made' })
note('mount', () => { const r = spawnSync('mount', ['-t', 'tmpfs', 'x', '/tmp']); if (r.status !== 0) throw { code: 'status' }; return 'made' })
note('device', () => { const r = spawnSync('mknod', ['/tmp/sda', 'b', '8', '0']); if (r.status !== 0) throw { code: 'status' }; return 'made' })
const pids = fs.readdirSync('/proc').filter((n) => /^[0-9]+$/.test(n))
got.pids = pids.length
got.seen = pids.map((p) => { try { return fs.readFileSync('/proc/' + p + '/cmdline', 'utf8') + fs.readFileSync('/proc/' + p + '/environ', 'utf8') } catch { return '' } }).join(' ').includes(want.canary)
got.identity = fs.readFileSync('/proc/self/status', 'utf8').match(/(Uid|CapEff|NoNewPrivs|Seccomp):.*/g).join(' ')
const direct = (what, where, timeout = 1500) => new Promise((done) => {
  const c = net.connect({ ...where, timeout })
  c.on('connect', () => { got[what] = 'connected'; c.destroy(); done() })
  c.on('error', (e) => { got[what] = 'refused ' + e.code; done() })
  c.on('timeout', () => { got[what] = 'refused timeout'; c.destroy(); done() })
})
const proxied = (what, target, timeout = 8000) => new Promise((done) => {
  const c = http.request({ socketPath: '/run/slipway/proxy.sock', method: 'CONNECT', path: target, timeout })
  c.on('connect', (r, s) => { got[what] = r.statusCode === 200 ? 'connected' : 'refused ' + r.statusCode; s.destroy(); done() })
  c.on('error', (e) => { got[what] = 'refused ' + e.code; done() })
  c.on('timeout', () => { got[what] = 'refused timeout'; c.destroy() })
  c.end()
})
;(async () => {
  for (const port of want.ports) {
    await direct('direct ' + port, { host: '127.0.0.1', port })
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '[::ffff:127.0.0.1]', 'git.test', '2130706433', '0x7f.1'])
      await proxied('proxy ' + host + ':' + port, host + ':' + port)
  }
  for (const ip of want.own) { await direct('direct ' + ip, { host: ip, port: 22 }); await proxied('proxy ' + ip, ip + ':443') }
  await direct('abstract', { path: '\0' + want.abstract })
  for (const t of ['169.254.169.254:80', '169.254.169.254:443', 'metadata.google.internal:80', '10.0.0.1:443', '172.16.0.1:80', '192.168.0.1:443', '100.100.100.200:80',
    '[fd00:ec2::254]:80', '[fe80::1]:443', want.registry + ':22'])
    await proxied('proxy ' + t, t)
  await direct('direct metadata', { host: '169.254.169.254', port: 80 })
  for (const host of ['git.test', 'metadata.google.internal', 'localtest.me', want.registry + '.invalid']) await direct('name ' + host, { host, port: 80 })
  await direct('other port', { host: want.registry, port: 22 })
  await direct('the registry by name', { host: want.registry, port: 443 }, 60000)
  await proxied('the registry', want.registry + ':443', 60000)
  fs.mkdirSync('dist'); fs.writeFileSync('dist/report.json', JSON.stringify(got)); fs.writeFileSync('dist/index.html', 'tried')
})()
`

func TestForbidden(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as int) {
		h := newHarness(t, as, "--builds", "2")
		abstract := "slipway-e2e-" + filepath.Base(filepath.Dir(h.Dir)) + strconv.Itoa(as)
		l, err := net.Listen("unix", "@"+abstract)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		h.Kill()
		h.Env = append(h.Env, "CONTROL_PLANE_CANARY=planted-in-the-environment")
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.commit("acme/other", sleeper("7"+strconv.Itoa(as)))
		other := h.site("acme/other", nil)
		otherID := h.first(other)
		h.until(20*time.Second, "running build", func() bool { return len(processes("sleep\x00863997"+strconv.Itoa(as))) > 0 })

		var ports []int
		for _, a := range []string{h.Listen, h.HTTP, h.HTTPS, strings.TrimPrefix(h.Git.URL, "http://")} {
			_, p, _ := net.SplitHostPort(a)
			n, _ := strconv.Atoi(p)
			ports = append(ports, n)
		}
		var own []string
		addrs, _ := net.InterfaceAddrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
				own = append(own, n.IP.String())
			}
		}
		want, err := json.Marshal(map[string]any{
			"data":     h.Data,
			"work":     filepath.Join(h.Data, "builds/work", otherID),
			"canary":   "planted-in-the-environment",
			"ports":    ports,
			"own":      own,
			"abstract": abstract,
			"registry": registryHost(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		files := node(snoop)
		files["want.json"] = string(want)
		h.commit("acme/snoop", files)
		s := h.site("acme/snoop", nil)
		h.built(s, h.first(s))
		var got map[string]any
		if err := json.Unmarshal(h.shows(s.URL+"/report.json", "{").Body, &got); err != nil {
			t.Fatal(err)
		}
		for what, came := range got {
			text, ok := came.(string)
			switch {
			case what == "seen":
				if came != false {
					t.Error("the program can see the control plane's environment")
				}
			case what == "pids":
				if came.(float64) > 12 {
					t.Errorf("the build sees %v processes", came)
				}
			case what == "identity":
				if !strings.Contains(
					text,
					"Uid:\t1000",
				) || !strings.Contains(
					text,
					"CapEff:\t0000000000000000",
				) || !strings.Contains(text, "NoNewPrivs:\t1") || !strings.Contains(text, "Seccomp:\t2") {
					t.Errorf("identity: %s", text)
				}
			case strings.HasPrefix(what, "the registry"):
				if text != "connected" {
					t.Errorf("control: %s: %s", what, text)
				}
			case !ok || !strings.HasPrefix(text, "refused"):
				t.Errorf("%s: %v", what, came)
			}
		}
		if len(got) < 50 {
			t.Errorf("only %d things were tried: %v", len(got), got)
		}
		h.nothingLeftBut(s, 1)
		h.cancel(other, otherID)
		h.wait(other, otherID)
		h.nothingLeft(other)
	})
}

// nothingLeftBut is nothingLeft while n other builds run.
func (h *harness) nothingLeftBut(s aSite, n int) {
	h.t.Helper()
	h.until(patience, "end of all that a build had on disk", func() bool { return len(h.leftovers()) == n })
	h.until(patience, "end of all processes of a build", func() bool {
		entries, _ := os.ReadDir("/proc")
		return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
			return err == nil && bytes.Contains(env, []byte("SLIPWAY_SITE_ID="+s.ID))
		})
	})
}

// Anything a build leaves in its output folder is either copied, skipped or rejected by name. Files outside the folder
// are never published, and a process that survives the build can't change the copy.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as int) {
		h, mark := newHarness(t, as, "--builds", "2"), strconv.Itoa(as)
		good := "mkdir dist; echo good > dist/index.html; "
		victim := h.victim()
		for i, b := range []struct {
			name, script string
			why          string // the deployment's error, or "" if it succeeds …
			page, want   string // … and then a page contains this
		}{
			{"link-out", good + "ln -s /etc/passwd dist/passwd.txt", "", "/", "good"},
			{"link-climbs", good + "ln -s ../../../../../../etc/passwd dist/p.txt", "", "/", "good"},
			{"link-folder", good + "ln -s /etc dist/etc", "", "/", "good"},
			{"link-chain", good + "ln -s b dist/a; ln -s /etc/passwd dist/b", "", "/", "good"},
			{"link-loop", good + "ln -s . dist/loop", "", "/", "good"},
			{"link-inside", good + "ln -s index.html dist/same.html", "", "/same", "good"},
			{"hard-link", good + "ln dist/index.html dist/twin.html", "", "/twin", "good"},
			{"fifo", good + "mkfifo dist/pipe", "pipe", "", ""},
			{
				"socket",
				good + `node -e "require('net').createServer().listen('dist/sock', () => process.exit(0))"; node -e "const s=require('net').createServer().listen('dist/live.sock',()=>process.kill(process.pid,9))" || true`,
				"sock",
				"",
				"",
			},
			{"device", good + "mknod dist/null c 1 3 || echo refused > dist/index.html", "", "/", "refused"},
			{"output-link", "mkdir real; echo x > real/index.html; ln -s /etc dist", "dist", "", ""},
			{"output-link-inside", "mkdir real; echo x > real/index.html; ln -s real dist", "dist", "", ""},
			{"output-parent", "cd ..; mv repo old; ln -s " + victim + " repo", "nothing to publish", "", ""},
			{
				"output-parent-inside",
				"cd ..; mv repo old; mkdir old/dist; echo x > old/dist/index.html; ln -s old repo",
				"nothing to publish", "", "",
			},
			{"home", good + "rm -rf ~; ln -s " + victim + " ~", "", "/", "good"},
			{"unreadable", good + "mkdir dist/no; echo secret > dist/no/x.html; chmod 0 dist/no", "", "", ""},
			{"setuid", good + "chmod 4755 dist/index.html", "", "/", "good"},
			{"names", good + `echo n > "$(printf 'dist/a\nb.html')"; echo q > "dist/x'\$(id)'.html"`, "", "", ""},
			{"git", good + "mkdir dist/.git; echo s > dist/.git/config", "", "/", "good"},
			// A process keeps changing the folder after the build's main process has exited.
			{"survivor", good + `mkdir dist/a; echo a > dist/a/x.html
				(setsid sh -c 'trap "" TERM HUP; while :; do mv dist/a dist/b; ln -s /etc dist/a; rm dist/a; mv dist/b dist/a; done' > /dev/null 2>&1 &)
				(setsid nohup sleep 863998` + mark + ` > /dev/null 2>&1 &)`, "", "", ""},
		} {
			repo := fmt.Sprintf("acme/out%d", i)
			h.commit(repo, shell(b.script))
			s := h.site(repo, map[string]any{"name": b.name})
			d := h.wait(s, h.first(s))
			t.Logf("%s: %s %.200q", b.name, d.Status, d.Error)
			switch {
			case b.why != "" && (d.Status != "failed" || !strings.Contains(d.Error, b.why)):
				t.Errorf("%s: %s with %q, want failed with %q", b.name, d.Status, d.Error, b.why)
			case b.want != "" && d.Status != "success":
				t.Errorf("%s: %s: %s\n%s", b.name, d.Status, d.Error, h.log(s, d.ID))
			case b.want != "":
				h.shows(s.URL+b.page, b.want)
			}
			if strings.HasPrefix(b.name, "link-") && b.name != "link-inside" && !strings.Contains(h.log(s, d.ID), "Skipped") {
				t.Errorf("%s: the log names no link that is left out", b.name)
			}
			if strings.Contains(d.Error, "Internal error") {
				t.Errorf("%s: %s", b.name, d.Error)
			}
			h.unharmed(victim)
			for _, path := range []string{
				"/passwd.txt", "/p.txt", "/etc/passwd", "/a/passwd", "/a", "/b", "/passwd", "/.git/config", "/file",
			} {
				if a := h.page(s.URL + path); a.Status == 200 && (bytes.Contains(
					a.Body,
					[]byte("root:"),
				) || bytes.Contains(a.Body, []byte("untouched"))) {
					t.Errorf("%s: %s is served: %.80q", b.name, path, a.Body)
				}
			}
			h.nothingLeft(s)
		}
		h.until(patience, "end of all processes", func() bool { return len(processes("sleep\x00863998"+mark)) == 0 })
		// The result of a program's build is the checkout, which must be a folder; a link or a FIFO in its place fails
		// the deployment.
		for i, put := range []string{"ln -s " + victim + " repo", "mkfifo repo"} {
			repo := fmt.Sprintf("acme/program%d", i)
			h.commit(repo, map[string]string{
				"slipway.toml": "[build]\ncommand = \"sh ./build.sh\"\n[run]\ncommand = \"node server.js\"\n",
				"build.sh":     "cd ..; mv repo old; " + put,
				"server.js":    "require('http').createServer((q, r) => r.end('served')).listen(process.env.PORT)",
			})
			s := h.site(repo, nil)
			h.failed(s, h.first(s), "nothing to run")
			h.unharmed(victim)
			h.nothingLeft(s)
		}
	})
}

// Cache folders may be links, committed or made by a build. The program neither reads nor writes their targets.
func TestHostileCaches(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as int) {
		h := newHarness(t, as, "--builds", "2")
		victim := h.victim()
		toml := "[build]\nframework = \"vite\"\ninstall = \"true\"\ncommand = \"sh ./build.sh\"\noutput = \"dist\"\n"
		manifest := `{"name":"x","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"x","version":"1.0.0"}}}`
		for i, dirs := range [][]string{{"node_modules"}, {"node_modules/.vite", "node_modules/.cache"}, nil, nil} {
			dir := t.TempDir()
			files := map[string]string{
				"slipway.toml":      toml,
				"package.json":      `{"name":"x","version":"1.0.0"}`,
				"package-lock.json": manifest,
				"build.sh":          "mkdir -p dist; echo fine > dist/index.html; ls -la . node_modules ~ 2>&1\n",
			}
			if dirs == nil { // the build itself makes the links
				files["build.sh"] += fmt.Sprintf(
					"rm -rf ~/.npm ~/.cache node_modules; ln -s %[1]s ~/.npm; ln -s %[1]s ~/.cache; ln -s %[1]s node_modules\n",
					victim,
				)
			}
			if i == 3 { // replace the checkout itself by a link, before the framework's cache is stored
				files["slipway.toml"] = "[build]\nframework = \"next-export\"\ninstall = \"sh ./install.sh\"\ncommand = \"sh ./build.sh\"\noutput = \"dist\"\n"
				files["build.sh"] = "mkdir -p dist .next/cache; echo fine > dist/index.html; echo kept > .next/cache/kept\n"
				files["install.sh"] = "true"
			}
			if err := world.WriteFiles(dir, files); err != nil {
				t.Fatal(err)
			}
			for _, d := range dirs {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, d)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(victim, filepath.Join(dir, d)); err != nil {
					t.Fatal(err)
				}
			}
			repo := fmt.Sprintf("acme/cache%d", i)
			if _, err := h.Git.Commit(repo, "main", dir, "links"); err != nil {
				t.Fatal(err)
			}
			s := h.site(repo, nil)
			h.built(s, h.first(s))
			if i == 3 {
				files["install.sh"] = "cd ..; mv repo old; ln -s " + victim + " repo"
				h.commit(repo, files)
				h.wait(s, h.deploy(s, nil)) // it may fail
				h.unharmed(victim)
				continue
			}
			id := h.deploy(s, nil)
			h.built(s, id)
			if log := h.log(s, id); strings.Contains(log, "untouched") {
				t.Errorf("%v: the build sees the victim:\n%s", dirs, log)
			}
			h.shows(s.URL, "fine")
			h.nothingLeft(s)
			h.unharmed(victim)
		}
	})
}

// victim makes a folder of another user that contains the names that builds use. Its modes allow all users everything.
func (h *harness) victim() string {
	h.t.Helper()
	dir := filepath.Join(h.Dir, "victim")
	for _, f := range victimFiles {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o777); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte("untouched"), 0o666); err != nil {
			h.t.Fatal(err)
		}
	}
	filepath.WalkDir(dir, func(name string, e fs.DirEntry, _ error) error {
		if e.IsDir() {
			return os.Chmod(name, 0o777)
		}
		return os.Chmod(name, 0o666)
	})
	return dir
}

var victimFiles = []string{"file", "dist/index.html", "dist/file", "node_modules/file", ".npm/file", ".cache/file", "package.json"}

// unharmed fails the test if a file in the victim was changed, deleted or added.
func (h *harness) unharmed(victim string) {
	h.t.Helper()
	n := 0
	err := filepath.WalkDir(victim, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		text, err := os.ReadFile(name)
		if err == nil && string(text) != "untouched" {
			err = fmt.Errorf("%s is %q", name, text)
		}
		return err
	})
	if err != nil || n != len(victimFiles) {
		h.t.Fatalf("the victim has %d files, want %d: %v", n, len(victimFiles), err)
	}
	entries, err := os.ReadDir(victim)
	if err != nil || len(entries) != 6 {
		h.t.Fatalf("the victim has %v, %v", entries, err)
	}
}
