package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// crashBurst is the number of concurrent push notifications for a site.
const crashBurst = 4

// pushBurst sends concurrent push notifications like GitHub's. Each is repeated with the same delivery ID until an
// answer arrives. A push that was handled before its answer was lost must not start another deployment.
func (c *crashClient) pushBurst(s *crashSite) {
	if s.push.url == "" {
		var out struct{ URL, Secret string }
		if _, ok := c.send("POST", "/sites/"+s.id+"/git/hook", nil, &out); ok {
			c.note(func(*ledger) { s.push.url, s.push.secret = out.URL, out.Secret })
		}
		return
	}
	var all sync.WaitGroup
	for range crashBurst {
		c.n++
		n := c.n
		all.Go(func() { c.pushOnce(s, n) })
	}
	all.Wait()
}

func (c *crashClient) pushOnce(s *crashSite, n int) {
	commit := c.k.commits[s.repository]
	body, err := json.Marshal(map[string]any{
		"ref": "refs/heads/main", "before": strings.Repeat("b", 40), "after": commit, "n": n,
		"repository": map[string]string{
			"full_name":      "acme/" + s.repository,
			"clone_url":      "https://" + s.host + "/acme/" + s.repository + ".git",
			"default_branch": "main",
		},
		"head_commit": map[string]string{"id": commit, "message": "pushed"}, "commits": []any{},
	})
	if err != nil {
		c.t.Error(err)
		return
	}
	r := world.Request{Method: "POST", URL: s.push.url, Body: body, Header: http.Header{
		"X-Github-Event":    {"push"},
		"X-Github-Delivery": {fmt.Sprintf("%s-%d", c.name, n)}, "X-Hub-Signature-256": {world.Signature(s.push.secret, body)},
	}}
	for end := time.Now().Add(2 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		a, err := c.k.world.Do(ctx, r)
		cancel()
		var out struct{ DeploymentID, Reason string }
		switch {
		case err == nil && a.Status == 200 && a.JSON(&out) == nil:
			c.note(func(l *ledger) {
				l.pushes++
				if out.DeploymentID != "" {
					l.deploys[out.DeploymentID] = s
				} else if out.Reason != "This delivery was handled before" {
					c.t.Errorf("a push deploys nothing: %s", a.Body)
				}
			})
			return
		case err == nil && a.Status < 500:
			c.t.Errorf("a push: %v", a.Err())
			return
		case time.Now().After(end):
			c.t.Errorf("a push was never answered: %v %v", err, a.Err())
			return
		}
		time.Sleep(5 * time.Millisecond) // between blind retries
		c.k.whenUp(context.Background())
	}
}
