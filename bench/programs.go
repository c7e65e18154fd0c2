package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/e2e/world"
)

// benchScript is the simple Node.js server of these measurements.
const benchScript = "bench-of-programs.js"

var benchProgram = map[string]string{
	"package.json": `{"name": "app", "private": true, "scripts": {"start": "node ` + benchScript + `"}}`,
	benchScript: `require('http').createServer((q, r) => r.end('hello')).listen(process.env.PORT, '127.0.0.1')
process.on('SIGTERM', () => process.exit(0))`,
}

// program is a site with a Node.js server.
type program struct {
	id, url string
	client  *http.Client
}

// programs measures the overhead between a visitor and a Node.js server.
func (b *bench) programs(w *world.World) error {
	sites := make([]program, 11)
	dir := filepath.Join(w.Dir, "app")
	if err := errors.Join(
		b.repository(w, "app", benchProgram),
		b.repository(w, "php", map[string]string{"index.php": "<?php echo 'hello';"}),
	); err != nil {
		return err
	}
	for i := range sites {
		var err error
		if sites[i], err = b.program(w, fmt.Sprint("app", i), "app"); err != nil {
			return err
		}
	}
	php, err := b.program(w, "php", "php")
	if err != nil {
		return err
	}
	bare, err := startBare(b.ctx, dir)
	if err != nil {
		return err
	}
	defer bare.stop()
	for _, step := range []func() error{
		func() error {
			return b.wake(w, sites[0], "wake from zero to the first byte", "150 ms", func() (*bareProgram, error) {
				return startBare(b.ctx, dir)
			})
		},
		func() error { return b.wake(w, php, "wake of PHP from zero to the first byte", "100 ms", nil) },
		func() error { return b.addedLatency(sites[0], bare) },
		func() error { return b.throughput(w, sites[0], bare) },
		func() error { return b.programMemory(w, sites) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// program creates a site and waits until it answers.
func (b *bench) program(w *world.World, name, repo string) (p program, err error) {
	if p.id, p.url, err = b.create(w, b.key, name, repo); err != nil {
		return p, err
	}
	if err = b.call(w, "PATCH", "/sites/"+p.id, map[string]any{"run": map[string]any{"cpus": 4}}, nil); err != nil {
		return p, err
	}
	if p.client, err = w.Browser(); err != nil {
		return p, err
	}
	p.client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	return p, world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		err := p.get()
		return err == nil, err
	})
}

func (p program) get() error { return hello(p.client, p.url) }

func hello(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && string(text) != "hello" {
		err = fmt.Errorf("%d %.100s", resp.StatusCode, text)
	}
	return err
}

// bareProgram is the same server without Slipway.
type bareProgram struct {
	addr string
	cmd  *exec.Cmd
}

func startBare(ctx context.Context, dir string) (*bareProgram, error) {
	ports, err := world.FreePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(ports[0])
	cmd := exec.CommandContext(ctx, "node", benchScript)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PORT="+port, "NODE_ENV=production")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &bareProgram{ports[0], cmd}
	late, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return p, world.Until(late, 2*time.Millisecond, func() (bool, error) { err := hello(c, "http://"+p.addr); return err == nil, err })
}

func (p *bareProgram) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// wake measures the first request to a sleeping program, alternating with the start of the bare one if there is one.
func (b *bench) wake(w *world.World, p program, what, goal string, start func() (*bareProgram, error)) error {
	if err := b.call(w, "PATCH", "/sites/"+p.id, map[string]any{"run": map[string]any{"sleepAfterSeconds": 1}}, nil); err != nil {
		return err
	}
	var op struct{ ID string }
	if err := b.call(w, "POST", "/sites/"+p.id+"/restart", nil, &op); err != nil {
		return err
	}
	var ours, bare []time.Duration
	for range b.rounds {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
			var s struct{ Process struct{ State string } }
			err := b.call(w, "GET", "/sites/"+p.id, nil, &s)
			return s.Process.State == "sleeping", err
		})
		cancel()
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := p.get(); err != nil {
			return err
		}
		ours = append(ours, time.Since(begun))
		if start == nil {
			continue
		}
		begun = time.Now()
		x, err := start()
		if err != nil {
			return err
		}
		bare = append(bare, time.Since(begun))
		x.stop()
	}
	if start == nil {
		bare = []time.Duration{0}
	}
	b.timing(what+", p50", median(ours), median(bare), "bare node start", goal)
	b.timing(what+", p95", quantile(ours, .95), quantile(bare, .95), "bare node start", "")
	return b.call(w, "PATCH", "/sites/"+p.id, map[string]any{"run": map[string]any{"sleepAfterSeconds": 900}}, nil)
}

