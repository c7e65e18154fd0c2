package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/client/rest"
)

// source is a client for a platform's API.
type source struct {
	p       Platform
	token   string
	account string
	only    []string
	http    *http.Client
	header  http.Header // sent with every request
	partial []string
	pause   func(ctx context.Context, d time.Duration) error
}

// Limits of a platform's responses.
const (
	maxPages   = 200
	maxAnswer  = 16 << 20 // bytes
	answerTime = 30 * time.Second
	maxWait    = time.Minute // wait for a rate limit
	tries      = 4
)

func newSource(p Platform, token, account string) (*source, error) {
	client, err := rest.HTTP("") // follows no redirects, so the token goes nowhere else
	if err != nil {
		return nil, err
	}
	return &source{
		p: p, token: token, account: account, header: http.Header{}, http: client,
		pause: func(ctx context.Context, d time.Duration) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(d):
				return nil
			}
		},
	}, nil
}

// wants reports whether a site was selected.
func (s *source) wants(id, name string) bool {
	return len(s.only) == 0 || slices.Contains(s.only, id) || slices.Contains(s.only, name)
}

// refusal is an unsuccessful response.
type refusal struct {
	status int
	what   string
}

func (r *refusal) Error() string { return r.what }

// get parses a response into out. It waits for rate limits, each up to a minute.
func (s *source) get(ctx context.Context, path string, query url.Values, out any) (http.Header, error) {
	address := s.p.Base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	for try := 1; ; try++ {
		header, wait, err := s.once(ctx, address, out)
		if err == nil || wait == 0 || try == tries {
			return header, err
		}
		if err := s.pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// once returns how long to wait before a retry may succeed.
func (s *source) once(ctx context.Context, address string, out any) (_ http.Header, wait time.Duration, err error) {
	bounded, done := context.WithTimeout(ctx, answerTime)
	defer done()
	req, err := http.NewRequestWithContext(bounded, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("User-Agent", "slipway-import")
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		return nil, time.Second, fmt.Errorf("%s can't be reached: %w", s.p.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, time.Second, fmt.Errorf("the answer of %s breaks off: %w", s.p.Name, err)
	case len(body) > maxAnswer:
		return nil, 0, fmt.Errorf("an answer of %s is larger than %d MiB", s.p.Name, maxAnswer>>20)
	case resp.StatusCode == http.StatusTooManyRequests:
		n, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		wait = time.Duration(max(n, 1)) * time.Second
		if wait > maxWait {
			wait = 0
		}
		return nil, wait, &refusal{resp.StatusCode, s.p.Name + " answers that its rate limit is reached: try again later"}
	case resp.StatusCode >= 500:
		return nil, time.Second, &refusal{resp.StatusCode, fmt.Sprintf("%s answers %d", s.p.Name, resp.StatusCode)}
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, 0, &refusal{resp.StatusCode, s.p.Name + " does not take this token: make one under " + s.p.Help}
	case resp.StatusCode == http.StatusForbidden:
		return nil, 0, &refusal{resp.StatusCode, "this token may not read " + pathOf(address) + " at " + s.p.Name}
	case resp.StatusCode/100 != 2:
		return nil, 0, &refusal{resp.StatusCode, fmt.Sprintf("%s answers %d to %s", s.p.Name, resp.StatusCode, pathOf(address))}
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, 0, fmt.Errorf("an answer of %s to %s is not what it should be", s.p.Name, pathOf(address))
	}
	return resp.Header, 0, nil
}

func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Path
}

// part reads an optional detail of a site: if it can't be read, the plan becomes partial. It reports whether out was
// read, and returns an error if reading must stop.
func (s *source) part(ctx context.Context, x *Site, what, path string, query url.Values, out any) (bool, error) {
	_, err := s.get(ctx, path, query, out)
	var no *refusal
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &no) && no.status != http.StatusUnauthorized:
		s.partial = append(s.partial, fmt.Sprintf("%s of %s: %s", what, x.Proposal.Name, no.what))
		x.leave("its %s, which could not be read", what)
		return false, nil
	}
	return false, err
}

// missing adds messages about features that Slipway doesn't have.
func (x *Site) missing(have map[string]bool) {
	var all []string
	for name, there := range have {
		if there {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	if len(all) > 0 {
		x.leave("%s", strings.Join(all, ", "))
	}
}
