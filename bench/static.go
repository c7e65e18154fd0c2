package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// Files of the measured site. They are incompressible, so that all servers send the same bytes.
var staticFiles = map[string]int{"4k.bin": 4 << 10, "100k.bin": 100 << 10}

const staticRounds = 5

// peer is a measured server: Slipway or a baseline.
type peer struct {
	name, addr string
	pid        int
}

// loaded is the result of one round of load.
type loaded struct {
	rate, cpu float64 // requests per second; µs of the server's CPU per request
	p99       time.Duration
}

// static measures files over TLS against nginx and Caddy, alternating, with the same client.
func (b *bench) static(w *world.World) error {
	if _, err := exec.LookPath("h2load"); err != nil {
		return fmt.Errorf("h2load makes the load, please apt-get install nghttp2-client: %w", err)
	}
	root := filepath.Join(w.Dir, "files")
	host, id, err := b.staticSite(w, root)
	if err != nil {
		return err
	}
	ours := &peer{"slipway", w.HTTPS, w.PID()}
	peers := []*peer{ours}
	dir := filepath.Join(w.Dir, "nginx")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if n, err := startNginxFiles(b.ctx, dir, host, root); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	} else {
		defer n.stop()
		b.nginx = n.version
		peers = append(peers, &peer{"nginx", n.addr, n.cmd.Process.Pid})
	}
	if c, err := startCaddy(b.ctx, w.Dir, filepath.Join(w.Dir, "nginx"), host, root); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	} else {
		defer c.stop()
		peers = append(peers, &peer{"caddy", c.addr, c.cmd.Process.Pid})
	}
	for _, m := range []struct {
		what, file  string
		args        []string
		nginx, cady string
	}{
		{"TLS + HTTP/2, 4 KiB", "4k.bin", []string{"-c16", "-m16"}, "≥ 1.5×", "≥ 5×"},
		{"TLS + HTTP/2, 100 KiB", "100k.bin", []string{"-c16", "-m16"}, "≥ 1.0×", ""},
		{"TLS + HTTP/1.1 kept alive, 4 KiB", "4k.bin", []string{"--h1", "-c64"}, "≥ 1.0×", "≥ 5×"},
		{"TLS + HTTP/1.1 kept alive, 100 KiB", "100k.bin", []string{"--h1", "-c64"}, "≥ 1.0×", ""},
	} {
		if err := b.compare(m.what, host, m.file, m.args, peers, []string{m.nginx, m.cady}); err != nil {
			return err
		}
	}
	for _, p := range peers {
		b.add(row{what: "memory after the load, " + p.name, value: megabytes(residentGroup(p.pid))})
	}
	return b.hosts(w, host, id)
}

// compare measures the peers, alternating, and adds rows with the medians.
func (b *bench) compare(what, host, file string, args []string, peers []*peer, goals []string) error {
	return b.compareBy(what, peers, goals, func(p *peer) (loaded, error) { return b.h2load(p, host, file, args) })
}

