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

const rdapMax = 512 << 10 // of one answer; real ones have a few KiB

// registries asks the registries over RDAP (RFC 9082, RFC 9083).
type registries struct {
	client *http.Client

	mu      sync.Mutex // guards shipped, fresh and quiet
	shipped bases
	fresh   bases // what IANA published since
	// share: none, the registries': one for each that doesn't respond
	quiet map[string]time.Time // until when a base is left alone
}

// silence is why a domain registry did not respond. It says nothing about the name.
type silence struct {
	retry time.Duration // when to ask again
	err   error
}

func (s *silence) Error() string { return s.err.Error() }
func (s *silence) Unwrap() error { return s.err }

func newRegistries(out *http.Client) *registries {
	shipped, err := parseBootstrap(shippedBootstrap)
	if err != nil {
		panic("rdap.json: " + err.Error()) // shipped with the program; a test reads it
	}
	c := http.Client{Transport: errNoHTTPClient{}}
	if out != nil {
		c = *out
	}
	// Registries send their users on (RFC 7480 §5.2), but only a few times and never in clear.
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

// errNoHTTPClient is the error without a client from egress.
type errNoHTTPClient struct{}

func (errNoHTTPClient) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no way out is configured")
}

func (r *registries) learn(b bases) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = b
}

// taken asks the registry of name whether it is registered. Every error is a *silence.
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
			last = &silence{wait, fmt.Errorf("ask %s: it asked to be left alone", base)}
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

// ask takes 200 with the object of this very name for yes, and 404 that comes from an
// RDAP server for no (RFC 7480 §5.3). Nothing else is an answer: a 429, an error of the
// server, a page of some proxy, an object of another name.
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

// notFound says whether a 404 comes from RDAP (RFC 7480, section 5.3): it has RDAP's media
// type, and a body only if that says the same (RFC 9083, section 6). Without a body there
// may be no media type. Everything else is some proxy's page, and says nothing.
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

// retryAfter reads the header of RFC 9110 §10.2.3, between 1 s and 10 min; 30 s without.
func retryAfter(h string) time.Duration {
	d := 30 * time.Second
	if n, err := strconv.Atoi(h); err == nil {
		d = time.Duration(min(n, 3600)) * time.Second
	} else if t, err := http.ParseTime(h); err == nil {
		d = time.Until(t)
	}
	return min(max(d, time.Second), 10*time.Minute)
}