// addedLatency measures sequential requests through TLS and the edge against the bare program, alternating every
// hundred.
func (b *bench) addedLatency(p program, bare *bareProgram) error {
	direct := &http.Client{}
	var ours, theirs []time.Duration
	for range 30 {
		for range 100 {
			begun := time.Now()
			if err := p.get(); err != nil {
				return err
			}
			ours = append(ours, time.Since(begun))
		}
		for range 100 {
			begun := time.Now()
			if err := hello(direct, "http://"+bare.addr); err != nil {
				return err
			}
			theirs = append(theirs, time.Since(begun))
		}
	}
	b.add(row{
		what:      "latency added by TLS and the edge, p50",
		value:     ms(median(ours) - median(theirs)),
		yardstick: fmt.Sprintf("%s, asked directly %s", ms(median(ours)), ms(median(theirs))),
		goal:      "0.30 ms",
	})
	return nil
}

// throughput runs h2load against the edge, and against nginx with the bare program, alternating: HTTP/1.1 over TLS, 32
// connections.
func (b *bench) throughput(w *world.World, p program, bare *bareProgram) error {
	if _, err := exec.LookPath("h2load"); err != nil {
		return fmt.Errorf("h2load makes the load, please apt-get install nghttp2-client: %w", err)
	}
	dir := filepath.Join(w.Dir, "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	front, err := runNginx(b.ctx, dir, "app.test", fmt.Sprintf(`keepalive_requests 1000000000; location / {
			proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme; }
	}
	upstream app { server %s; keepalive 64; keepalive_requests 1000000000; }
	server { listen unix:%s;`, bare.addr, filepath.Join(dir, "unused.sock")))
	if err != nil {
		return err
	}
	defer front.stop()
	service := w.PID()
	if err := p.get(); err != nil { // wake it
		return err
	}
	ofProgram := map[int]bool{}
	for _, pid := range below(service) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		ofProgram[pid] = strings.HasPrefix(string(line), "node\x00"+benchScript)
	}
	body := filepath.Join(dir, "posted")
	if err := os.WriteFile(body, make([]byte, 1<<10), 0o600); err != nil {
		return err
	}
	for _, of := range []struct {
		suffix, goal string
		load         []string // h2load's arguments
	}{
		{"", "1.0×", []string{"--h1", "-c32"}},
		{", HTTP/2", "1.0×", []string{"-c8", "-m8"}},
		{", HTTP/2, POST of 1 KiB", "", []string{"-c8", "-m8", "-d", body}},
	} {
		var ours, theirs, ratios []float64
		var edge, app, nginx, plain []float64 // µs of CPU per request
		for range 5 {
			a, cpu, err := b.perSecond(of.load, w.HTTPS, strings.TrimPrefix(p.url,
				"https://"), func(pid, _ int) bool { return pid == service }, func(pid, _ int) bool { return ofProgram[pid] })
			if err != nil {
				return err
			}
			edge, app = append(edge, cpu[0]), append(app, cpu[1])
			n, cpu, err := b.perSecond(of.load, front.addr, "app.test",
				func(_, group int) bool { return group == front.cmd.Process.Pid },
				func(pid, _ int) bool { return pid == bare.cmd.Process.Pid })
			if err != nil {
				return err
			}
			nginx, plain = append(nginx, cpu[0]), append(plain, cpu[1])
			ours, theirs, ratios = append(ours, a), append(theirs, n), append(ratios, a/n)
		}
		for _, l := range [][]float64{ours, theirs, ratios, edge, app, nginx, plain} {
			slices.Sort(l)
		}
		b.add(row{
			what:      "requests per second through the edge" + of.suffix,
			value:     fmt.Sprintf("%.0f", ours[2]),
			yardstick: fmt.Sprintf("nginx as proxy %.0f", theirs[2]),
			ratio:     fmt.Sprintf("%.2f× (best pair %.2f×)", ratios[2], ratios[4]),
			goal:      of.goal,
		})
		b.add(row{
			what:      "CPU of the edge for each of them" + of.suffix,
			value:     fmt.Sprintf("%.1f µs", edge[2]),
			yardstick: fmt.Sprintf("nginx %.1f µs", nginx[2]),
			ratio:     fmt.Sprintf("%.2f×", edge[2]/nginx[2]),
		})
		b.add(row{
			what:      "CPU of the program for each of them, in its sandbox" + of.suffix,
			value:     fmt.Sprintf("%.1f µs", app[2]),
			yardstick: fmt.Sprintf("bare `node` behind nginx %.1f µs", plain[2]),
			ratio:     fmt.Sprintf("%.2f×", app[2]/plain[2]),
		})
	}
	return nil
}

// perSecond returns the requests per second, and the microseconds of CPU per request of each kind of process. load is
// h2load's arguments.
func (b *bench) perSecond(load []string, addr, host string, kinds ...func(pid, group int) bool) (rate float64, cpu []float64, err error) {
	name, _, _ := strings.Cut(host, ":")
	_, port, _ := net.SplitHostPort(addr)
	used := make([]time.Duration, len(kinds))
	for i, kind := range kinds {
		used[i] = cpuOf(kind)
	}
	seconds := max(1, int(b.load/time.Second)/2)
	// h2load hangs if the server closes connections.
	ctx, done := context.WithTimeout(b.ctx, time.Duration(seconds)*time.Second+30*time.Second)
	defer done()
	out, err := exec.CommandContext(ctx, "h2load", slices.Concat(load, []string{
		"-t1",
		fmt.Sprintf("-D%d", seconds),
		"--connect-to=" + addr,
		"https://" + net.JoinHostPort(name, port) + "/",
	})...).CombinedOutput()
	if err != nil {
		return 0, nil, fmt.Errorf("h2load: %w: %s", err, out)
	}
	// Requests in flight at the end count as failed or errored.
	ok := loadStatuses.FindSubmatch(out)
	if ok == nil {
		return 0, nil, fmt.Errorf("h2load says %s", out)
	}
	n, _ := strconv.Atoi(string(ok[1]))
	if n == 0 {
		return 0, nil, fmt.Errorf("h2load: nothing succeeded: %s", out)
	}
	for i, kind := range kinds {
		cpu = append(cpu, float64((cpuOf(kind)-used[i]).Microseconds())/float64(n))
	}
	return float64(n) / float64(seconds), cpu, nil
}

// programMemory measures the memory of ten running programs besides their own: the service's growth and its helpers.
func (b *bench) programMemory(w *world.World, sites []program) error {
	idle, err := settled(w)
	if err != nil {
		return err
	}
	many := 0
	for _, p := range sites[1:] {
		if err := p.get(); err != nil {
			return err
		}
		many++
	}
	after, err := settled(w)
	if err != nil {
		return err
	}
	helpers, nodes := helperMemory(w.PID())
	if nodes < many {
		return fmt.Errorf("%d programs run, want %d", nodes, many)
	}
	each := float64(max(0, after-idle))/float64(many) + float64(helpers)/float64(nodes)
	b.add(row{
		what:  "memory of a running site beside its program",
		value: fmt.Sprintf("%.2f MB", each/1000),
		yardstick: fmt.Sprintf("service %.2f MB, helpers %.2f MB", float64(after-idle)/float64(many)/1000,
			float64(helpers)/float64(nodes)/1000),
		goal: "3 MB",
	})
	return nil
}

// helperMemory returns the proportional memory (kB) of our child processes that aren't programs, and the number of
// programs.
func helperMemory(service int) (kb, programs int) {
	for _, pid := range below(service) {
		if pid == service {
			continue
		}
		dir := fmt.Sprintf("/proc/%d/", pid)
		switch line, _ := os.ReadFile(dir + "cmdline"); {
		case strings.HasPrefix(string(line), "node\x00"+benchScript):
			programs++
			continue
		case strings.HasPrefix(string(line), "php-fpm"): // the PHP site's, also a program
			continue
		}
		n := 0
		_, _ = fmt.Sscanf(field(dir+"smaps_rollup", "Pss"), "%d", &n)
		kb += n
	}
	return kb, programs
}