// compareBy is compare with any client.
func (b *bench) compareBy(what string, peers []*peer, goals []string, load func(*peer) (loaded, error)) error {
	got := make([][]loaded, len(peers))
	for range staticRounds {
		for i, p := range peers {
			l, err := load(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			got[i] = append(got[i], l)
		}
	}
	ours := middle(got[0])
	value := func(l loaded) string {
		return fmt.Sprintf("%.0f/s, %.1f µs CPU each, p99 %s", l.rate, l.cpu, ms(l.p99))
	}
	if len(peers) == 1 {
		b.add(row{what: what, value: value(ours)})
	}
	for i := 1; i < len(peers); i++ {
		var ratios []float64
		for r := range staticRounds {
			ratios = append(ratios, got[0][r].rate/got[i][r].rate)
		}
		slices.Sort(ratios)
		them := middle(got[i])
		b.add(row{
			what: what, value: value(ours), yardstick: peers[i].name + " " + value(them),
			ratio: fmt.Sprintf("%.2f× (CPU %.2f×)", ratios[len(ratios)/2], them.cpu/ours.cpu), goal: goals[i-1],
		})
	}
	return nil
}

// middle returns the median of each field.
func middle(all []loaded) (m loaded) {
	of := func(f func(loaded) float64) float64 {
		var v []float64
		for _, l := range all {
			v = append(v, f(l))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	m.rate, m.cpu = of(func(l loaded) float64 { return l.rate }), of(func(l loaded) float64 { return l.cpu })
	m.p99 = time.Duration(of(func(l loaded) float64 { return float64(l.p99) }))
	return m
}

var (
	loadRequests = regexp.MustCompile(`requests: (\d+) total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored`)
	loadStatuses = regexp.MustCompile(`status codes: (\d+) 2xx`)
)

// h2load requests one file from a server for a while.
func (b *bench) h2load(p *peer, host, file string, args []string) (l loaded, err error) {
	log := filepath.Join(b.dir, "h2load.log")
	os.Remove(log)
	_, port, _ := net.SplitHostPort(p.addr)
	seconds := max(1, int(b.load/time.Second)/2)
	args = append(
		slices.Clone(args),
		"-t1",
		fmt.Sprintf("-D%d", seconds),
		"--log-file="+log,
		"--connect-to="+p.addr,
		"https://"+net.JoinHostPort(host, port)+"/"+file,
	)
	before := cpuTime(p.pid)
	begun := time.Now()
	out, err := exec.CommandContext(b.ctx, "h2load", args...).CombinedOutput()
	took := time.Since(begun)
	if err != nil {
		return l, fmt.Errorf("h2load: %w: %s", err, out)
	}
	after := cpuTime(p.pid)
	// In a run with a duration, requests in flight at the end count as failed or errored.
	m, ok := loadRequests.FindSubmatch(out), loadStatuses.FindSubmatch(out)
	if m == nil || ok == nil {
		return l, fmt.Errorf("h2load says %s", out)
	}
	done, _ := strconv.Atoi(string(ok[1]))
	if done == 0 {
		return l, fmt.Errorf("h2load: nothing succeeded: %s", out)
	}
	l.rate = float64(done) / float64(seconds)
	l.cpu = float64((after - before).Microseconds()) / float64(done)
	text, err := os.ReadFile(log)
	if err != nil {
		return l, err
	}
	var times []time.Duration
	for line := range strings.Lines(string(text)) { // start, status, microseconds
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[1] != "200" {
			continue
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return l, fmt.Errorf("h2load's log: %w", err)
		}
		times = append(times, time.Duration(us)*time.Microsecond)
	}
	if len(times) == 0 {
		return l, fmt.Errorf("h2load: an empty log after %s", took)
	}
	l.p99 = quantile(times, .99)
	return l, nil
}

// staticSite deploys the files, and writes them to root for the other servers.
func (b *bench) staticSite(w *world.World, root string) (host, id string, err error) {
	random := rand.NewChaCha8([32]byte{1})
	files := map[string]string{"index.html": "<h1>static</h1>"}
	for name, size := range staticFiles {
		body := make([]byte, size)
		random.Read(body)
		files[name] = string(body)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", "", err
	}
	if err := world.WriteFiles(root, files); err != nil {
		return "", "", err
	}
	for name := range files {
		if err := os.Chmod(filepath.Join(root, name), 0o644); err != nil {
			return "", "", err
		}
	}
	if _, err := w.Git.Commit("bench/static", "main", root, "static"); err != nil {
		return "", "", err
	}
	id, address, err := b.create(w, b.key, "static", "static")
	if err != nil {
		return "", "", err
	}
	browser, err := w.Browser()
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", "", err
	}
	return u.Hostname(), id, b.shows(w, browser, address, "static")
}

// hosts measures one site against random ones of very many sites: the same number of connections, each to a different
// host, which repeatedly request 4 KiB.
func (b *bench) hosts(w *world.World, host, id string) error {
	const conns = 512
	_, domain, _ := strings.Cut(host, ".")
	if err := b.restarted(w, func() error { return seedLike(b.ctx, w, b.sites, id) }); err != nil {
		return err
	}
	var ones, manys []loaded
	var ratios []float64
	for range staticRounds {
		one, err := b.askHosts(w, conns, func(int) string { return host })
		if err != nil {
			return err
		}
		many, err := b.askHosts(w, conns, func(int) string { return fmt.Sprintf("seeded-%d.%s", rand.IntN(b.sites), domain) })
		if err != nil {
			return err
		}
		ones, manys, ratios = append(ones, one), append(manys, many), append(ratios, many.rate/one.rate)
	}
	slices.Sort(ratios)
	one, many := middle(ones), middle(manys)
	b.add(row{
		what:      fmt.Sprintf("%d live sites, %d connections to random ones, 4 KiB", b.sites, conns),
		value:     fmt.Sprintf("%.0f/s, %.1f µs CPU each", many.rate, many.cpu),
		yardstick: fmt.Sprintf("one site %.0f/s, %.1f µs CPU each", one.rate, one.cpu),
		ratio:     fmt.Sprintf("%.2f× (CPU %.2f×)", ratios[len(ratios)/2], one.cpu/many.cpu),
		goal:      "≥ 0.9×",
	})
	b.add(row{what: fmt.Sprintf("memory, %d live sites under that load", b.sites), value: megabytes(residentGroup(w.PID())), goal: "< 1 GB"})
	return nil
}

// askHosts opens connections one after the other, and then sends requests on all concurrently.
func (b *bench) askHosts(w *world.World, n int, host func(int) string) (l loaded, err error) {
	type client struct {
		*tls.Conn
		request []byte
	}
	var clients []client
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	buf := make([]byte, 16<<10)
	for i := range n {
		name := host(i)
		c, err := tls.Dial("tcp", w.HTTPS, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			return l, err
		}
		clients = append(clients, client{c, []byte("GET /4k.bin HTTP/1.1\r\nHost: " + name + "\r\n\r\n")})
		if err := askOnce(c, clients[i].request, buf); err != nil { // load everything into memory
			return l, err
		}
	}
	var (
		mu    sync.Mutex // guards done and first
		done  int
		first error
		group sync.WaitGroup
	)
	before := cpuTime(w.PID())
	ctx, cancel := context.WithTimeout(b.ctx, b.load)
	defer cancel()
	for part := range readers {
		group.Go(func() {
			buf, own := make([]byte, 16<<10), 0
			var err error
			for i := part; ctx.Err() == nil && err == nil; i += readers {
				c := clients[i%len(clients)]
				err = askOnce(c.Conn, c.request, buf)
				own++
			}
			mu.Lock()
			done += own
			if err != nil {
				first = err
			}
			mu.Unlock()
		})
	}
	group.Wait()
	l.rate, l.cpu = float64(done)/b.load.Seconds(), float64((cpuTime(w.PID())-before).Microseconds())/float64(done)
	return l, first
}

var contentLength = regexp.MustCompile(`(?i)\r\ncontent-length: (\d+)\r\n`)

// askOnce sends a request and reads the answer.
func askOnce(c *tls.Conn, request, buf []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	return askRead(c, buf)
}

// askRead reads one answer.
func askRead(c *tls.Conn, buf []byte) error {
	n := 0
	for {
		m, err := c.Read(buf[n:])
		n += m
		if end := strings.Index(string(buf[:n]), "\r\n\r\n"); end > 0 {
			length := contentLength.FindSubmatch(buf[:end+4])
			if length == nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200") {
				return fmt.Errorf("answer %.80q", buf[:n])
			}
			if size, _ := strconv.Atoi(string(length[1])); n >= end+4+size {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
