package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

var repositories = []string{"one", "two", "three", "four"}

// ledger records what was acknowledged to the clients, and which requests got no answer.
type ledger struct {
	mu       sync.Mutex // guards the following fields
	sites    map[string]*crashSite
	deploys  map[string]*crashSite // acknowledged deployment → its site
	keys     map[string][]string   // idempotency key → site IDs in the answers
	webhooks map[string]string     // acknowledged webhook → path
	heard    []expectation
	acks     int
	pushes   int // acknowledged pushes
	unknown  int // requests without an answer
}

// crashSite is an acknowledged site. Only its own client changes it.
type crashSite struct {
	id, name, url    string
	host, repository string
	served           bool                // seen live
	leaving, gone    bool                // deletion requested; acknowledged
	env              map[string][]string // key → the last acknowledged value, followed by values sent later
	hook             string
	push             struct{ url, secret string } // Git webhook
}

// expectation is an event that must be delivered to a path.
type expectation struct{ path, event, id string }

func (l *ledger) init() {
	l.sites, l.deploys, l.keys, l.webhooks = map[string]*crashSite{}, map[string]*crashSite{}, map[string][]string{}, map[string]string{}
}

// live returns up to n sites that were seen live and whose deletion wasn't requested.
func (l *ledger) live(n int) (out []crashSite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sites { // in random order
		if s.served && !s.leaving && len(out) < n {
			out = append(out, *s)
		}
	}
	return out
}

func (l *ledger) leaving(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sites[id].leaving
}

// crashClient is one client. It changes only the resources that it created.
type crashClient struct {
	k        *killing
	t        *testing.T
	name     string
	random   *rand.Rand
	n        int
	sites    []*crashSite
	webhooks []string // paths
}

// work performs random operations until stop is closed.
func (c *crashClient) work(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(20+c.random.IntN(160)) * time.Millisecond): // limits the load
		}
		c.k.whenUp(context.Background())
		switch p := c.random.IntN(100); {
		case p < 22 || len(c.sites) == 0:
			c.createSite()
		case p < 42:
			c.deploy(c.pick())
		case p < 52:
			c.deployByHook(c.pick())
		case p < 58:
			c.pushBurst(c.pick())
		case p < 78:
			c.setEnv(c.pick())
		case p < 84 && len(c.webhooks) < 2:
			c.createWebhook()
		case p < 90 && len(c.sites) > 2:
			c.delete(c.random.IntN(len(c.sites)))
		default:
			c.look(c.pick())
		}
	}
}

func (c *crashClient) pick() *crashSite { return c.sites[c.random.IntN(len(c.sites))] }

// send sends one request. Half of the POST requests carry an idempotency key and are repeated until an answer arrives.
// The others are sent once and may get no answer.
func (c *crashClient) send(method, path string, body, out any) (key string, ok bool) {
	r := world.Request{Method: method, Path: path, Key: c.k.key, Body: body, Header: http.Header{}}
	if path[0] == 'h' {
		r.Path, r.URL, r.Key = "", path, ""
	}
	if method == "POST" && c.random.IntN(2) == 0 {
		c.n++
		key = fmt.Sprintf("%s-%d", c.name, c.n)
		r.Header.Set("Idempotency-Key", key)
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		a, err := c.k.world.Do(ctx, r)
		cancel()
		switch {
		case err == nil && a.Status/100 == 2:
			if out != nil {
				if err := a.JSON(out); err != nil {
					c.t.Errorf("%s %s: %v", method, path, err)
					return key, false
				}
			}
			return key, true
		case err == nil && a.Status < 500:
			c.t.Errorf("%s %s: %v", method, path, a.Err())
			return key, false
		case err == nil && a.Status == 500:
			c.t.Errorf("%s %s: %v\n%s", method, path, a.Err(), c.k.world.Log(1500))
			return key, false
		case key == "" || time.Now().After(end):
			c.k.ledger.mu.Lock()
			c.k.ledger.unknown++
			c.k.ledger.mu.Unlock()
			return key, false
		}
		time.Sleep(5 * time.Millisecond) // between blind retries
		c.k.whenUp(context.Background())
	}
}

// note updates the ledger after an acknowledged request.
func (c *crashClient) note(fn func(l *ledger)) {
	c.k.ledger.mu.Lock()
	defer c.k.ledger.mu.Unlock()
	c.k.ledger.acks++
	fn(&c.k.ledger)
}

