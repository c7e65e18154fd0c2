package programs

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// The examples are deployed from Git without changes. The examples that need the npm registry are long tests.
func TestExamples(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	flags, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	w.Flags = append(w.Flags, flags...)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		name, page, want string
		long             bool
		then             func(h *installation)
	}{
		{name: "php", page: "/any/where", want: "answered /any/where."},
		{name: "astro", page: "/", want: "3 ships in the harbor", long: true},
		{name: "next", page: "/?ship=Aurora", want: "Aurora enters the harbor", long: true},
		{name: "express", page: "/", want: "Create a database", long: true, then: withDatabase},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if e.long {
				world.Long(t)
			}
			h := &installation{World: w, t: t, key: key, browser: browser}
			if _, err := h.Git.Commit("acme/"+e.name, "main", filepath.Join(world.Root(), "examples", e.name), "first"); err != nil {
				t.Fatal(err)
			}
			var made struct{ Data struct{ ID, URL string } }
			h.call("POST", "/sites", map[string]any{"name": e.name, "type": "static", "repository": "git.test/acme/" + e.name}, &made)
			h.ID, h.URL = made.Data.ID, made.Data.URL
			var list struct{ Data []struct{ ID string } }
			h.until("the first deployment", func() (bool, error) {
				err := h.Call(t.Context(), key, "GET", "/sites/"+h.ID+"/deployments", nil, &list)
				return len(list.Data) > 0, err
			})
			h.ended(list.Data[0].ID)
			h.page(e.page, e.want)
			if e.then != nil {
				e.then(h)
			}
		})
	}
}

// page waits until a page of the site has a text, and returns the page.
func (h *installation) page(path, want string) (page string) {
	h.t.Helper()
	h.until(path+" with "+want, func() (bool, error) {
		a, err := world.Read(h.browser.Get(h.URL + path))
		page = string(a.Body)
		return err == nil && a.Status == http.StatusOK && strings.Contains(page, want), errors.Join(err, fmt.Errorf("%d %.300s", a.Status, page))
	})
	return page
}

// withDatabase follows the README of examples/express.
func withDatabase(h *installation) {
	h.t.Helper()
	var made struct{ ID string }
	h.call("POST", "/sites/"+h.ID+"/databases", map[string]any{"engine": "mariadb"}, &made)
	h.until("the database", func() (bool, error) {
		var d struct{ Status string }
		err := h.Call(h.t.Context(), h.key, "GET", "/databases/"+made.ID, nil, &d)
		return d.Status == "active", errors.Join(err, errors.New(d.Status))
	})
	h.call("POST", "/sites/"+h.ID+"/restart", nil, nil)
	number := regexp.MustCompile(`Arrival number (\d+)\.`)
	var counted [2]int
	for i := range counted {
		m := number.FindStringSubmatch(h.page("/", "Arrival number "))
		if m == nil {
			h.t.Fatal("the page has no number")
		}
		counted[i], _ = strconv.Atoi(m[1])
	}
	if counted[1] <= counted[0] {
		h.t.Errorf("the database counted %v", counted)
	}
}
