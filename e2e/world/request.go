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

// Request is one request to the program.
type Request struct {
	Method string
	Path   string // below /api/v1 …
	URL    string // … or the whole address
	Key    string // Bearer. Optional.
	Body   any    // []byte and string are sent as they are, anything else as JSON. Optional.
	Header http.Header
}

// Answer holds what came back, read to its end.
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

// Err is nil for 2xx, and says what came instead otherwise.
func (a Answer) Err() error {
	if a.Status/100 == 2 {
		return nil
	}
	return fmt.Errorf("status %d: %.500s", a.Status, a.Body)
}

// Do sends one request to the REST interface.
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

// Call sends a request with a key and decodes a 2xx answer into out, unless that is nil.
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

// Read reads what came back to its end.
func Read(r *http.Response, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return Answer{r.StatusCode, r.Header, body}, err
}

// Browser returns a client that finds every host of this installation and trusts its
// authority, follows no redirect and unpacks nothing.
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

// address is where a name's port is: a name without one means the sites' own ports.
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

// Site fetches an address of a site, as a browser would.
func (w *World) Site(ctx context.Context, client *http.Client, r Request) (Answer, error) {
	request, err := w.request(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return Read(client.Do(request))
}

// Wait is Until or Watch.
type Wait func(ctx context.Context, pause time.Duration, look func() (bool, error)) error

// Until calls look until it returns true, and fails with its last error when ctx ends. It looks after each pause, and more seldom
// where it takes long: after a twentieth of what it has waited, at most half a second. Many stories wait at once, and each look is work
// for the program.
func Until(ctx context.Context, pause time.Duration, look func() (bool, error)) error {
	start := time.Now()
	return until(ctx, func() time.Duration { return max(pause, min(time.Since(start)/20, time.Second/2)) }, look)
}

// Watch is Until for what is over soon after it has come: it looks after each pause, however long it takes.
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

// Patience is how long something may take here that takes at most d on a machine with
// nothing else to do: as many times longer as there are processes that want to run for each
// processor, in the last minute or now, and at most ten times as long.
func Patience(d time.Duration) time.Duration {
	var one, five, fifteen float64
	var now int
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscanf(string(text), "%f %f %f %d/", &one, &five, &fifteen, &now) // proc_loadavg(5)
	}
	return time.Duration(float64(d) * min(10, max(1, max(one, float64(now))/float64(runtime.NumCPU()))))
}
