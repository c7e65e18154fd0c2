package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slipway/internal/client/login"
)

// vars returns a server with a site's variables, which can be deleted and changed.
func vars(t *testing.T, list ...map[string]any) (server *httptest.Server, left func() string) {
	t.Helper()
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, one := strings.CutPrefix(r.URL.Path, "/api/v1/sites/site_1/env/")
		at := slices.IndexFunc(list, func(v map[string]any) bool { return v["id"] == id })
		switch {
		case r.URL.Path == "/api/v1/sites/site_1":
			fmt.Fprint(w, `{"id": "site_1"}`)
		case !one:
			_ = json.NewEncoder(w).Encode(map[string]any{"data": list})
		case at < 0:
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodDelete:
			list = slices.Delete(list, at, at+1)
		case r.Method == http.MethodPatch:
			var in struct{ Target []string }
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			list[at]["target"] = in.Target
			fmt.Fprint(w, "{}")
		}
	}))
	t.Cleanup(server.Close)
	return server, func() string {
		var all []string
		for _, v := range list {
			all = append(all, fmt.Sprintf("%s:%v", v["id"], v["target"]))
		}
		return strings.Join(all, " ")
	}
}

func value(id, key, text string, secret bool, branch string, target ...string) map[string]any {
	v := map[string]any{"id": id, "key": key, "value": text, "secret": secret, "target": append([]string{"build"}, target...), "branch": branch}
	if secret {
		v["value"] = nil
	}
	return v
}

// For a variable with several values, get prints and unset deletes the production value, or the one that flags select.
// Deleting several values asks for confirmation. A secret's value can't be read, which isn't reported as a missing
// permission.
func TestValuesOfAVariable(t *testing.T) {
	t.Parallel()
	const all = "one:[build] live:[build production] pre:[build preview] fix:[build preview] key:[build] only:[build preview]"
	for name, tt := range map[string]struct {
		line   string
		out    string
		status int
		said   string // in the error or on standard error
		left   string // empty: all
	}{
		"get":                     {line: "get KEY", out: "live"},
		"get for production":      {line: "get KEY --target production", out: "live"},
		"get for previews":        {line: "get KEY --target preview", out: "preview"},
		"get for a branch":        {line: "get KEY --branch fix/*", out: "fix"},
		"get for another branch":  {line: "get KEY --branch main", status: 6, said: "no value for previews of main, but for production, previews, previews of fix/*"},
		"get what is for both":    {line: "get ONE --target preview", out: "one"},
		"get what isn't there":    {line: "get ONLY", status: 6, said: "no value for production, but for previews"},
		"get nothing":             {line: "get NONE", status: 6, said: "there is no variable NONE"},
		"get a secret":            {line: "get SECRET", status: 1, said: "never shown"},
		"get a branch's of both":  {line: "get KEY --target production --branch fix/*", status: 2, said: "--branch is for previews"},
		"unset":                   {line: "unset KEY", said: "still has a value for previews, previews of fix/*", left: strings.Replace(all, "live:[build production] ", "", 1)},
		"unset for previews":      {line: "unset KEY --target preview", said: "still has a value for production", left: strings.Replace(all, "pre:[build preview] ", "", 1)},
		"unset for a branch":      {line: "unset KEY --branch fix/*", said: "still has", left: strings.Replace(all, "fix:[build preview] ", "", 1)},
		"unset for both":          {line: "unset KEY --target production,preview", status: 4, said: "deletes 2 values of KEY (production, previews). Add --yes"},
		"unset for both with yes": {line: "unset KEY --target production,preview --yes", left: "one:[build] fix:[build preview] key:[build] only:[build preview]"},
		"unset one for both":      {line: "unset ONE", said: "Deleted ONE\n", left: strings.Replace(all, "one:[build] ", "", 1)},
		"unset half of one":       {line: "unset ONE --target preview", said: "still has a value for production", left: strings.Replace(all, "one:[build]", "one:[build production]", 1)},
		"unset the other half":    {line: "unset SECRET --target production", said: "still has a value for previews", left: strings.Replace(all, "key:[build]", "key:[build preview]", 1)},
		"unset several":           {line: "unset ONE SECRET", left: "live:[build production] pre:[build preview] fix:[build preview] only:[build preview]"},
		"unset with one missing":  {line: "unset ONE NONE", status: 6, said: "there is no variable NONE"},
		"unset what isn't there":  {line: "unset ONLY", status: 6, said: "but for previews"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, left := vars(t, value("one", "ONE", "one", false, ""),
				value("live", "KEY", "live", false, "", "production"),
				value("pre", "KEY", "preview", false, "", "preview"),
				value("fix", "KEY", "fix", false, "fix/*", "preview"), value("key", "SECRET", "", true, ""),
				value("only", "ONLY", "x", false, "", "preview"))
			var commands struct{ envCommand }
			p, err := kong.New(&commands)
			if err != nil {
				t.Fatal(err)
			}
			k, err := p.Parse(append(strings.Fields(tt.line), "--server", server.URL, "--token", "slw_x", "--site", "site_1"))
			if err != nil {
				t.Fatal(err)
			}
			var out, said bytes.Buffer
			e := &Env{In: strings.NewReader(""), Out: &out, Err: &said, Dir: t.TempDir(), Store: login.At(t.TempDir() + "/auth.json")}
			k.BindTo(t.Context(), (*context.Context)(nil))
			err = k.Run(e)
			status := 0
			var f *Failure
			switch {
			case errors.As(err, &f):
				status = f.ExitCode()
			case err != nil:
				status = 1
			}
			if status != tt.status {
				t.Errorf("it ends with %d, %v, want %d", status, err, tt.status)
			}
			if got := strings.TrimSpace(out.String()); got != tt.out {
				t.Errorf("it prints %q, want %q", got, tt.out)
			}
			if text := fmt.Sprint(said.String(), err); !strings.Contains(text, tt.said) {
				t.Errorf("it says %q, want %q", text, tt.said)
			}
			want := tt.left
			if want == "" {
				want = all
			}
			if got := left(); got != want {
				t.Errorf("left are %s\nwant %s", got, want)
			}
		})
	}
}

// Without a yes, unset keeps the variable's values.
func TestUnsetAsks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{"n\n": "live:[build production] pre:[build preview]", "": "live:[build production] pre:[build preview]", "y\n": ""} {
		server, left := vars(t, value("live", "KEY", "live", false, "", "production"), value("pre", "KEY", "preview", false, "", "preview"))
		u := unsetEnv{Keys: []string{"KEY"}, Target: []string{"preview", "production"}}
		u.Server, u.Token, u.Site = server.URL, "slw_x", "site_1"
		var said bytes.Buffer
		e := &Env{In: strings.NewReader(answer), Out: &said, Err: &said, Ask: true, Dir: t.TempDir(), Store: login.At(t.TempDir() + "/auth.json")}
		if err := u.Run(t.Context(), e); (err == nil) != (want == "") || left() != want || !strings.Contains(said.String(), "Continue? [y/N]") {
			t.Errorf("%q: %v, left are %s\n%s", answer, err, left(), &said)
		}
	}
}
