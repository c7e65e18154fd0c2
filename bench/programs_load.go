package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/e2e/world"
)

// loadScript is the Node.js server of these measurements: it has its version in a header and in the body, counts
// uploads, sends events, and echoes data on an upgraded connection.
const loadScript = "load-of-programs.js"

func loadProgram(version string) map[string]string {
	return map[string]string{
		"package.json": `{"name": "load", "private": true, "scripts": {"start": "node ` + loadScript + `"}}`,
		loadScript: `const http = require('http'), version = '` + version + `'
http.createServer((q, r) => {
  r.setHeader('X-Version', version)
  if (q.url === '/events') {
    r.setHeader('Content-Type', 'text/event-stream')
    let n = 0
    const timer = setInterval(() => r.write('data: ' + n++ + '\n\n'), 1000)
    r.on('close', () => clearInterval(timer))
    return
  }
  let n = 0
  q.on('data', b => { n += b.length })
  q.on('end', () => r.end(version + ' ' + n))
}).on('upgrade', (q, s) => {
  s.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n')
  s.on('error', () => {}).pipe(s)
}).listen(process.env.PORT, '127.0.0.1')`,
	}
}

// loadSite is the site of these measurements.
type loadSite struct {
	program
	w       *world.World
	b       *bench
	version atomic.Int64 // of the newest commit
}

