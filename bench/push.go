package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// pushHook is a Git hook of a site.
type pushHook struct{ site, repo, address, url, secret string }

// pushSite makes a site from a small repository, waits until it is live, and adds a hook.
func (b *bench) pushSite(w *world.World, name string) (h pushHook, err error) {
	h.repo = "bench/" + name
	if err := b.commit(w, h.repo, 3, "first"); err != nil {
		return h, err
	}
	var created struct{ Data struct{ ID, URL string } }
	err = w.Call(b.ctx, b.key, "POST", "/sites", map[string]string{
		"name":       name,
		"type":       "static",
		"repository": "git.test/" + h.repo,
		"branch":     "main",
	}, &created)
	if err != nil {
		return h, err
	}
	h.site, h.address = created.Data.ID, created.Data.URL
	var hook struct{ URL, Secret string }
	err = w.Call(b.ctx, b.key, "POST", "/sites/"+h.site+"/git/hook", nil, &hook)
	h.url, h.secret = hook.URL, hook.Secret
	return h, err
}

// push sends a push event like GitHub, and returns the answer and its duration.
func (h pushHook) push(client *http.Client, commit string, n int) (status int, deployment string, took time.Duration, err error) {
	body, err := json.Marshal(map[string]any{
		"ref": "refs/heads/main", "before": strings.Repeat("b", 40), "after": commit, "n": n,
		"repository":  map[string]string{"full_name": h.repo, "clone_url": "https://git.test/" + h.repo + ".git", "default_branch": "main"},
		"head_commit": map[string]any{"id": commit, "message": fmt.Sprint("change ", n)}, "commits": []any{},
	})
	if err != nil {
		return 0, "", 0, err
	}
	r, err := http.NewRequest(http.MethodPost, h.url, strings.NewReader(string(body)))
	if err != nil {
		return 0, "", 0, err
	}
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write(body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Github-Event", "push")
	r.Header.Set("X-Github-Delivery", fmt.Sprintf("%s-%d", h.site, n))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	start := time.Now()
	a, err := world.Read(client.Do(r))
	took = time.Since(start)
	if err != nil {
		return 0, "", took, err
	}
	var out struct{ DeploymentID string }
	return a.Status, out.DeploymentID, took, errors.Join(a.JSON(&out), nil)
}

type pushedDeployment struct {
	ID, Status, CommitHash string
	Trigger                string
	CreatedAt, StartedAt   *time.Time
}

func (b *bench) deploymentsOf(w *world.World, site string) ([]pushedDeployment, error) {
	var list struct{ Data []pushedDeployment }
	err := w.Call(b.ctx, b.key, "GET", "/sites/"+site+"/deployments?limit=100", nil, &list)
	return list.Data, err
}

// settled waits until the sites have no open deployments.
func (b *bench) settled(w *world.World, hooks []pushHook) error {
	for _, h := range hooks {
		err := world.Until(b.ctx, 50*time.Millisecond, func() (bool, error) {
			list, err := b.deploymentsOf(w, h.site)
			return len(list) > 0 && !slices.ContainsFunc(list, func(d pushedDeployment) bool {
				return d.Status == "pending" || d.Status == "building" || d.Status == "deploying"
			}), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pushedLive measures the time from git commit and git push, with a post-receive hook that sends GitHub's event, to the
// new page.
func (b *bench) pushedLive(w *world.World, h pushHook) (took []time.Duration, err error) {
	if err := w.Git.Tell(h.repo, h.url, h.secret); err != nil {
		return nil, err
	}
	visitor, err := w.Browser()
	if err != nil {
		return nil, err
	}
	defer visitor.CloseIdleConnections()
	for n := range 20 {
		marker := fmt.Sprint("pushed ", n)
		if err := world.WriteFiles(b.content(h.repo), map[string]string{"index.html": marker}); err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err := w.Git.Commit(h.repo, "main", b.content(h.repo), marker); err != nil {
			return nil, err
		}
		err := world.Until(b.ctx, 2*time.Millisecond, func() (bool, error) {
			a, err := w.Site(b.ctx, visitor, world.Request{Method: http.MethodGet, URL: h.address + "/"})
			return string(a.Body) == marker, err
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// push measures the time from the answer to a push until the deployment starts, and a thousand concurrent calls after
// which the program is killed.
func (b *bench) push(w *world.World) error {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	one, err := b.pushSite(w, "pushed")
	if err != nil {
		return err
	}
	if err := b.settled(w, []pushHook{one}); err != nil {
		return err
	}
	list, err := b.deploymentsOf(w, one.site)
	if err != nil {
		return err
	}
	commit := list[0].CommitHash
	var answered, started []time.Duration
	for n := range 50 {
		status, _, took, err := one.push(client, commit, n)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("push answered %d, %w", status, err)
		}
		answered = append(answered, took)
		if err := b.settled(w, []pushHook{one}); err != nil {
			return err
		}
		list, err := b.deploymentsOf(w, one.site)
		if err != nil {
			return err
		}
		if list[0].StartedAt == nil || list[0].CreatedAt == nil {
			return fmt.Errorf("deployment %s was not started", list[0].ID)
		}
		started = append(started, list[0].StartedAt.Sub(*list[0].CreatedAt))
	}
	b.add(row{
		what:  "push, until it is answered",
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(answered, .5)), ms(quantile(answered, .99))),
		goal:  "< 1 s",
	})
	b.add(row{
		what:  "push, from its answer to the start of its deployment",
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(started, .5)), ms(quantile(started, .99))),
		goal:  "p50 < 100 ms",
	})

	live, err := b.pushedLive(w, one)
	if err != nil {
		return err
	}
	b.add(row{
		what:  "git commit and git push, until the new page is served",
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(live, .5)), ms(quantile(live, .99))),
	})

	const sites, each = 100, 10
	hooks := make([]pushHook, sites)
	for i := range hooks {
		if hooks[i], err = b.pushSite(w, fmt.Sprintf("burst-%d", i)); err != nil {
			return err
		}
	}
	if err := b.settled(w, hooks); err != nil {
		return err
	}
	commits := make([]string, sites)
	for i, h := range hooks {
		list, err := b.deploymentsOf(w, h.site)
		if err != nil {
			return err
		}
		commits[i] = list[0].CommitHash
	}
	var mu sync.Mutex // guards the following variables
	var all sync.WaitGroup
	var wrong error
	var slowest []time.Duration
	acknowledged := map[string]string{} // site by deployment
	for n := range each {
		for i, h := range hooks {
			all.Go(func() {
				status, id, took, err := h.push(client, commits[i], n)
				mu.Lock()
				defer mu.Unlock()
				slowest = append(slowest, took)
				if err != nil || status != http.StatusOK || id == "" {
					wrong = errors.Join(wrong, fmt.Errorf("burst: %d %q %w", status, id, err))
				} else {
					acknowledged[id] = h.site
				}
			})
		}
	}
	all.Wait()
	if wrong != nil {
		return wrong
	}
	w.Kill()
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	if err := b.settled(w, hooks); err != nil {
		return err
	}
	folded, lost := 0, len(acknowledged)
	for _, h := range hooks {
		list, err := b.deploymentsOf(w, h.site)
		if err != nil {
			return err
		}
		for _, d := range list {
			if acknowledged[d.ID] != h.site {
				continue
			}
			lost--
			if d.Status == "canceled" {
				folded++
			}
		}
		if list[0].Status != "success" {
			return fmt.Errorf("the newest deployment of %s ended as %s", h.site, list[0].Status)
		}
	}
	b.add(row{
		what:  fmt.Sprintf("%d calls at once for %d sites, until they are answered", sites*each, sites),
		value: fmt.Sprintf("p50 %s, last %s", ms(quantile(slowest, .5)), ms(slices.Max(slowest))),
		goal:  "all within 1 s",
	})
	b.add(row{
		what:  "of these, after kill -9 and a restart",
		value: fmt.Sprintf("%d lost, %d took the place of an older one, every site has its newest", lost, folded),
		goal:  "0 lost",
	})
	if lost != 0 {
		return fmt.Errorf("%d acknowledged deployments are lost", lost)
	}
	return nil
}
