package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"slipway/internal/client/login"
)

// A link that came with a repository gets no key: it may be of somebody who wants one.
func TestForeignLink(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	e := &Env{Dir: t.TempDir(), Store: store}
	if err := writeLink(e.Dir, link{server.URL, "site_1", "harbor"}); err != nil {
		t.Fatal(err)
	}
	_, err = target{Token: "slw_x"}.client(e)
	var f *Failure
	if !errors.As(err, &f) || f.ExitCode() != exitAnswer || !strings.Contains(err.Error(), "--server "+server.URL) {
		t.Errorf("a key for the server of a link: %v", err)
	}
	if _, err := (target{Token: "slw_x", Server: server.URL}).client(e); err != nil {
		t.Errorf("with --server: %v", err)
	}
}

// Builds have variables such as SLIPWAY_BRANCH: a command that runs in one takes none of them for a flag.
func TestFlagsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	known := []string{"SLIPWAY_TOKEN", "SLIPWAY_SERVER", "SLIPWAY_SITE", "SLIPWAY_CA_FILE"}
	seen := 0
	var look func(at string, x reflect.Type)
	look = func(at string, x reflect.Type) {
		for i := range x.NumField() {
			f := x.Field(i)
			_, command := f.Tag.Lookup("cmd")
			_, argument := f.Tag.Lookup("arg")
			switch env, ok := f.Tag.Lookup("env"); {
			case argument && env == "-": // which means something of flags alone
				t.Errorf("%s: help shows $- beside the argument %s", at, f.Name)
			case argument && !ok:
			case f.Anonymous || command:
				look(at+" "+strings.ToLower(f.Name), f.Type)
			case !f.IsExported():
			case !ok || env != "-" && !slices.Contains(known, env):
				t.Errorf("%s: the flag %s is read from the variable %q", at, f.Name, env)
			default:
				seen++
			}
		}
	}
	look("slipway", reflect.TypeFor[Commands]())
	if seen < 50 {
		t.Errorf("%d flags were looked at", seen)
	}
}

// What dev and env run start doesn't inherit the key.
func TestChildrenGetNoKey(t *testing.T) {
	t.Setenv("SLIPWAY_TOKEN", "slw_canary")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data": []}`) }))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := &Env{In: strings.NewReader(""), Out: &out, Err: &out, Dir: t.TempDir(), Store: store}
	c, err := target{Token: "slw_canary", Server: server.URL}.client(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.with(t.Context(), c, site{ID: "site_1"}, []string{"env"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "PATH=") || strings.Contains(out.String(), "canary") {
		t.Errorf("the child has %s", out.String())
	}
}