func (c *crashClient) createSite() {
	c.n++
	host := []string{"git.test", "files.test"}[c.random.IntN(2)]
	s := &crashSite{
		name:       fmt.Sprintf("%s site %d", c.name, c.n),
		host:       host,
		repository: repositories[c.random.IntN(len(repositories))],
		env:        map[string][]string{},
	}
	heard := slices.Clone(c.webhooks)
	var out struct{ Data struct{ ID, URL string } }
	key, ok := c.send("POST", "/sites", map[string]string{
		"name":       s.name,
		"type":       "static",
		"repository": host + "/acme/" + s.repository,
		"branch":     "main",
	}, &out)
	if !ok {
		return
	}
	s.id, s.url = out.Data.ID, out.Data.URL
	c.sites = append(c.sites, s)
	c.note(func(l *ledger) {
		l.sites[s.id] = s
		for _, path := range append(heard, crashEvents) {
			l.heard = append(l.heard, expectation{path, "site.created", s.id})
		}
		if key != "" {
			l.keys[key] = append(l.keys[key], s.id)
		}
	})
	if key == "" || c.random.IntN(2) == 0 {
		return
	}
	// Repeat the request, like a client that lost the answer.
	r := world.Request{
		Method: "POST", Path: "/sites", Key: c.k.key, Header: http.Header{"Idempotency-Key": {key}},
		Body: map[string]string{"name": s.name, "type": "static", "repository": host + "/acme/" + s.repository, "branch": "main"},
	}
	if a, err := c.k.world.Do(context.Background(), r); err == nil && a.Status/100 == 2 && a.JSON(&out) == nil {
		c.note(func(l *ledger) { l.keys[key] = append(l.keys[key], out.Data.ID) })
	}
}

func (c *crashClient) deploy(s *crashSite) {
	var out struct{ DeploymentID string }
	if _, ok := c.send("POST", "/sites/"+s.id+"/deploy", nil, &out); ok {
		c.note(func(l *ledger) { l.deploys[out.DeploymentID] = s })
	}
}

func (c *crashClient) deployByHook(s *crashSite) {
	if s.hook == "" {
		var out struct{ URL string }
		if _, ok := c.send("POST", "/sites/"+s.id+"/hooks", map[string]string{"name": "ci"}, &out); ok {
			c.note(func(*ledger) { s.hook = out.URL })
		}
		return
	}
	var out struct{ DeploymentID string }
	if _, ok := c.send("POST", s.hook, nil, &out); ok {
		c.note(func(l *ledger) { l.deploys[out.DeploymentID] = s })
	}
}

func (c *crashClient) setEnv(s *crashSite) {
	c.n++
	name, value := fmt.Sprintf("KEY_%d", c.random.IntN(3)), fmt.Sprintf("value %d", c.n)
	c.k.ledger.mu.Lock()
	s.env[name] = append(s.env[name], value) // from now on the site may have this value, acknowledged or not
	c.k.ledger.mu.Unlock()
	if _, ok := c.send("POST", "/sites/"+s.id+"/env", map[string]string{"key": name, "value": value}, nil); ok {
		c.note(func(*ledger) { s.env[name] = []string{value} })
		return
	}
	c.k.ledger.mu.Lock()
	if len(s.env[name]) == 1 {
		s.env[name] = append([]string{""}, value) // not acknowledged yet: the variable may be missing
	}
	c.k.ledger.mu.Unlock()
}

func (c *crashClient) createWebhook() {
	c.n++ // a site whose creation got no answer may exist
	path := fmt.Sprintf("/%s/%d", c.name, c.n)
	var out struct{ ID string }
	body := map[string]any{"url": c.k.world.Hooks.URL + path, "secret": crashSecret, "events": []string{"site.created"}}
	if _, ok := c.send("POST", "/webhooks", body, &out); ok {
		c.webhooks = append(c.webhooks, path)
		c.note(func(l *ledger) { l.webhooks[out.ID] = path })
	}
}

func (c *crashClient) delete(i int) {
	s := c.sites[i]
	c.sites = slices.Delete(c.sites, i, i+1)
	c.k.ledger.mu.Lock()
	s.leaving = true
	c.k.ledger.mu.Unlock()
	if _, ok := c.send("DELETE", "/sites/"+s.id, nil, nil); ok {
		c.note(func(l *ledger) {
			s.gone = true
			l.heard = append(l.heard, expectation{crashEvents, "site.deleted", s.id})
		})
	}
}

// look records whether a site is live.
func (c *crashClient) look(s *crashSite) {
	var out struct{ Status string }
	if _, ok := c.send("GET", "/sites/"+s.id, nil, &out); ok && out.Status == "active" {
		c.k.ledger.mu.Lock()
		s.served = true
		c.k.ledger.mu.Unlock()
	}
}
