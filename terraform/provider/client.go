package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"slipway/internal/client/rest"
)

// client calls an installation. It caches what it reads until it changes something, so that a plan reads each list once
// regardless of its resources; the rate limit is a hundred requests per minute.
type client struct {
	rest *rest.Client

	mu    sync.Mutex // guards kept and sites
	kept  map[string]*answer
	sites int // number of sites read one by one
}

// answer is a list, or the pending request for it.
type answer struct {
	done chan struct{} // closed when list and err are set
	list []values
	err  error
}

const (
	// patience limits a change's retries while the server is busy or restarting.
	patience = 10 * time.Minute
	// manySites is how many sites are read one by one before the whole list is read.
	manySites = 8
)

func newClient(server, token, caFile string) (*client, error) {
	r, err := rest.New(rest.Config{
		Server: server, CAFile: caFile, Agent: "terraform-provider-slipway",
		Token: func(context.Context) (string, error) { return token, nil },
	})
	return &client{rest: r, kept: map[string]*answer{}}, err
}

// send makes a request and retries while the server is overloaded.
func (c *client) send(ctx context.Context, method, path string, in values) (out values, err error) {
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the server has been busy for ten minutes"))
	defer cancel()
	key := ""
	if method == http.MethodPost {
		key = rand.Text() // the same for all tries, so that only one object is created
	}
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		text, err := c.rest.SendOnce(ctx, method, path, key, body) // it waits once for Retry-After
		if err == nil {
			return decode(text)
		}
		if !passes(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// passes reports whether an error is temporary.
func passes(err error) bool {
	var no *rest.Error
	return errors.As(err, &no) && (no.Status == http.StatusTooManyRequests && no.Code == "rate_limited" ||
		slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, no.Status))
}

func missing(err error) bool {
	var no *rest.Error
	return errors.As(err, &no) && no.Status == http.StatusNotFound
}

func decode(text []byte) (out values, err error) {
	if len(text) == 0 {
		return values{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return out, d.Decode(&out)
}

// get reads an object without the cache.
func (c *client) get(ctx context.Context, path string) (values, error) {
	return c.send(ctx, http.MethodGet, path, nil)
}

// change makes a request that changes something, and clears the cache.
func (c *client) change(ctx context.Context, method, path string, in values) (values, error) {
	out, err := c.send(ctx, method, path, in)
	c.mu.Lock()
	clear(c.kept)
	c.mu.Unlock()
	return out, err
}

// list returns all entries of a list, cached.
func (c *client) list(ctx context.Context, path string) ([]values, error) {
	c.mu.Lock()
	a, asked := c.kept[path]
	if !asked {
		a = &answer{done: make(chan struct{})}
		c.kept[path] = a
	}
	c.mu.Unlock()
	if asked {
		select {
		case <-a.done:
			return a.list, a.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	a.list, a.err = c.pages(ctx, path)
	if a.err != nil {
		c.mu.Lock()
		delete(c.kept, path)
		c.mu.Unlock()
	}
	close(a.done)
	return a.list, a.err
}

func (c *client) pages(ctx context.Context, path string) (all []values, err error) {
	sep := byte('?')
	if bytes.ContainsRune([]byte(path), '?') {
		sep = '&'
	}
	for page := 1; ; page++ {
		got, err := c.get(ctx, fmt.Sprintf("%s%climit=100&page=%d", path, sep, page))
		if err != nil {
			return nil, err
		}
		for _, v := range list(got["data"]) {
			if entry, ok := v.(map[string]any); ok {
				all = append(all, entry)
			}
		}
		pagination, _ := got["pagination"].(map[string]any)
		total, _ := pagination["totalPages"].(json.Number)
		if n, _ := total.Int64(); int64(page) >= n {
			return all, nil
		}
	}
}

// find returns the list's entry in which one of the named fields has the value, or nil. Earlier names take precedence.
func (c *client) find(ctx context.Context, path, value string, names ...string) (values, error) {
	all, err := c.list(ctx, path)
	for _, name := range names {
		for _, v := range all {
			if v[name] == value {
				return v, nil
			}
		}
	}
	return nil, err
}

// site returns a site, or nil if it doesn't exist. It reads the first sites one by one, which is fast for owners with
// thousands, and later ones from the list.
func (c *client) site(ctx context.Context, id string) (values, error) {
	c.mu.Lock()
	c.sites++
	one := c.sites <= manySites
	c.mu.Unlock()
	if !one {
		return c.find(ctx, "/sites", id, "id")
	}
	got, err := c.get(ctx, "/sites/"+escape(id))
	if missing(err) {
		return nil, nil
	}
	return got, err
}
