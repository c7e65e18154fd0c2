//go:build packages

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

// Debian's Prometheus accepts the shipped alert rules and finds each series that they and the Grafana dashboard query.
// No alert fires for a healthy installation, and one fires when it is gone.
func TestPrometheus(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(5*time.Minute))
	defer cancel()
	dir := t.TempDir()
	shipped := filepath.Join(world.Root(), "packaging", "monitoring")
	rules := filepath.Join(shipped, "slipway.rules.yml")
	if out, err := exec.CommandContext(ctx, "promtool", "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("promtool check rules (go run ./scripts/need prometheus): %v\n%s", err, out)
	}
	w, err := world.New(binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	disk(t, w.Data, "2g") // the machine's own disk may be almost full, which would fire an alert
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	newSite(ctx, t, w, key)
	p := newPrometheus(ctx, t, dir, rules, w.Listen)

	var asked []string
	for _, r := range p.rules(ctx, t) {
		asked = append(asked, r.Query)
	}
	if len(asked) < 10 {
		t.Errorf("only %d alerts are loaded", len(asked))
	}
	panels, err := os.ReadFile(filepath.Join(shipped, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllSubmatch(panels, -1) {
		var query string
		if err := json.Unmarshal(m[1], &query); err != nil {
			t.Fatal(err)
		}
		// Grafana inserts the time of at least four scrapes.
		query = strings.ReplaceAll(query, "$__rate_interval", "10s")
		asked = append(asked, query)
		p.until(ctx, t, query) // the panel's query returns data and no error
	}
	series := regexp.MustCompile(`\b(?:up|(?:slipway|process|go)_[a-z_]+)(?:\{[^}]*\})?(?:[^\w(]|$)`)
	named := map[string]bool{}
	for _, query := range asked {
		for _, s := range series.FindAllString(query, -1) {
			if s = strings.TrimRight(s, " )[<>=/,\n"); !named[s] {
				named[s] = true
				p.until(ctx, t, s)
			}
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d series are named: %v", len(named), named)
	}

	// Each alert has been evaluated by now, and none fires.
	if err := world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		for _, r := range p.rules(ctx, t) {
			if r.Health != "ok" || r.State != "inactive" {
				return false, fmt.Errorf("alert %s: %s, %s %s", r.Name, r.State, r.Health, r.LastError)
			}
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.Kill()
	if err := world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		for _, r := range p.rules(ctx, t) {
			if r.Name == "SlipwayDown" {
				return r.State == "pending", fmt.Errorf("SlipwayDown is %s", r.State)
			}
		}
		return false, fmt.Errorf("there is no alert SlipwayDown")
	}); err != nil {
		t.Errorf("after the service was killed: %v", err)
	}
	t.Logf("%d expressions, %d series", len(asked), len(named))
}

// prometheus is a Debian Prometheus that listens on loopback and stores its data in the test's folder.
type prometheus struct{ at string }

func newPrometheus(ctx context.Context, t *testing.T, dir, rules, target string) prometheus {
	t.Helper()
	ports, err := world.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+
		"scrape_configs:\n  - job_name: slipway\n    static_configs: [{targets: [%q]}]\nrule_files: [%q]\n", target, rules)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.CommandContext(context.WithoutCancel(ctx), "prometheus", "--config.file="+config, "--web.listen-address="+ports[0],
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"))
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("prometheus: %s", said[max(0, len(said)-4000):])
		}
	})
	p := prometheus{"http://" + ports[0]}
	if err := world.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		err := p.get(ctx, "/api/v1/status/runtimeinfo", nil)
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p prometheus) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.at+path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Data, into)
}

// until waits until an expression has a value.
func (p prometheus) until(ctx context.Context, t *testing.T, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, world.Patience(time.Minute))
	defer cancel()
	if err := world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		var found struct{ Result []json.RawMessage }
		err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &found)
		return len(found.Result) > 0, err
	}); err != nil {
		t.Fatalf("%s has no value: %v", query, err)
	}
}

type rule struct{ Name, Query, State, Health, LastError string }

func (p prometheus) rules(ctx context.Context, t *testing.T) (list []rule) {
	t.Helper()
	var loaded struct{ Groups []struct{ Rules []rule } }
	if err := p.get(ctx, "/api/v1/rules", &loaded); err != nil {
		t.Fatal(err)
	}
	for _, g := range loaded.Groups {
		list = append(list, g.Rules...)
	}
	return list
}
