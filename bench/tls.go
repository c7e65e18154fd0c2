package main

import (
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

const (
	tlsRounds = 5               // pairs per measurement
	tlsSlice  = 1 * time.Second // of one side of a pair
)

// tls measures handshakes against nginx with the same kind of key and the same client.
//
// The client needs more processor time than either server and shares their cores, so the rates differ less than the
// servers do. The servers' own cost is their CPU time.
func (b *bench) tls(w *world.World) error {
	host, _, err := b.tlsSite(w)
	if err != nil {
		return err
	}
	// The client verifies the handshake's signature, but no chain, which would cost the same for both.
	plain := &tls.Config{ServerName: host, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
	state, err := visit(w.HTTPS, plain)
	if err != nil {
		return err
	}
	key, ok := state.PeerCertificates[0].PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the key is a %T, not ECDSA", state.PeerCertificates[0].PublicKey)
	}
	dir := filepath.Join(w.Dir, "nginx")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	n, err := startNginx(b.ctx, dir, host, key.Curve)
	if err != nil { // measure ours anyway
		fmt.Fprintln(os.Stderr, "bench:", err)
		n = nil
	} else {
		defer n.stop()
		b.nginx = n.version
	}
	x25519 := plain.Clone()
	x25519.CurvePreferences = []tls.CurveID{tls.X25519}
	for _, m := range []struct {
		config *tls.Config
		goal   string
	}{{x25519, "≥ 0.8×"}, {plain, ""}} {
		for _, resume := range []bool{false, true} {
			if err := b.pairs(w, n, m.config, resume, m.goal); err != nil {
				return err
			}
		}
	}
	return nil
}

// tlsSite creates a site.
func (b *bench) tlsSite(w *world.World) (host, id string, err error) {
	if err := b.commit(w, "bench/tls", 3, "tls"); err != nil {
		return "", "", err
	}
	var created struct{ Data struct{ ID, URL string } }
	err = w.Call(b.ctx, b.key, "POST", "/sites", map[string]string{
		"name":       "tls",
		"type":       "static",
		"repository": "git.test/bench/tls",
		"branch":     "main",
	}, &created)
	if err != nil {
		return "", "", err
	}
	browser, err := w.Browser()
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(created.Data.URL)
	if err != nil {
		return "", "", err
	}
	return u.Hostname(), created.Data.ID, b.shows(w, browser, created.Data.URL, "tls")
}

// shaken is the result of one round of handshakes.
type shaken struct {
	took   []time.Duration // from dialing to the end of the handshake
	wall   time.Duration
	cpu    time.Duration // of the server
	agreed tls.CurveID   // key exchange group
}

func (s shaken) rate() float64   { return float64(len(s.took)) / s.wall.Seconds() }
func (s shaken) perCPU() float64 { return float64(len(s.took)) / max(s.cpu.Seconds(), 1e-9) }

func (s shaken) shared() string {
	return fmt.Sprintf("%.0f/s, p50 %s, p99 %s", s.rate(), ms(quantile(s.took, .5)), ms(quantile(s.took, .99)))
}

func (s shaken) alone() string {
	return fmt.Sprintf("%.0f/s (%.0f µs each)", s.perCPU(), 1e6/s.perCPU())
}

// pairs measures Slipway and, if it is available, nginx, alternating, and adds rows with the medians of the ratios.
func (b *bench) pairs(w *world.World, n *nginx, config *tls.Config, resume bool, goal string) error {
	var ours, theirs shaken
	var rates, cpus []float64
	for range tlsRounds {
		us, err := b.shake(w.HTTPS, w.PID(), config, resume)
		if err != nil {
			return err
		}
		ours.add(us)
		if n == nil {
			continue
		}
		them, err := b.shake(n.addr, n.cmd.Process.Pid, config, resume)
		if err != nil {
			return fmt.Errorf("nginx: %w", err)
		}
		theirs.add(them)
		rates = append(rates, us.rate()/them.rate())
		cpus = append(cpus, us.perCPU()/them.perCPU())
	}
	what := fmt.Sprintf("%s handshakes, %v", map[bool]string{false: "full", true: "resumed"}[resume], ours.agreed)
	wall := row{what: what, value: ours.shared(), goal: goal}
	cpu := row{what: what + ", by server CPU", value: ours.alone(), goal: goal}
	if n != nil {
		slices.Sort(rates)
		slices.Sort(cpus)
		name := "nginx "
		if theirs.agreed != ours.agreed {
			name = fmt.Sprintf("nginx (%v) ", theirs.agreed)
		}
		wall.yardstick, wall.ratio = name+theirs.shared(), fmt.Sprintf("%.2f×", rates[len(rates)/2])
		cpu.yardstick, cpu.ratio = name+theirs.alone(), fmt.Sprintf("%.2f×", cpus[len(cpus)/2])
	}
	b.add(wall)
	b.add(cpu)
	return nil
}

func (s *shaken) add(more shaken) {
	s.took = append(s.took, more.took...)
	s.wall += more.wall
	s.cpu += more.cpu
	s.agreed = more.agreed
}

// shake performs handshakes for a while from several concurrent clients.
func (b *bench) shake(addr string, pid int, config *tls.Config, resume bool) (shaken, error) {
	var (
		mu    sync.Mutex // guards all and first
		all   shaken
		first error
		group sync.WaitGroup
		ready sync.WaitGroup
		start = make(chan struct{})
		end   time.Time
	)
	ready.Add(readers)
	for range readers {
		group.Go(func() {
			c := config.Clone()
			var own []time.Duration
			var agreed tls.CurveID
			var err error
			if resume {
				c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
				_, err = visit(addr, c) // to get a ticket
			}
			ready.Done()
			<-start
			for err == nil && time.Now().Before(end) && b.ctx.Err() == nil {
				begun := time.Now()
				var s visited
				if s, err = visit(addr, c); err == nil && s.DidResume != resume {
					err = fmt.Errorf("resumed is %v", s.DidResume)
				}
				own, agreed = append(own, s.done.Sub(begun)), s.CurveID
			}
			mu.Lock()
			defer mu.Unlock()
			all.agreed = agreed
			all.took = append(all.took, own...)
			first = errors.Join(first, err)
		})
	}
	ready.Wait()
	before, err := cpuTime(pid)
	if err != nil {
		return all, err
	}
	begun := time.Now()
	end = begun.Add(tlsSlice)
	close(start)
	group.Wait()
	all.wall = time.Since(begun)
	after, err := cpuTime(pid)
	all.cpu = after - before
	return all, errors.Join(first, err)
}

// visited is the result and the time of a handshake.
type visited struct {
	tls.ConnectionState
	done time.Time
}

// visit connects, performs a handshake, and closes without a request. Until then, the server has sent its session
// tickets, so its part is complete.
func visit(addr string, config *tls.Config) (visited, error) {
	raw, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return visited{}, err
	}
	defer raw.Close()
	raw.(*net.TCPConn).SetLinger(0) // else thousands of closed connections would use up the ports
	raw.SetDeadline(time.Now().Add(10 * time.Second))
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		return visited{}, err
	}
	v := visited{conn.ConnectionState(), time.Now()}
	if err := conn.CloseWrite(); err != nil {
		return v, err
	}
	_, err = io.Copy(io.Discard, conn)
	return v, err
}

// cpuTime returns the CPU time of a process group so far.
func cpuTime(group int) (time.Duration, error) {
	return cpuOf(func(_, of int) bool { return of == group })
}

// cpuOf returns the CPU time so far of the processes that is selects by pid and process group. The kernel counts in
// units of 10 ms (USER_HZ is 100 on every Linux that Go supports).
func cpuOf(is func(pid, group int) bool) (time.Duration, error) {
	var total time.Duration
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the process has exited
		}
		_, rest, _ := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), ") ")
		fields := strings.Fields(rest) // fields from the third on (state): proc(5)
		if len(fields) < 13 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if group, _ := strconv.Atoi(fields[2]); !is(pid, group) {
			continue
		}
		for _, n := range fields[11:13] {
			ticks, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", f, err)
			}
			total += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return total, nil
}
