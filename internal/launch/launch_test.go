package launch

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/fault"
	"slipway/internal/program/app"
	"slipway/internal/program/runtime"
	"slipway/internal/program/scale"
	"slipway/internal/program/transport"
	"slipway/internal/tenant/site"
)

func ptr[T any](v T) *T { return &v }

// Each setting of a site's program changes what is started. A new setting that isn't applied would be accepted and have
// no effect.
func TestEverySettingIsApplied(t *testing.T) {
	t.Parallel()
	elsewhere := []string{
		"Release", "Closed", "DocumentRoot", "FrontController", "Passthru", // applied from the deployment
		"Storage",  // by applyStorage
		"Terminal", // by the dashboard
	}
	fields := reflect.TypeFor[site.Run]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		var r site.Run
		v := reflect.New(f.Type.Elem())
		switch x := v.Interface().(type) {
		case *string:
			*x = "other"
		case *int:
			*x = 77
		case *float64:
			*x = 7.5
		case *bool:
			*x = true
		case *[]int:
			*x = []int{5432}
		case *site.Instances:
			*x = site.Instances{Min: ptr(2), Max: ptr(3)}
		case *site.HealthCheck:
			*x = site.HealthCheck{Path: ptr("/up"), TimeoutSeconds: ptr(7)}
		}
		reflect.ValueOf(&r).Elem().Field(i).Set(v)
		var w app.Wanted
		applyRun(&w, r)
		if changed := !reflect.DeepEqual(w, app.Wanted{}); changed == slices.Contains(elsewhere, f.Name) {
			t.Errorf("%s changes what is started: %v", f.Name, changed)
		}
	}
	w := app.Wanted{
		Sleep:  defaultSleep,
		Health: defaultHealth,
		PHP:    &transport.PHP{},
		Spec:   runtime.Spec{Argv: []string{"detected"}, Limits: runtime.Limits{Memory: 1}},
	}
	applyRun(&w, site.Run{}) // no settings
	if w.Sleep != defaultSleep || w.Spec.Limits.Memory != 1 || w.PHP == nil || len(w.Spec.Argv) != 1 {
		t.Errorf("no settings change %+v", w)
	}
	applyRun(&w, site.Run{
		SleepAfterSeconds: ptr(0),
		MemoryMiB:         ptr(64),
		ResponseSeconds:   ptr(5),
		RequestMiB:        ptr(2),
		Command:           ptr("node x.js && true"),
		HealthCheck:       &site.HealthCheck{Path: ptr("/up")},
	})
	if w.Sleep != 0 || w.Spec.Limits.Memory != 64<<20 || w.FirstByte != 5*time.Second || w.MaxBody != 2<<20 || w.HealthPath != "/up" ||
		w.Health != defaultHealth {
		t.Errorf("%+v", w)
	}
	if w.PHP != nil || w.Spec.Argv != nil || w.Spec.Shell == "" {
		t.Errorf("a command of its own is a server of its own: %+v %+v", w.PHP, w.Spec)
	}
}

// Sites with storage and PHP sites run a single instance, and the maximum is never below the minimum.
func TestInstances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec runtime.Spec
		run  site.Instances
		want scale.Range
	}{
		"both":              {runtime.Spec{}, site.Instances{Min: ptr(2), Max: ptr(5)}, scale.Range{Min: 2, Max: 5}},
		"at least":          {runtime.Spec{}, site.Instances{Min: ptr(2)}, scale.Range{Min: 2, Max: 2}},
		"at most":           {runtime.Spec{}, site.Instances{Max: ptr(4)}, scale.Range{Max: 4}},
		"temporary folders": {runtime.Spec{Storage: []runtime.Storage{{Path: "tmp", Temporary: true}}}, site.Instances{Min: ptr(2)}, scale.Range{Min: 2, Max: 2}},
		"storage":           {runtime.Spec{Storage: []runtime.Storage{{Path: "data"}}}, site.Instances{Min: ptr(2), Max: ptr(5)}, scale.Range{}},
		"PHP":               {runtime.Spec{PHP: &runtime.PHP{}}, site.Instances{Min: ptr(2), Max: ptr(5)}, scale.Range{}},
	} {
		w := app.Wanted{Spec: c.spec}
		applyRun(&w, site.Run{Instances: &c.run})
		boundInstances(&w)
		if w.Instances != c.want {
			t.Errorf("%s: %+v, want %+v", name, w.Instances, c.want)
		}
	}
}

