package api_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/limits"
)

// Every limit per account is exact under concurrent requests, and its error names it. Deleted resources no longer
// count.
func TestLimitsHoldExactly(t *testing.T) {
	t.Parallel()
	const most = 4
	for name, make := range map[limits.Name]func(x things, i int) (path string, body any, remove string){
		limits.Sites: func(x things, i int) (string, any, string) {
			return "/sites", m{"name": fmt.Sprint("s", i), "type": "static", "repository": "git.test/acme/site"}, "/sites/"
		},
		limits.Domains: func(x things, i int) (string, any, string) {
			return "/sites/" + x["site"] + "/domains", m{"name": fmt.Sprintf("n%d.example-4711.com", i)}, "/domains/"
		},
		limits.Deployments: func(x things, i int) (string, any, string) {
			return "/sites/" + x["site"] + "/deploy", nil, ""
		},
		limits.Previews: func(x things, i int) (string, any, string) {
			return "/sites/" + x["site"] + "/deploy", m{"branch": fmt.Sprint("feature-", i)}, ""
		},
		limits.Webhooks: func(x things, i int) (string, any, string) {
			return "/webhooks", m{"url": fmt.Sprintf("https://example.test/%d", i), "events": []string{"site.created"}}, "/webhooks/"
		},
		limits.Keys: func(x things, i int) (string, any, string) {
			return "/keys", m{"name": "k", "scopes": []string{"sites:read"}}, "/keys/"
		},
		limits.Env: func(x things, i int) (string, any, string) {
			return "/sites/" + x["site"] + "/env", m{"key": fmt.Sprint("K", i), "value": "x"}, "/sites/" + x["site"] + "/env/"
		},
		limits.Hooks: func(x things, i int) (string, any, string) {
			return "/sites/" + x["site"] + "/hooks", m{"name": "h"}, "/hooks/"
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			w := newLimitedWorld(t, limits.Settings{
				Users: map[string]map[limits.Name]int64{
					"a@example.test":    {name: most},
					"none@example.test": {name: 0},
					"free@example.test": {name: limits.Unlimited},
				},
			})
			_, key := w.user("a@example.test")
			x := things{}
			if name != limits.Sites && name != limits.Webhooks && name != limits.Keys {
				x["site"] = w.site(key, "x")
			}
			used := func(key string) (used, limit any) {
				l := w.must(200, "GET", "/account", key, nil)["limits"].(m)[string(name)].(m)
				return l["used"], l["limit"]
			}
			before, limit := used(key)
			if limit != float64(most) {
				t.Fatalf("the limit is shown as %v", limit)
			}
			var made atomic.Int64
			var last sync.Map
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					path, body, _ := make(x, i)
					a := w.api("POST", path, key, body)
					common(t, string(name), a)
					switch {
					case a.status < 300:
						made.Add(1)
						last.Store("made", a.json(t))
					case a.status == 402:
						last.Store("refused", a.json(t))
					default:
						t.Error(a)
					}
				})
			}
			wg.Wait()
			if n := made.Load() + int64(before.(float64)); n != most {
				t.Errorf("%d exist, the limit is %d", n, most)
			}
			if n, _ := used(key); n != float64(most) {
				t.Errorf("%v are shown as used", n)
			}
			v, _ := last.Load("refused")
			if b, ok := v.(m); !ok || b["code"] != "limit_reached" || b["limit"] != float64(most) || b["current"] != float64(most) ||
				b["name"] != string(name) ||
				b["details"] == "" {
				t.Errorf("refused with %v", v)
			}
			_, other := w.user("free@example.test")
			if _, limit := used(other); limit != nil {
				t.Errorf("no limit is shown as %v", limit)
			}
			_, _, remove := make(x, 0)
			if remove == "" {
				return
			}
			done, _ := last.Load("made")
			b := done.(m)
			if d, ok := b["data"].(m); ok {
				b = d
			}
			id, _ := b["id"].(string)
			if name == limits.Env {
				id = b["key"].(string)
			}
			w.must(200, "DELETE", remove+id, key, nil)
			path, body, _ := make(x, 100)
			if a := w.api("POST", path, key, body); a.status >= 300 {
				t.Errorf("after one was deleted: %s", a)
			}
		})
	}
}

// Creating and deleting sites in a loop is limited, because it would use up the build user IDs.
func TestSitesCannotBeMadeAndDeletedWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newLimitedWorld(t, limits.Settings{Defaults: map[limits.Name]int64{limits.Sites: 2}})
	_, key := w.user("a@example.test")
	for i := range 4 {
		id := w.site(key, fmt.Sprint("s", i))
		w.must(200, "DELETE", "/sites/"+id, key, nil)
	}
	a := w.api("POST", "/sites", key, m{"name": "x", "type": "static", "repository": "git.test/acme/site"})
	if a.status != 402 || a.json(t)["code"] != "limit_reached" || a.json(t)["current"] != 4.0 {
		t.Error(a)
	}
}

// Monthly limits name their month.
func TestLimitsSayTheirMonth(t *testing.T) {
	t.Parallel()
	w := newLimitedWorld(t, limits.Settings{})
	_, key := w.user("a@example.test")
	before := limits.MonthOf(db.Now())
	all := w.must(200, "GET", "/account", key, nil)["limits"].(m)
	after := limits.MonthOf(db.Now())
	for _, name := range []limits.Name{limits.Bandwidth, limits.BuildMinutes, limits.Sites} {
		of := all[string(name)].(m)
		if name == limits.Sites {
			if _, has := of["periodStart"]; has {
				t.Errorf("%s: %v", name, of)
			}
			continue
		}
		is := func(x limits.Window) bool {
			return of["periodStart"] == x.From.String() && of["periodEnd"] == x.To.String()
		}
		if !is(before) && !is(after) {
			t.Errorf("%s: %v", name, of)
		}
	}
}
