package project

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// RunSettings copies every field of [run] in slipway.toml. A new field that it doesn't copy would be accepted and have
// no effect.
func TestRunSettingsCarryEveryField(t *testing.T) {
	t.Parallel()
	var r framework.Run
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.New(v.Field(i).Type().Elem()))
	}
	out := reflect.ValueOf(RunSettings(&r))
	elsewhere := []string{"Command", "Release", "Terminal"} // Command and Release are in the plan, Terminal only in the site
	for i := range out.NumField() {
		if name := out.Type().Field(i).Name; out.Field(i).IsNil() != slices.Contains(elsewhere, name) {
			t.Errorf("%s is set: %v", name, !out.Field(i).IsNil())
		}
	}
	if h := RunSettings(&r).HealthCheck; h.Path != r.HealthCheckPath || h.TimeoutSeconds != r.HealthCheckTimeoutSeconds {
		t.Errorf("health check %+v", h)
	}
	if RunSettings(nil) != (site.Run{}) || RunSettings(&framework.Run{}) != (site.Run{}) {
		t.Error("nothing said is something")
	}
}

// The error for an out-of-range value in slipway.toml uses the file's own name for the field, not the API's.
func TestCheckNamesTheFile(t *testing.T) {
	t.Parallel()
	low, good := 1, 256
	if err := check(framework.Plan{Run: &framework.Run{MemoryMiB: &good}}); err != nil {
		t.Error(err)
	}
	if err := check(framework.Plan{}); err != nil {
		t.Errorf("without [run]: %v", err)
	}
	var f *fault.Error
	err := check(framework.Plan{Run: &framework.Run{MemoryMiB: &low}})
	if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Code != "invalid_slipway_toml" || !strings.HasPrefix(f.Details, "[run] memory") {
		t.Errorf("%+v", err)
	}
}

func TestCommandsAndStorage(t *testing.T) {
	t.Parallel()
	shell := func(s string) framework.Command { return framework.Command{Shell: s} }
	release := shell("migrate")
	plan := framework.Plan{
		Release: &release, Processes: []framework.Process{{Name: "mail", Command: shell("send")}},
		Crons: []framework.Cron{{Name: "night", Command: framework.Command{Argv: []string{"php", "a b"}}}}, Start: &framework.Start{},
	}
	if got, want := Commands(plan), []string{"migrate", "send", "php 'a b'"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Commands(framework.Plan{}); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
	if got := StartedBy(plan); got != "PHP-FPM" {
		t.Errorf("without a command it is started by %q", got)
	}
	plan.Start.Command = shell("node server.js")
	if got := StartedBy(plan); got != "node server.js" {
		t.Errorf("started by %q", got)
	}
	own, file, none := []string{"own"}, []string{"file"}, []string{}
	for name, tt := range map[string]struct {
		site, file *[]string
		want       []string
	}{
		"neither":                {nil, nil, nil},
		"the file's":             {nil, &file, file},
		"the site's goes before": {&own, &file, own},
		"none at all":            {&none, &file, none},
	} {
		p := framework.Plan{Run: &framework.Run{Storage: tt.file}}
		if got := Storage(site.Site{Run: site.Run{Storage: tt.site}}, p); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := Storage(site.Site{}, framework.Plan{}); got != nil {
		t.Errorf("without [run]: %q", got)
	}
}
