package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"slipway/e2e/world"
)

// wordpress measures waiting times of a WordPress site's owner and visitors. The core is Debian's; the first site,
// which installs it, doesn't count.
func (b *bench) wordpress(w *world.World) error {
	w.Flags = append(w.Flags, "--wordpress-source", "debian")
	if err := errors.Join(w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	var made []time.Duration
	var url, id string
	for i := range 4 {
		name := fmt.Sprintf("blog %d", i)
		start := time.Now()
		var created struct{ Data struct{ ID, URL string } }
		if err := w.Call(b.ctx, b.key, "POST", "/sites", map[string]string{"name": name, "type": "wordpress"}, &created); err != nil {
			return err
		}
		url, id = created.Data.URL, created.Data.ID
		if err := world.Until(b.ctx, 5*time.Millisecond, func() (bool, error) {
			a, err := w.Site(b.ctx, browser, world.Request{Method: "GET", URL: url + "/"})
			return err == nil && a.Status == http.StatusOK && strings.Contains(string(a.Body), "<title>"+name), err
		}); err != nil {
			return err
		}
		if i > 0 {
			made = append(made, time.Since(start))
		}
	}
	b.timing("POST /sites to a working front page", median(made), 0, "", "< 5 s")

	get := func(path string, header http.Header, want string) (time.Duration, error) {
		start := time.Now()
		a, err := w.Site(b.ctx, browser, world.Request{Method: "GET", URL: url + path, Header: header})
		if err == nil {
			err = a.Err()
		}
		if err == nil && a.Header.Get("X-Cache") != want {
			err = errors.New("the page is " + a.Header.Get("X-Cache") + ", want " + want)
		}
		return time.Since(start), err
	}
	many := func(n int, path string, header http.Header, want string) (all []time.Duration, err error) {
		for range n {
			took, err := get(path, header, want)
			if err != nil {
				return nil, err
			}
			all = append(all, took)
		}
		return all, nil
	}
	if _, err := get("/", nil, "HIT"); err != nil {
		return err
	}
	cached, err := many(2000, "/", nil, "HIT")
	if err != nil {
		return err
	}
	b.timing("a page from the cache, p50", median(cached), 0, "", "")
	session := http.Header{"Cookie": {"PHPSESSID=none"}}
	uncached, err := many(60, "/", session, "")
	if err != nil {
		return err
	}
	b.timing("a page past the cache, p50", median(uncached), 0, "", "")

	if err := b.besideNginx(w, browser, id, url); err != nil {
		return err
	}
	var cold []time.Duration
	for range 5 {
		if err := errors.Join(w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
			return err
		}
		if browser, err = w.Browser(); err != nil {
			return err
		}
		took, err := get("/", session, "")
		if err != nil {
			return err
		}
		cold = append(cold, took)
	}
	b.timing("first page from zero: PHP-FPM and MariaDB start", median(cold), 0, "", "< 0.7 s")
	return nil
}
