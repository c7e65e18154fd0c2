package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// visitor is a separate process that sends requests like visitors with idle computers. It runs with a high priority, so
// that it measures the service's time and not its own waiting for a processor.
type visitor struct {
	Asks  map[string]ask
	Sites string // HOST:PORT of the sites, for URLs without a port
	Long  time.Duration
}

// ask is a request that is repeated at a visitor's pace.
type ask struct {
	URL   string
	Key   string        // API key. Optional.
	Every time.Duration // interval; requests don't overlap
	Fresh bool          // with a different query each time, to bypass caches
}

// latencies holds the durations of the answers to one ask.
type latencies struct {
	Took   []time.Duration
	Failed int
	Why    string // reason of the first failure
}

// visiting is the argument with which this program acts as a visitor.
const visiting = "visit"

// run starts the process and returns its results.
func (v visitor) run(ctx context.Context) (map[string]*latencies, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "-15", self, visiting)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("visit: %w", err)
	}
	saw := map[string]*latencies{}
	return saw, json.Unmarshal(out.Bytes(), &saw)
}

// visitMain is the main function of that process.
func visitMain() error {
	var v visitor
	if err := json.NewDecoder(os.Stdin).Decode(&v); err != nil {
		return err
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			switch {
			case err != nil:
				return nil, err
			case port == "443":
				addr = v.Sites
			case strings.HasSuffix(host, ".localhost"):
				addr = "127.0.0.1:" + port
			}
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		},
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // the certificates are from the installation's own authority
		DisableCompression: true, ForceAttemptHTTP2: true,
	}}
	ctx, done := context.WithTimeout(context.Background(), v.Long)
	defer done()
	saw := map[string]*latencies{}
	var all sync.WaitGroup
	for what, a := range v.Asks {
		l := &latencies{}
		saw[what] = l
		all.Go(func() {
			tick := time.NewTicker(a.Every)
			defer tick.Stop()
			for n := 0; ; n++ {
				begun := time.Now()
				got, err := a.once(client, n)
				if took := time.Since(begun); err != nil || got.Status != http.StatusOK {
					l.Failed++
					l.Why = cmp.Or(l.Why, fmt.Sprintf("%v after %s: %d %.200s", err, took.Round(time.Millisecond), got.Status, got.Body))
				} else {
					l.Took = append(l.Took, took)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(saw)
}

func (a ask) once(client *http.Client, n int) (world.Answer, error) {
	to := a.URL
	if a.Fresh {
		to += fmt.Sprint("?fresh=", n)
	}
	r, err := http.NewRequest(http.MethodGet, to, nil)
	if err != nil {
		return world.Answer{}, err
	}
	if a.Key != "" {
		r.Header.Set("Authorization", "Bearer "+a.Key)
	}
	return world.Read(client.Do(r))
}
