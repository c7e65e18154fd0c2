package imports

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// platform returns a fake platform: testdata/NAME.txtar holds its answers by path and query, in the format of its
// published schema.
func platform(t *testing.T, name string, change func(w http.ResponseWriter, r *http.Request) bool) Platform {
	t.Helper()
	file, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string][]byte{}
	for _, f := range file.Files {
		answers[f.Name] = f.Data
	}
	asked := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if change != nil && change(w, r) {
			return
		}
		at := strings.TrimPrefix(r.URL.RequestURI(), "/")
		answer, ok := answers[at]
		if !ok {
			t.Errorf("unexpected GET %s", at)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		asked[at] = true
		_, _ = w.Write(answer)
	}))
	t.Cleanup(srv.Close)
	if change == nil {
		t.Cleanup(func() {
			for at := range answers {
				if !asked[at] && !strings.HasPrefix(at, "want") {
					t.Errorf("%s was not asked for", at)
				}
			}
		})
	}
	all := Platforms()
	p := all[slices.IndexFunc(all, func(p Platform) bool { return p.ID == name })]
	p.Base = srv.URL
	return p
}

// Each platform's recorded answers produce the plan in testdata. UPDATE=1 rewrites it.
func TestPlans(t *testing.T) {
	for _, p := range Platforms() {
		t.Run(p.ID, func(t *testing.T) {
			plan, err := Read(t.Context(), platform(t, p.ID, nil), "the-token", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(plan, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", p.ID+".json")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(want)) != string(got) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// If the token can't read everything, the plan says what is missing. An invalid token is an error.
func TestPlanIsPartial(t *testing.T) {
	p := platform(t, "netlify", func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/env") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	plan, err := Read(t.Context(), p, "the-token", "", []string{"harbor"})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Sites) != 1 || len(plan.Sites[0].Proposal.Env) != 0 || len(plan.Partial) != 1 || !strings.Contains(plan.Partial[0], "variables of harbor: this token may not read") {
		t.Errorf("got %+v %q", plan.Sites, plan.Partial)
	}
	if !slices.ContainsFunc(plan.Sites[0].Left, func(s string) bool { return strings.Contains(s, "variables, which could not be read") }) {
		t.Errorf("skipped: %q", plan.Sites[0].Left)
	}
	if _, err := Read(t.Context(), p, "another", "", nil); err == nil || !strings.Contains(err.Error(), "does not take this token") {
		t.Errorf("another token: %v", err)
	}
	if _, err := Read(t.Context(), p, "the-token", "", []string{"harbour"}); err == nil || !strings.Contains(err.Error(), "no site harbour") {
		t.Errorf("a site that is not there: %v", err)
	}
}

// The client waits for rate limits and failing servers, gives up on endless responses, and sends no token to a
// redirect's target.
func TestHostilePlatform(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect led to %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string // "": it succeeds in the end
		waits  []time.Duration
	}{
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, "", []time.Duration{7 * time.Second}},
		"busy for an hour": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}, "rate limit", nil},
		"failing":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "", []time.Duration{time.Second}},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "answers 302", nil},
		"no JSON":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "not what it should be", nil},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			for range maxAnswer>>20 + 1 {
				_, _ = w.Write(block)
			}
		}, "larger than 16 MiB", nil},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first || c.want != "" {
					first = false
					c.answer(w, r)
					return
				}
				_, _ = io.WriteString(w, `{"a": 1}`)
			}))
			t.Cleanup(srv.Close)
			s, err := newSource(Platform{Name: "The platform", Base: srv.URL}, "x", "")
			if err != nil {
				t.Fatal(err)
			}
			var waits []time.Duration
			s.pause = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
			var out struct{ A int }
			_, err = s.get(t.Context(), "/a", nil, &out)
			if c.want == "" && (err != nil || out.A != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %+v, %v", out, err)
			}
			if !slices.Equal(waits, c.waits) {
				t.Errorf("waited %v, want %v", waits, c.waits)
			}
		})
	}
}

// Variables that the REST API would refuse are listed by name, equal values of a key are merged if possible, and
// secrets stay secret.
func TestVariables(t *testing.T) {
	x := &Site{ID: "one", Proposal: Proposal{Repository: "github.com/acme/one", Env: []Var{
		{Key: "A", Value: "1", Target: []string{"production"}},
		{Key: "A", Value: "1", Target: []string{"preview"}},
		{Key: "B", Value: "1", Target: []string{"production"}},
		{Key: "B", Value: "2", Target: []string{"preview"}},
		{Key: "B", Value: "3", Branch: "next"},
		{Key: "C", Value: "1"},
		{Key: "C", Value: "2", Target: []string{"preview"}},
		{Key: "API_KEY", Value: "x"},
		{Key: "a-b", Value: "x"},
		{Key: "SLIPWAY_URL", Value: "x"},
		{Key: "LONG", Value: strings.Repeat("x", maxValue+1)},
		{Key: "NUL", Value: "\x00"},
	}}}
	x.clean()
	got, _ := json.Marshal(x.Proposal.Env)
	const want = `[{"key":"A","value":"1"},{"key":"API_KEY","value":"x","secret":true},` +
		`{"key":"B","value":"1","target":["build","runtime","production"]},{"key":"B","value":"2","target":["build","runtime","preview"]},` +
		`{"key":"B","value":"3","branch":"next"},` +
		`{"key":"C","value":"1","target":["build","runtime","production"]},{"key":"C","value":"2","target":["build","runtime","preview"]}]`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(x.Left) != 1 || !strings.HasSuffix(x.Left[0], ": a-b, SLIPWAY_URL, LONG, NUL") {
		t.Errorf("left behind: %q", x.Left)
	}
}

// The repository can be set only if the platform doesn't name one.
func TestSetRepository(t *testing.T) {
	x := &Site{ID: "one"}
	x.clean()
	if err := x.SetRepository("acme"); err == nil || x.Proposal.Source != "upload" {
		t.Errorf("an invalid repository: %v, %+v", err, x.Proposal)
	}
	if err := x.SetRepository("https://github.com/acme/one"); err != nil || x.Proposal.Repository != "github.com/acme/one" || x.Proposal.Source != "" || len(x.Left) != 0 {
		t.Errorf("got %v, %+v, %q", err, x.Proposal, x.Left)
	}
	if err := x.SetRepository("https://github.com/acme/two"); err == nil {
		t.Error("a repository that is known was changed")
	}
}

func TestRepository(t *testing.T) {
	for address, want := range map[string]string{
		"https://github.com/acme/site":            "github.com/acme/site",
		"https://github.com/acme/site.git":        "github.com/acme/site",
		"git@gitlab.com:acme/group/site.git":      "gitlab.com/acme/group/site",
		"ssh://git@git.example.com/acme/site":     "git.example.com/acme/site",
		"https://user:secret@github.com/acme/one": "github.com/acme/one",
		"https://github.com/acme":                 "",
		"not a repository":                        "",
		"":                                        "",
	} {
		if got := repository(address); got != want {
			t.Errorf("%q is %q, want %q", address, got, want)
		}
	}
}
