package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

// Request is a request to the program.
type Request struct {
	Method string
	Path   string // below /api/v1 …
	URL    string // … or the whole URL
	Key    string // API key. Optional.
	Body   any    // []byte and string are sent unchanged, other values as JSON. Optional.
	Header http.Header
}

// Answer is a complete response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON decodes the body into out.
func (a Answer) JSON(out any) error {
	if err := json.Unmarshal(a.Body, out); err != nil {
		return fmt.Errorf("answer %d is not what was expected: %w: %.300s", a.Status, err, a.Body)
	}
	return nil
}

// Err returns nil for 2xx, and otherwise describes the response.
func (a Answer) Err() error {
	if a.Status/100 == 2 {
		return nil
	}
	return fmt.Errorf("status %d: %.500s", a.Status, a.Body)
}

// Do sends a request to the REST API.
func (w *World) Do(ctx context.Context, r Request) (Answer, error) {
	request, err := w.request(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return Read(w.client.Do(request))
}

func (w *World) request(ctx context.Context, r Request) (*http.Request, error) {
	if r.URL == "" {
		r.URL = "http://" + w.Listen + "/api/v1" + r.Path
	}
	var body io.Reader
	switch b := r.Body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	case string:
		body = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, err
	}
	if r.Header != nil {
		request.Header = r.Header.Clone()
	}
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		request.Header.Set("Authorization", "Bearer "+r.Key)
	}
	return request, nil
}

// Call sends a request with a key and decodes a 2xx answer into out, unless out is nil.
func (w *World) Call(ctx context.Context, key, method, path string, body, out any) error {
	answer, err := w.Do(ctx, Request{Method: method, Path: path, Key: key, Body: body})
	if err == nil {
		err = answer.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if out == nil {
		return nil
	}
	return answer.JSON(out)
}

// Read reads a response to its end.
func Read(r *http.Response, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return Answer{r.StatusCode, r.Header, body}, err
}

// Browser returns a client that resolves every host of this installation and trusts its authority, doesn't follow
// redirects and doesn't decompress.
func (w *World) Browser() (*http.Client, error) {
	roots, err := w.Trust()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Transport: w.transport(&http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", w.address(addr))
			},
			TLSClientConfig:     &tls.Config{RootCAs: roots},
			DisableCompression:  true,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 64,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// address returns the address for a host. Without a port it is the sites' own.
func (w *World) address(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	switch port {
	case "443":
		return w.HTTPS
	case "80":
		return w.HTTP
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// Site requests a URL of a site like a browser.
func (w *World) Site(ctx context.Context, client *http.Client, r Request) (Answer, error) {
	request, err := w.request(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return Read(client.Do(request))
}

// Wait is the type of Until and Watch.
type Wait func(ctx context.Context, pause time.Duration, look func() (bool, error)) error

// Until calls look until it returns true, and returns its last error when ctx ends. It polls at intervals of pause, and
// less often during long waits: after a twentieth of the time waited, at most every 0.5 s. Many tests wait
// concurrently, and each poll takes the program's time.
func Until(ctx context.Context, pause time.Duration, look func() (bool, error)) error {
	start := time.Now()
	return until(ctx, func() time.Duration { return max(pause, min(time.Since(start)/20, time.Second/2)) }, look)
}

// Watch is Until for a state that may not last: it always polls at intervals of pause.
func Watch(ctx context.Context, pause time.Duration, look func() (bool, error)) error {
	return until(ctx, func() time.Duration { return pause }, look)
}

func until(ctx context.Context, pause func() time.Duration, look func() (bool, error)) error {
	for {
		ok, err := look()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %v", context.Cause(ctx), err)
		case <-time.After(pause()):
		}
	}
}

// Patience returns a limit for something that takes at most d on an idle machine: d times the number of runnable
// processes per processor, now or in the last minute, at most ten times.
func Patience(d time.Duration) time.Duration {
	var one, five, fifteen float64
	var now int
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscanf(string(text), "%f %f %f %d/", &one, &five, &fifteen, &now) // proc_loadavg(5)
	}
	return time.Duration(float64(d) * min(10, max(1, max(one, float64(now))/float64(runtime.NumCPU()))))
}