func (b *bench) programsLoad(w *world.World) error {
	s := &loadSite{w: w, b: b}
	if err := s.commit(); err != nil {
		return err
	}
	var made struct{ Data struct{ ID, URL string } }
	if err := b.call(w, "POST", "/sites", map[string]any{
		"name":       "load",
		"type":       "static",
		"repository": "git.test/bench/load",
		"branch":     "main",
		"run":        map[string]any{"cpus": 2},
	}, &made); err != nil {
		return err
	}
	s.id, s.url = made.Data.ID, made.Data.URL
	if err := b.settledSite(w, s.id); err != nil {
		return err
	}
	var err error
	if s.client, err = w.Browser(); err != nil {
		return err
	}
	for _, step := range []func() error{s.upload, s.sockets, s.events, s.switches, s.kills} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// commit commits the next version.
func (s *loadSite) commit() error {
	dir, err := os.MkdirTemp(s.b.dir, "load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	version := fmt.Sprint(s.version.Add(1))
	if err := world.WriteFiles(dir, loadProgram(version)); err != nil {
		return err
	}
	_, err = s.w.Git.Commit("bench/load", "main", dir, version)
	return err
}

// deploy deploys the next version.
func (s *loadSite) deploy() error {
	if err := s.commit(); err != nil {
		return err
	}
	var made struct{ DeploymentID string }
	if err := s.b.call(s.w, "POST", "/sites/"+s.id+"/deploy", nil, &made); err != nil {
		return err
	}
	return s.b.succeeded(s.w, made.DeploymentID)
}

func (s *loadSite) rss() (kb int) {
	_, _ = fmt.Sscanf(field(fmt.Sprintf("/proc/%d/status", s.w.PID()), "VmRSS"), "%d", &kb)
	return kb
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// upload uploads 1 GiB and checks the service's memory.
func (s *loadSite) upload() error {
	const size = 1 << 30
	before, most := s.rss(), 0
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			most = max(most, s.rss())
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	begun := time.Now()
	req, err := http.NewRequestWithContext(s.b.ctx, "POST", s.url+"/", io.LimitReader(zeros{}, size))
	if err != nil {
		return err
	}
	req.ContentLength = size
	resp, err := s.client.Do(req)
	took := time.Since(begun)
	close(done)
	watch.Wait()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); !strings.HasSuffix(string(text), fmt.Sprint(" ", size)) {
		return fmt.Errorf("upload: %d %.200s", resp.StatusCode, text)
	}
	s.b.add(row{
		what: "an upload of 1 GiB: memory of the service at most", value: fmt.Sprintf("%s more", megabytes(max(0, most-before))),
		yardstick: fmt.Sprintf("%.0f MB/s, %s before", size/1e6/took.Seconds(), megabytes(before)), goal: "constant",
	})
	return nil
}

// sockets opens 1,000 upgraded connections and uses each.
func (s *loadSite) sockets() error {
	const many = 1000
	u, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), []string{"http/1.1"}
	before, err := settled(s.w)
	if err != nil {
		return err
	}
	conns := make([]*tls.Conn, many)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	readers := make([]*bufio.Reader, many)
	for i := range conns {
		if conns[i], err = tls.Dial("tcp", s.w.HTTPS, config); err != nil {
			return err
		}
		fmt.Fprintf(conns[i], "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", u.Host)
		readers[i] = bufio.NewReaderSize(conns[i], 512)
		resp, err := http.ReadResponse(readers[i], nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			return fmt.Errorf("upgrade %d: %v, %w", i, resp, err)
		}
	}
	after, err := settled(s.w)
	if err != nil {
		return err
	}
	var took []time.Duration
	for round := range 3 {
		for i, c := range conns {
			begun := time.Now()
			fmt.Fprintf(c, "%d %d\n", round, i)
			if line, err := readers[i].ReadString('\n'); err != nil || line != fmt.Sprintf("%d %d\n", round, i) {
				return fmt.Errorf("echo %d: %q, %w", i, line, err)
			}
			took = append(took, time.Since(begun))
		}
	}
	s.b.add(row{
		what:      "1,000 WebSockets: an echo on each, three times, p50",
		value:     ms(median(took)),
		yardstick: fmt.Sprintf("service %.1f kB each", float64(after-before)/many),
		ratio:     "all answered",
	})
	return nil
}

// events reads streams for b.long and checks that no event is missing.
func (s *loadSite) events() error {
	const streams = 50
	want := int(s.b.long / time.Second)
	var all sync.WaitGroup
	errs := make(chan error, streams)
	for range streams {
		all.Go(func() {
			resp, err := s.client.Get(s.url + "/events")
			if err != nil {
				errs <- err
				return
			}
			defer resp.Body.Close()
			r := bufio.NewReader(resp.Body)
			for i := range want {
				line, err := r.ReadString('\n')
				if err != nil || line != fmt.Sprintf("data: %d\n", i) {
					errs <- fmt.Errorf("event %d: %q, %w", i, line, err)
					return
				}
				_, _ = r.ReadString('\n')
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	s.b.add(row{
		what:  fmt.Sprintf("%d streams of events for %s", streams, s.b.long),
		value: fmt.Sprintf("%d events", streams*want),
		ratio: "none missed",
	})
	return nil
}

// traffic sends requests at a rate until ctx ends. Every answer must be complete and from one release; check receives
// each failure.
func (s *loadSite) traffic(ctx context.Context, rate int, check func(err error)) (sent *atomic.Int64, wait func()) {
	sent = &atomic.Int64{}
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		begun, n := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int(time.Since(begun).Seconds() * float64(rate)); n < due; n++ {
				post := n%4 == 3
				all.Go(func() {
					err := s.once(post)
					sent.Add(1)
					if err != nil {
						check(err)
					}
				})
			}
		}
	})
	return sent, all.Wait
}

func (s *loadSite) once(post bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	method, body := "GET", ""
	if post {
		method, body = "POST", strings.Repeat("x", 3000)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%s %d", resp.Header.Get("X-Version"), len(body)); resp.StatusCode != 200 || string(text) != want {
		return fmt.Errorf("%d %.200q, want %q", resp.StatusCode, text, want)
	}
	return nil
}

// switches deploys 100 times under 500 requests per second.
func (s *loadSite) switches() error {
	const rate = 500
	ctx, cancel := context.WithCancel(s.b.ctx)
	defer cancel()
	var failed atomic.Int64
	var first atomic.Pointer[error]
	sent, wait := s.traffic(ctx, rate, func(err error) { failed.Add(1); first.CompareAndSwap(nil, &err) })
	begun := time.Now()
	for range s.b.switchCount {
		if err := s.deploy(); err != nil {
			return err
		}
	}
	took := time.Since(begun)
	cancel()
	wait()
	why := "all whole, each of one release"
	if p := first.Load(); p != nil {
		why = (*p).Error()
	}
	s.b.add(row{
		what:      fmt.Sprintf("%d deployments under %d requests a second", s.b.switchCount, rate),
		value:     fmt.Sprintf("%d of %d failed", failed.Load(), sent.Load()),
		yardstick: fmt.Sprintf("%.0f requests a second in %s", float64(sent.Load())/took.Seconds(), took.Round(time.Second)),
		ratio:     why,
		goal:      "0",
	})
	return nil
}

// kills kills the service at random moments of deployments under traffic. Afterwards, the newest live version must
// answer, and no other may run.
func (s *loadSite) kills() error {
	const times = 20
	var longest time.Duration
	for range times {
		ctx, cancel := context.WithCancel(s.b.ctx)
		_, wait := s.traffic(ctx, 100, func(error) {}) // requests in flight at a kill are lost
		if err := s.commit(); err != nil {
			cancel()
			return err
		}
		var made struct{ DeploymentID string }
		if err := s.b.call(s.w, "POST", "/sites/"+s.id+"/deploy", nil, &made); err != nil {
			cancel()
			return err
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
		s.w.Kill()
		cancel()
		wait()
		begun := time.Now()
		left, stop := context.WithTimeout(s.b.ctx, time.Minute)
		err := world.Until(left, 10*time.Millisecond, func() (bool, error) {
			n := processesOf(loadScript)
			return n == 0, fmt.Errorf("%d programs outlive the service", n)
		})
		stop()
		if err != nil {
			return err
		}
		if err := s.w.Start(s.b.ctx); err != nil {
			return err
		}
		if err := s.b.succeeded(s.w, made.DeploymentID); err != nil {
			return err
		}
		if text, err := s.visit(); err != nil || text != fmt.Sprintf("%d 0", s.version.Load()) {
			return fmt.Errorf("after a kill the site says %q, %w; want version %d", text, err, s.version.Load())
		}
		longest = max(longest, time.Since(begun))
		late, stop := context.WithTimeout(s.b.ctx, time.Minute)
		err = world.Until(late, 50*time.Millisecond, func() (bool, error) {
			n := processesOf(loadScript)
			return n == 1, fmt.Errorf("%d programs run", n)
		})
		stop()
		if err != nil {
			return err
		}
	}
	s.b.add(row{
		what: fmt.Sprintf("%d kills (SIGKILL) amid deployments under traffic", times), value: "0 orphans, 0 stuck, 0 old releases",
		yardstick: "at most " + ms(longest) + " until the new release answers", goal: "0",
	})
	return nil
}

func (s *loadSite) visit() (string, error) {
	resp, err := s.client.Get(s.url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// processesOf returns the number of Node.js processes that run a script.
func processesOf(script string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(line), "node\x00"+script) {
			n++
		}
	}
	return n
}
