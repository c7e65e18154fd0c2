package main

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"slipway/e2e/world"
)

const (
	pageTime   = 50 * time.Millisecond
	pageWeight = 100_000 // bytes
)

// pages measures every page of the dashboard, as an operator with many sites.
func (b *bench) pages(w *world.World) error {
	_, model, err := b.tlsSite(w)
	if err != nil {
		return err
	}
	var c crowd
	if err := b.stopped(w, func() (err error) { c, err = b.seedCrowd(w, model); return err }); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	hook, err := b.furnish(w, c.site)
	if err != nil {
		return err
	}
	if err := b.stopped(w, func() error { return seedDeliveries(b.ctx, w, hook) }); err != nil {
		return fmt.Errorf("seed deliveries: %w", err)
	}
	r, err := signIn(w)
	if err != nil {
		return err
	}
	site, sent := "/sites/"+c.site, "/webhooks/"+hook
	p, err := newPainter(b.ctx, r)
	if err != nil {
		return err
	}
	if p != nil {
		defer p.stop()
	}
	of, last := site+"/deployments", site+"/deployments/"+c.deployment
	variable, err := r.link(site+"/env", site+"/env/var/")
	if err != nil {
		return err
	}
	delivery, err := r.link(sent, sent+"/deliveries/")
	if err != nil {
		return err
	}
	for _, path := range []string{
		"/", "/?page=20", "/?q=seeded-9", "/new", "/new?type=wordpress", site, of,
		of + "?page=8",
		last,
		last + "?after=2500",
		site + "/domains",
		site + "/domains/" + c.domain,
		site + "/env",
		site + "/env/import",
		variable,
		site + "/hooks",
		site + "/traffic",
		site + "/traffic?span=30d",
		site + "/rules",
		site + "/git",
		site + "/databases",
		site + "/backups",
		site + "/settings",
		"/webhooks",
		"/webhooks/new",
		sent,
		sent + "?page=25",
		delivery, "/account", "/account/security", "/account/second-factor", "/account/sessions", "/account/keys",
		"/account/keys/new", "/account/audit", "/account/git", "/account/notifications", "/account/apps", "/account/usage", "/deleted", "/teams/new", "/operator", "/operator/users",
		"/operator/users/" + c.user,
		"/operator/sites",
		"/operator/audit",
	} {
		if err := b.page(r, p, path); err != nil {
			return err
		}
	}
	return b.assets(r)
}

// stopped calls do while the program is stopped.
func (b *bench) stopped(w *world.World, do func() error) error {
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return w.Start(b.ctx)
}

// furnish fills a site and its owner's account through the REST API, and returns a webhook.
func (b *bench) furnish(w *world.World, site string) (hook string, err error) {
	var vars []map[string]string
	for n := range busyVariables {
		vars = append(vars, map[string]string{"key": fmt.Sprintf("VARIABLE_%d", n), "value": strings.Repeat("value ", 10)})
	}
	if err := b.call(w, "POST", "/sites/"+site+"/env", vars, nil); err != nil {
		return "", err
	}
	for n := range busyHooks {
		if err := b.call(w, "POST", "/sites/"+site+"/hooks", map[string]string{"name": fmt.Sprintf("hook %d", n)}, nil); err != nil {
			return "", err
		}
	}
	var made struct{ ID string }
	for n := range busyWebhooks {
		body := map[string]any{
			"url":    fmt.Sprintf("%s/endpoint%d", w.Hooks.URL, n),
			"events": []string{"deployment.completed", "deployment.failed"},
		}
		if err := b.call(w, "POST", "/webhooks", body, &made); err != nil {
			return "", err
		}
	}
	return made.ID, nil
}

func (b *bench) call(w *world.World, method, path string, body, out any) error {
	return w.Call(b.ctx, b.key, method, path, body, out)
}

// reader is a signed-in browser.
type reader struct {
	client *http.Client
	base   string
	plain  bool // requests uncompressed answers
}