// Each storage folder is listed once. Temporary folders take precedence, the site's settings override slipway.toml, and
// a fork can't access the site's storage.
func TestStorage(t *testing.T) {
	t.Parallel()
	p := program{
		Root:  "app",
		Start: framework.Start{Storage: []string{"data", "tmp"}, Temporary: []string{"tmp"}},
		Run:   site.Run{Storage: &[]string{"file"}},
	}
	kept := func(p program) (list []string) {
		var w app.Wanted
		applyStorage(&w, p)
		for _, s := range w.Spec.Storage {
			if s.Temporary {
				s.Path = "(" + s.Path + ")"
			}
			list = append(list, s.Path)
		}
		return list
	}
	if got, want := kept(p), []string{"(app/tmp)", "app/data", "app/file"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p.Site.Run.Storage = &[]string{"own", "data/", "tmp"}
	if got, want := kept(p), []string{"(app/tmp)", "app/data", "app/own"}; !slices.Equal(got, want) {
		t.Errorf("with the site's own: %q, want %q", got, want)
	}
	p.Isolated = true
	if got, want := kept(p), []string{"(app/tmp)", "(app/data)", "(app/own)"}; !slices.Equal(got, want) {
		t.Errorf("of a fork: %q, want %q", got, want)
	}
	if got := (site.Run{}).StorageBytes(); got != site.DefaultStorage {
		t.Errorf("%d bytes by default", got)
	}
	if got := (site.Run{StorageMiB: ptr(16)}).StorageBytes(); got != 16<<20 {
		t.Errorf("%d bytes", got)
	}
}

// PHP-FPM runs the site unless there is a start command, which then finds PHP in its PATH.
func TestPHP(t *testing.T) {
	t.Parallel()
	p := program{
		Runtime: framework.PHP,
		Root:    "app",
		PHP:     ">=8.1",
		Start:   framework.Start{DocumentRoot: "public", FrontController: "index.php"},
	}
	var w app.Wanted
	applyPHP(&w, p)
	if w.PHP == nil || w.PHP.Root != "app/public" || w.PHP.Front != "index.php" || w.Spec.Dir != "app" || w.Spec.PHP.Version != ">=8.1" {
		t.Errorf("%+v %+v", w.PHP, w.Spec)
	}
	p.Start.Command = framework.Command{Argv: []string{"php", "artisan", "octane:start"}}
	w = app.Wanted{}
	applyPHP(&w, p)
	if w.PHP != nil || w.Spec.PHP == nil {
		t.Errorf("with a server of its own: %+v %+v", w.PHP, w.Spec)
	}
	w = app.Wanted{}
	applyPHP(&w, program{Runtime: framework.Node})
	if w.PHP != nil || w.Spec.PHP != nil {
		t.Errorf("Node: %+v %+v", w.PHP, w.Spec)
	}
	w = app.Wanted{Spec: runtime.Spec{Argv: []string{"x"}, Shell: "x"}}
	applyPHP(&w, program{Runtime: framework.WordPress, Bundle: "b", Content: []string{"themes"}})
	if w.PHP == nil || len(w.Spec.Storage) != 1 || len(w.Spec.Trees) != 1 ||
		!strings.HasSuffix(w.Spec.Trees[0].Path, "/themes") || w.Spec.Trees[0].From != "content/themes" ||
		w.Spec.Argv != nil || w.Spec.Shell != "" {
		t.Errorf("WordPress: %+v %+v", w.PHP, w.Spec)
	}
}

// A program restored from a backup has the variables of production, and none of previews or branches.
func TestProgramFromBackup(t *testing.T) {
	t.Parallel()
	plan, err := json.Marshal(framework.Plan{
		Runtime: framework.Node,
		Node:    "22",
		Start:   &framework.Start{Command: framework.Command{Shell: "node ."}},
	})
	if err != nil {
		t.Fatal(err)
	}
	vars := []site.NewVar{
		{Key: "BOTH", Value: "1", Target: []string{"build", "runtime"}},
		{Key: "SECRET", Value: "sealed value", Secret: true, Target: []string{"runtime", "production"}},
		{Key: "SLIPWAY_BRANCH", Value: "owner's", Target: []string{"runtime"}},
		{Key: "BUILD", Value: "1", Target: []string{"build"}},
		{Key: "PREVIEW", Value: "1", Target: []string{"runtime", "preview"}},
		{Key: "BRANCH", Value: "1", Target: []string{"runtime"}, Branch: "feature/*"},
		{Key: "NOWHERE", Value: "1"},
	}
	p, err := programFromBackup(site.Site{
		ID: "site_a",
	}, deployment.Live{Plan: plan, Branch: "main", CommitHash: "abc"}, vars, "https://a.test")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"SLIPWAY":               "1",
		"SLIPWAY_SITE_ID":       "site_a",
		"SLIPWAY_DEPLOYMENT_ID": "",
		"SLIPWAY_COMMIT":        "abc",
		"SLIPWAY_BRANCH":        "owner's",
		"SLIPWAY_TARGET":        "production",
		"SLIPWAY_URL":           "https://a.test",
		"BOTH":                  "1",
		"SECRET":                "sealed value",
	}
	if !reflect.DeepEqual(p.Env, want) {
		t.Errorf("%v, want %v", p.Env, want)
	}
	if !slices.Equal(p.Secrets, []string{"sealed value"}) || p.Node != "22" || p.Start.Command.Shell != "node ." || p.Preview != "" ||
		p.Isolated {
		t.Errorf("%+v", p)
	}
	if _, err := programFromBackup(site.Site{}, deployment.Live{
		Plan: json.RawMessage(`{"runtime":"static"}`),
	}, nil, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("of files alone: %v", err)
	}
	if _, err := programFromBackup(site.Site{}, deployment.Live{Plan: json.RawMessage(`{`)}, nil, ""); err == nil || fault.As(err) != nil {
		t.Errorf("of a damaged plan: %v", err)
	}
}

func TestOwnAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://a.test":        "a.test:443",
		"https://a.test:8443/x": "a.test:8443",
		"https://[2001:db8::1]": "[2001:db8::1]:443",
		"":                      "",
		"a.test":                "",
		"://":                   "",
	} {
		if got := ownAddress(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// Nodes with shared storage verify backups in different folders of it.
func TestTrialSite(t *testing.T) {
	t.Parallel()
	if a, b := trialSite("node_a", true), trialSite("node_b", true); a == b || a == TrialSite {
		t.Errorf("two nodes try backups in %s and %s", a, b)
	}
	if a := trialSite("node_a", false); a != TrialSite {
		t.Errorf("a node with storage of its own tries backups in %s", a)
	}
}

// A program gets the variables that its framework needs, like its build. Variables of the site and of Slipway override
// them.
func TestVariablesOfTheFramework(t *testing.T) {
	t.Parallel()
	plan, err := json.Marshal(framework.Plan{
		Runtime: framework.PHP, Start: &framework.Start{}, Env: map[string]string{"APP_ENV": "prod", "APP_DEBUG": "0", "SLIPWAY": "no"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := programOf(site.Site{}, deployment.Deployment{Plan: plan}, []site.Var{{Key: "APP_DEBUG", Value: "1"}}, "")
	if err != nil || p.Env["APP_ENV"] != "prod" || p.Env["APP_DEBUG"] != "1" || p.Env["SLIPWAY"] != "1" {
		t.Errorf("%v %v", p.Env, err)
	}
}
