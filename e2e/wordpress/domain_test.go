package wordpress

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// moves adds a domain to a WordPress. Soon all its links, also in its content, use the domain, and the old URL
// redirects to it. No request fails meanwhile, and without the domain everything is as before.
func (h *installation) moves(s siteBody) {
	t := h.t
	const name = "shop.test"
	own, err := url.Parse(s.URL)
	ok(t, err)
	moved := "https://" + name
	if own.Port() != "" {
		moved += ":" + own.Port()
	}
	var d struct {
		ID, Status   string
		Verification []struct{ Name, Value string }
	}
	h.call("POST", "/sites/"+s.ID+"/domains", map[string]any{"name": name}, &d)
	h.zone.Set(name, "A 127.0.0.1")
	h.zone.Set(d.Verification[0].Name, `TXT "`+d.Verification[0].Value+`"`)

	// Visitors use the old URL all the time.
	ctx, stop := context.WithCancel(t.Context())
	var visitors sync.WaitGroup
	for _, address := range []string{s.URL + "/news-of-the-day/", s.URL + "/?s=news"} {
		visitors.Go(func() {
			c, err := h.Browser()
			if err != nil {
				t.Error(err)
				return
			}
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			for ctx.Err() == nil {
				if a, err := world.Read(c.Get(address)); err != nil || a.Status != 200 && a.Status != 301 {
					t.Errorf("a visitor meanwhile: %d %v", a.Status, err)
				}
				time.Sleep(20 * time.Millisecond) // limits the load
			}
		})
	}
	h.call("POST", "/domains/"+d.ID+"/verify", nil, &d)
	if d.Status != "active" {
		t.Fatalf("the domain is %s", d.Status)
	}
	begun := time.Now()
	page := func(address string) (status int, text string) {
		status, text, _ = h.asks(address)
		return status, text
	}
	h.until("the content names the new address", func() bool {
		status, text := page(moved + "/news-of-the-day/")
		return status == 200 && strings.Contains(text, moved+"/wp-content/uploads/") && !strings.Contains(text, s.URL)
	})
	t.Logf("a WordPress knows its domain after %s", time.Since(begun))
	stop()
	visitors.Wait()
	v := h.visitor(s.URL)
	for path, status := range map[string]int{"/news-of-the-day/?a=b": 301, "/wp-json/": 301, "/wp-includes/css/dashicons.css": 301} {
		if got, header, _ := v.get(path); got != status || header.Get("Location") != moved+path {
			t.Errorf("%s leads to %s (%d)", path, header.Get("Location"), got)
		}
	}
	if _, text := page(moved + "/wp-json/"); !strings.Contains(text, strings.ReplaceAll(moved, "/", `\/`)) {
		t.Errorf("the interface names %.300s", text)
	}

	h.call("DELETE", "/domains/"+d.ID, nil, nil)
	h.until("the site is at its own address again", func() bool {
		status, text := page(s.URL + "/news-of-the-day/")
		return status == 200 && strings.Contains(text, s.URL+"/wp-content/uploads/") && !strings.Contains(text, moved)
	})
}
