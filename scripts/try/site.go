package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// site is a site as the API shows it.
type site struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	StatusReason string `json:"statusReason"`
	URL          string `json:"url"`
}

type deployment struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

// errNotFound is a 404.
var errNotFound = errors.New("not found")

// call sends one request as the first user and decodes the answer into out.
func (t *try) call(ctx context.Context, method, path string, in, out any, header ...string) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+t.listen+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+t.memory.Key)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return errNotFound
	case answer.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	case out == nil:
		return nil
	}
	return json.Unmarshal(text, out)
}

// every asks again until done says so; a server can't be waited for in any other way.
func every(ctx context.Context, pause, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still not there after %s", limit)
		case <-tick.C:
		}
	}
}

// firstSite returns the first site, made and deployed through the REST interface if it
// isn't there yet.
func (t *try) firstSite(s *server) (site, error) {
	ctx, cancel := s.context()
	defer cancel()
	done := t.step("started on %s", t.data)
	err := every(ctx, 20*time.Millisecond, time.Minute, func() (bool, error) {
		err := t.call(ctx, "GET", "/readyz", nil, nil)
		return err == nil, ctx.Err()
	})
	if err != nil {
		return site{}, fmt.Errorf("waiting for the server: %w", err)
	}
	done()

	var known site
	err = t.call(ctx, "GET", "/api/v1/sites/"+t.memory.Site, nil, &known)
	if t.memory.Site != "" && err == nil {
		return known, nil
	}
	if t.memory.Site != "" && !errors.Is(err, errNotFound) {
		return site{}, err
	}
	if t.memory.Site != "" { // deleted by its owner
		return site{}, nil
	}
	var created struct{ Data site }
	err = t.call(ctx, "POST", "/api/v1/sites", map[string]string{
		"name": "Hello", "type": "static", "repository": "local/you/hello", "branch": "main",
	}, &created, "Idempotency-Key", t.memory.Request) // a crash before remember makes no second site
	if err != nil {
		return site{}, err
	}
	t.memory.Site = created.Data.ID
	if err := t.remember(); err != nil {
		return site{}, err
	}
	return t.watch(ctx, created.Data)
}

// watch shows the first deployment's log as it is written, until the site is live.
func (t *try) watch(ctx context.Context, s site) (site, error) {
	done := t.step("deployed local/you/hello to %s", s.URL)
	var first struct{ Data []deployment }
	err := every(ctx, 100*time.Millisecond, time.Minute, func() (bool, error) {
		err := t.call(ctx, "GET", "/api/v1/sites/"+s.ID+"/deployments", nil, &first)
		return len(first.Data) > 0, err
	})
	if err != nil {
		return site{}, fmt.Errorf("waiting for the first deployment: %w", err)
	}
	path := "/api/v1/deployments/" + first.Data[0].ID
	if err := t.follow(ctx, path+"/logs"); err != nil {
		return site{}, err
	}
	var d deployment
	if err := t.call(ctx, "GET", path, nil, &d); err != nil {
		return site{}, err
	}
	if d.Status != "success" {
		return site{}, fmt.Errorf("the first deployment is %s: %s", d.Status, d.Error)
	}
	done()
	return s, t.call(ctx, "GET", "/api/v1/sites/"+s.ID, nil, &s)
}

// follow prints a log's messages until the stream of events says that there are no more.
func (t *try) follow(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+t.listen+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+t.memory.Key)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var entry struct{ Message string }
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &entry) == nil && entry.Message != "" {
			fmt.Printf("    %s\n", t.paint("2", entry.Message))
		}
	}
	return lines.Err()
}
