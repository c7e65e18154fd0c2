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

// client asks an installation. What it read it keeps until it changes something: a plan reads each list once, however
// many resources are in it, since the rate limit is a hundred requests a minute.
type client struct {
	rest *rest.Client

	mu    sync.Mutex // guards kept and sites
	kept  map[string]*answer
	sites int // that were read one by one
}

// answer is what a list had, or what asking for it is still waiting for.
type answer struct {
	done chan struct{} // closed when list and err are there
	list []values
	err  error
}

const (
	// patience is for how long a change waits for a server that says that it is busy or being restarted.
	patience = 10 * time.Minute
	// manySites is how many sites are read one by one before the whole list is.
	manySites = 8
)

func newClient(server, token, caFile string) (*client, error) {
	r, err := rest.New(rest.Config{
		Server: server, CAFile: caFile, Agent: "terraform-provider-slipway",
		Token: func(context.Context) (string, error) { return token, nil },
	})
	return &client{rest: r, kept: map[string]*answer{}}, err
}

// send makes a request and waits while the server answers that it has too much to do.
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
		key = rand.Text() // the same for each try, so that none makes a second object
	}
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		text, err := c.rest.SendOnce(ctx, method, path, key, body) // which waits for Retry-After, once
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

// passes reports whether an error is one that time mends.
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

// get reads one object, now.
func (c *client) get(ctx context.Context, path string) (values, error) {
	return c.send(ctx, http.MethodGet, path, nil)
}

// change makes a request that changes something.
func (c *client) change(ctx context.Context, method, path string, in values) (values, error) {
	out, err := c.send(ctx, method, path, in)
	c.mu.Lock()
	clear(c.kept)
	c.mu.Unlock()
	return out, err
}

// list returns all entries of a list, which it reads once.
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

// find returns the entry of a list that has one of the values, or nil. Earlier names come before later ones.
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

// site reads a site, or nil if there is none. The first ones are read one by one, which is quick where an owner has
// thousands; further ones from the list.
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
