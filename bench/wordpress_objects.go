package main

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"slipway/e2e/world"
)

// objectCache compares uncached pages of two sites with the same content, one of which has an object cache. Requests
// alternate.
func (b *bench) objectCache(w *world.World, browser *http.Client, with, without wordPressSite) error {
	var state struct {
		ObjectCache struct {
			Status string
			Keys   int
		}
	}
	if err := w.Call(b.ctx, b.key, "PATCH", "/sites/"+with.id+"/wordpress", map[string]any{"objectCache": true}, nil); err != nil {
		return err
	}
	if err := w.Call(b.ctx, b.key, "POST", "/sites/"+with.id+"/restart", nil, nil); err != nil {
		return err
	}
	n := 0
	get := func(s wordPressSite) (time.Duration, error) {
		n++
		begun := time.Now()
		a, err := w.Site(b.ctx, browser, world.Request{
			Method: "GET",
			URL:    s.url + "/?bench=" + strconv.Itoa(n),
			Header: http.Header{"Cookie": {"PHPSESSID=none"}},
		})
		if err == nil {
			err = a.Err()
		}
		if err == nil && a.Header.Get("X-Cache") != "" {
			err = errors.New("the page is from the page cache")
		}
		return time.Since(begun), err
	}
	if err := world.Until(b.ctx, 100*time.Millisecond, func() (bool, error) {
		if err := w.Call(b.ctx, b.key, "GET", "/sites/"+with.id+"/wordpress", nil, &state); err != nil {
			return false, err
		}
		return state.ObjectCache.Status == "active", errors.New("the object cache is " + state.ObjectCache.Status)
	}); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	for round := range 110 {
		for _, s := range []wordPressSite{with, without} {
			took, err := get(s)
			if err != nil {
				return err
			}
			switch {
			case round < 10: // until PHP's own caches are filled
			case s == with:
				ours = append(ours, took)
			default:
				theirs = append(theirs, took)
			}
		}
	}
	b.timing("a page past the cache, with an object cache, p50", median(ours), median(theirs), "without", "")
	return nil
}

// wordPressSite is a site of this measurement.
type wordPressSite struct{ id, url string }