func signIn(w *world.World) (*reader, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	// The compressed size is measured, so the client must not decompress.
	r := &reader{base: "http://" + w.Listen, client: &http.Client{
		Jar: jar, Transport: &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	a, err := r.client.PostForm(r.base+"/sign-in", url.Values{"email": {email}, "password": {world.Password}})
	if err != nil {
		return nil, err
	}
	a.Body.Close()
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/" {
		return nil, fmt.Errorf("sign in: status %d", a.StatusCode)
	}
	return r, nil
}

// get fetches a page like a browser.
func (r *reader) get(path string) (world.Answer, error) {
	q, err := http.NewRequest("GET", r.base+path, nil)
	if err != nil {
		return world.Answer{}, err
	}
	q.Header.Set("Accept", "text/html")
	if !r.plain {
		q.Header.Set("Accept-Encoding", "gzip, br")
	}
	a, err := world.Read(r.client.Do(q))
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return a, fmt.Errorf("GET %s: %w", path, err)
	}
	return a, nil
}

// link returns the first link on a page with a prefix.
func (r *reader) link(path, begin string) (string, error) {
	a, err := r.get(path)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(a.Body), `href="`+begin)
	end, _, closed := strings.Cut(rest, `"`)
	if !found || !closed {
		return "", fmt.Errorf("no link on %s begins with %s", path, begin)
	}
	return begin + end, nil
}

// ids matches the parts of paths that differ between runs.
var ids = regexp.MustCompile(`[a-z]+_[a-z0-9]{26}|VARIABLE_\d+`)

// page measures the time and size of one page. A slow page is measured again, up to twice, because with few samples p99
// is a single outlier.
func (b *bench) page(r *reader, p *painter, path string) error {
	var p50, p99 time.Duration
	var weight int
	for try := 0; try == 0 || try < 3 && p99 > pageTime; try++ {
		took, n, err := b.fetch(r, path)
		if err != nil {
			return err
		}
		p50, p99, weight = quantile(took, .5), quantile(took, .99), n
	}
	paint, late, err := p.painted(path)
	if err != nil {
		return err
	}
	goal := fmt.Sprintf("p50 ≤ %d ms, < %.0f kB, paint ≤ %d ms", pageTime.Milliseconds(), pageWeight/1000.0, paintTime.Milliseconds())
	if p50 > pageTime || weight > pageWeight || late {
		goal = "missed: " + goal
	}
	b.add(row{
		what:  ids.ReplaceAllString(path, ":id"),
		value: fmt.Sprintf("p50 %s, p99 %s, %s, %s", ms(p50), ms(p99), kilobytes(weight), paint),
		goal:  goal,
	})
	return nil
}

// fetch fetches a page repeatedly and returns the durations and the size.
func (b *bench) fetch(r *reader, path string) (took []time.Duration, weight int, err error) {
	for end := time.Now().Add(b.load / 10); len(took) < 30 || len(took) < 100 && time.Now().Before(end); {
		start := time.Now()
		a, err := r.get(path)
		if err != nil {
			return nil, 0, err
		}
		took, weight = append(took, time.Since(start)), len(a.Body)
	}
	return took, weight, nil
}

// assets measures the size of the pages' assets, including those of style sheets. Browsers cache them permanently.
func (b *bench) assets(r *reader) error {
	all, sum := []string{}, 0
	find := func(in []byte) {
		for _, found := range regexp.MustCompile(`/assets/[a-z0-9.-]+`).FindAllString(string(in), -1) {
			if !slices.Contains(all, found) {
				all = append(all, found)
			}
		}
	}
	for _, path := range []string{"/", "/account/security"} {
		a, err := r.get(path)
		if err != nil {
			return err
		}
		find(a.Body)
	}
	for i := 0; i < len(all); i++ {
		r.plain = true
		plain, err := r.get(all[i])
		if err != nil {
			return err
		}
		r.plain = false
		sent, err := r.get(all[i])
		if err != nil {
			return err
		}
		find(plain.Body)
		sum += len(sent.Body)
	}
	b.add(row{what: fmt.Sprintf("the %d assets of all pages, as sent, once", len(all)), value: kilobytes(sum)})
	return nil
}

func kilobytes(n int) string { return fmt.Sprintf("%.1f kB", float64(n)/1000) }
