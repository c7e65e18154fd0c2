package sites

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/dbtest"
	"slipway/internal/program/app"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/site"
)

// typist is an engine whose programs echo their input until they are stopped.
type typist struct{ specs chan runtime.Spec }

func (e typist) Start(_ context.Context, s runtime.Spec) (runtime.Program, error) {
	e.specs <- s
	p := &typed{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_, _ = io.Copy(s.Terminal.Output, s.Terminal.Input)
	}()
	return p, nil
}

type typed struct{ done chan struct{} }

func (p *typed) Dial(context.Context) (net.Conn, error) { return nil, runtime.ErrNotListening }
func (p *typed) Open(string) (*os.File, bool, error)    { return nil, false, os.ErrNotExist }
func (p *typed) Stop(time.Duration)                     {}
func (p *typed) Done() <-chan struct{}                  { return p.done }
func (p *typed) Exit() runtime.Exit                     { return runtime.Exit{Reason: "exit code 0"} }
func (p *typed) Usage() runtime.Usage                   { return runtime.Usage{} }

// A terminal is a shell next to the live deployment's program, with its settings but without a port, and counts towards
// the owner's running programs.
func TestTerminalOfSite(t *testing.T) {
	t.Parallel()
	e := typist{make(chan runtime.Spec, 1)}
	h := apps{app.New(app.Config{
		DB:     dbtest.New(t),
		Engine: e,
		Launch: wants(func(_ context.Context, deployment string) (app.Wanted, error) {
			return app.Wanted{
				Site:       "site",
				Owner:      "owner",
				Deployment: id.Deployment(deployment),
				Spec:       runtime.Spec{Site: "site", Argv: []string{"node", "server.js"}, Env: []string{"SECRET=x"}, Egress: true},
			}, nil
		}),
	})}
	s := site.Site{ID: "site", Runtime: "node", LiveDeployment: "dep_1", Status: site.Active}
	in, typed := io.Pipe()
	var out bytes.Buffer
	sizes := make(chan runtime.Size, 1)
	type end struct {
		how string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		how, err := h.Terminal(t.Context(), s, &runtime.Terminal{Input: in, Output: &out, Size: runtime.Size{Columns: 100, Rows: 30}, Sizes: sizes})
		ended <- end{how, err}
	}()
	spec := <-e.specs
	if len(spec.Argv) != 0 || !strings.Contains(
		spec.Shell,
		"bash",
	) || spec.Site != "site" || spec.Env[0] != "SECRET=x" || !spec.Egress || spec.Terminal.Size != (runtime.Size{Columns: 100, Rows: 30}) {
		t.Errorf("%+v", spec)
	}
	if n := h.Running("owner"); n != 1 {
		t.Errorf("the owner runs %d, want 1", n)
	}
	sizes <- runtime.Size{Columns: 60, Rows: 20}
	if got := <-spec.Terminal.Sizes; got != (runtime.Size{Columns: 60, Rows: 20}) {
		t.Errorf("resized to %+v", got)
	}
	io.WriteString(typed, "hello")
	typed.Close()
	if got := <-ended; got.err != nil || got.how != "The shell ended: exit code 0" || out.String() != "hello" {
		t.Errorf("%+v, shown %q", got, out.String())
	}
	if n := h.Running("owner"); n != 0 {
		t.Errorf("after its end the owner runs %d", n)
	}
}

// wants is a Launch without previews.
type wants func(ctx context.Context, deployment string) (app.Wanted, error)

func (f wants) Wanted(ctx context.Context, deployment id.Deployment) (app.Wanted, error) {
	return f(ctx, string(deployment))
}
func (wants) TidyPreviews(context.Context) error { return nil }
