package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"slipway/e2e/world"
)

// http3 measures files over HTTP/3 against Caddy, which uses the same library. So does the client, which uses more of
// the machine than either server.
func (b *bench) http3(w *world.World) error {
	root := filepath.Join(w.Dir, "files")
	host, _, err := b.staticSite(w, root)
	if err != nil {
		return err
	}
	w.Flags = append(w.Flags, "--http3")
	if err := errors.Join(w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
		return err
	}
	dir := filepath.Join(w.Dir, "nginx")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := writeCertificate(dir, host); err != nil {
		return err
	}
	peers := []*peer{{"slipway", w.HTTPS, w.PID()}}
	if c, err := startCaddy(b.ctx, w.Dir, dir, host, root); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	} else {
		defer c.stop()
		peers = append(peers, &peer{"caddy", c.addr, c.cmd.Process.Pid})
	}
	for _, m := range []struct{ what, file string }{{"HTTP/3, 4 KiB", "4k.bin"}, {"HTTP/3, 100 KiB", "100k.bin"}} {
		load := func(p *peer) (loaded, error) { return b.loadHTTP3(p, host, m.file) }
		if err := b.compareBy(m.what, peers, []string{"≥ 1.0×"}, load); err != nil {
			return err
		}
	}
	return nil
}

// loadHTTP3 requests one file from a server for a while: 8 connections with 8 concurrent requests each.
func (b *bench) loadHTTP3(p *peer, host, file string) (l loaded, err error) {
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return l, err
	}
	url := "https://" + net.JoinHostPort(host, port) + "/" + file
	before := cpuTime(p.pid)
	ctx, cancel := context.WithTimeout(b.ctx, b.load)
	defer cancel()
	var (
		mu    sync.Mutex // guards times and first
		times []time.Duration
		first error
		group sync.WaitGroup
	)
	for range 8 {
		tr := &http3.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
			Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
				return quic.DialAddr(ctx, p.addr, t, q)
			},
		}
		defer tr.Close()
		for range 8 {
			group.Go(func() {
				var own []time.Duration
				var err error
				for ctx.Err() == nil && err == nil {
					begun := time.Now()
					if err = getHTTP3(b.ctx, tr, url); err == nil {
						own = append(own, time.Since(begun))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				times = append(times, own...)
				if err != nil {
					first = err
				}
			})
		}
	}
	group.Wait()
	after := cpuTime(p.pid)
	if first != nil || len(times) == 0 {
		return l, fmt.Errorf("%d answers: %w", len(times), first)
	}
	l.rate, l.cpu, l.p99 = float64(len(times))/b.load.Seconds(), float64((after-before).Microseconds())/float64(len(times)), quantile(
		times,
		.99,
	)
	return l, nil
}

func getHTTP3(ctx context.Context, tr *http3.Transport, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	return nil
}
