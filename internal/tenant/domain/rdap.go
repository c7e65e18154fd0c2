package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const rdapMax = 512 << 10 // limit of an answer; typical ones have a few KiB

// registries queries registries over RDAP (RFC 9082, RFC 9083).
type registries struct {
	client *http.Client

	mu      sync.Mutex // guards shipped, fresh and quiet
	shipped bases
	fresh   bases // IANA's newer list
	// share: none, the registries': one for each that doesn't respond
	quiet map[string]time.Time // until when an unresponsive base is skipped
}

// silence is the reason why a registry didn't respond. It says nothing about the name.
type silence struct {
	retry time.Duration // when to ask again
	err   error
}

func (s *silence) Error() string { return s.err.Error() }
func (s *silence) Unwrap() error { return s.err }

func newRegistries(out *http.Client) *registries {
	shipped, err := parseBootstrap(shippedBootstrap)
	if err != nil {
		panic("rdap.json: " + err.Error()) // embedded and covered by a test
	}
	c := http.Client{Transport: errNoHTTPClient{}}
	if out != nil {
		c = *out
	}
	// Follow the few redirects that registries use (RFC 7480 §5.2), but only over https.
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 3 {
			return errors.New("redirected too often")
		}
		if req.URL.Scheme != "https" || req.URL.User != nil {
			return errors.New("redirected to an address that is not https")
		}
		return nil
	}
	return &registries{client: &c, shipped: shipped, quiet: map[string]time.Time{}}
}

// errNoHTTPClient is the error without an HTTP client.
type errNoHTTPClient struct{}

func (errNoHTTPClient) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no HTTP client is configured")
}

func (r *registries) learn(b bases) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = b
}

// taken asks a name's registry whether it is registered. Every error is a *silence.
func (r *registries) taken(ctx context.Context, name string) (bool, error) {
	r.mu.Lock()
	urls := r.fresh.find(name)
	if urls == nil {
		urls = r.shipped.find(name)
	}
	r.mu.Unlock()
	if len(urls) == 0 {
		return false, &silence{time.Hour, fmt.Errorf("ask rdap about %s: no server is known for its suffix", name)}
	}
	var last *silence
	for _, base := range urls[:min(len(urls), 2)] {
		if wait := r.wait(base); wait > 0 {
			last = &silence{wait, fmt.Errorf("ask %s: waiting as it requested", base)}
			continue
		}
		taken, err := r.ask(ctx, base, name)
		if err == nil {
			return taken, nil
		}
		last = err
		r.leaveAlone(base, err.retry)
	}
	return false, last
}

func (r *registries) wait(base string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.quiet[base])
}

func (r *registries) leaveAlone(base string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for b, until := range r.quiet {
		if until.Before(now) {
			delete(r.quiet, b)
		}
	}
	r.quiet[base] = now.Add(d)
}

// ask treats 200 with the object of exactly this name as yes, and 404 from an RDAP server as no (RFC 7480 §5.3). Any
// other response, such as 429, a server error, a proxy's page or another name's object, is a silence.
func (r *registries) ask(ctx context.Context, base, name string) (bool, *silence) {
	soon := func(err error) *silence {
		return &silence{5 * time.Second, fmt.Errorf("ask %s about %s: %w", base, name, err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"domain/"+name, nil)
	if err != nil {
		return false, soon(err)
	}
	req.Header.Set("Accept", "application/rdap+json")
	res, err := r.client.Do(req)
	if err != nil {
		return false, soon(err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK, http.StatusNotFound:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		s := soon(errors.New(res.Status))
		s.retry = retryAfter(res.Header.Get("Retry-After"))
		return false, s
	default:
		return false, soon(errors.New(res.Status))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, rdapMax+1))
	if err != nil {
		return false, soon(err)
	}
	if len(body) > rdapMax {
		return false, soon(errors.New("the answer is too large"))
	}
	var object struct {
		Class   string `json:"objectClassName"`
		LDH     string `json:"ldhName"`
		Unicode string `json:"unicodeName"`
	}
	if res.StatusCode == http.StatusNotFound {
		return false, notFound(res.Header.Get("Content-Type"), body, soon)
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return false, soon(err)
	}
	if !strings.EqualFold(object.Class, "domain") {
		return false, soon(errors.New("the answer is not about a domain"))
	}
	for _, n := range []string{object.LDH, object.Unicode} {
		if a, err := ascii(n); err == nil && a == name {
			return true, nil
		}
	}
	return false, soon(fmt.Errorf("the answer is about %.100q", object.LDH))
}

// notFound returns nil if a 404 is from an RDAP server (RFC 7480 §5.3): it has RDAP's media type and, if there is a
// body, an errorCode that agrees (RFC 9083 §6). An empty body may lack a media type. Anything else is a proxy's page.
func notFound(contentType string, body []byte, soon func(error) *silence) *silence {
	kind, _, _ := mime.ParseMediaType(contentType)
	body = bytes.TrimSpace(body)
	if kind != "application/rdap+json" && (contentType != "" || len(body) > 0) {
		return soon(fmt.Errorf("404 of the type %.60q, not from RDAP", contentType))
	}
	if len(body) == 0 {
		return nil
	}
	var object struct {
		Class string `json:"objectClassName"`
		Code  int    `json:"errorCode"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return soon(fmt.Errorf("invalid 404: %w", err))
	}
	if object.Class != "" || object.Code != 0 && object.Code != http.StatusNotFound {
		return soon(errors.New("404 that contradicts itself"))
	}
	return nil
}

// retryAfter parses Retry-After (RFC 9110 §10.2.3), limited to between 1 s and 10 min. The default is 30 s.
func retryAfter(h string) time.Duration {
	d := 30 * time.Second
	if n, err := strconv.Atoi(h); err == nil {
		d = time.Duration(min(n, 3600)) * time.Second
	} else if t, err := http.ParseTime(h); err == nil {
		d = time.Until(t)
	}
	return min(max(d, time.Second), 10*time.Minute)
}
