package deploy

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// examples is a source tree from which only some files are read.
type examples struct {
	sourceTree
	files map[string]string
}

func (e examples) ReadFile(_ context.Context, name string, _ int64) ([]byte, error) {
	text, there := e.files[name]
	if !there {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

// If a program fails and may lack variables, the error lists the variables of the project's example file that the site
// doesn't have.
func TestLackingVariables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("git.test/acme/site")
	w.write(func(tx *db.Tx) error {
		_, err := w.sites.SetEnvTx(t.Context(), tx, anna, s.ID, []site.NewVar{{Key: "LOG_LEVEL", Value: "info"}})
		return err
	})
	x := deployment.Deployment{ID: "dep_1", Owner: anna, Site: s.ID, Target: deployment.Production, Branch: "main"}
	tree := examples{files: map[string]string{
		"web/.env.example": "# of the server\nPORT=9999\nLOG_LEVEL=debug\nDATABASE_URL=file:dev.db\nTOKEN=\nAPP_ENV=x\n",
		"many/.env.sample": "A1=\nA2=\nA3=\nA4=\nA5=\nA6=\nA7=\nA8=\nA9=\nB1=\n",
		"bad/.env.example": "= what",
	}}
	const lists = ". .env.example lists variables that the site doesn't have: DATABASE_URL, TOKEN. Add those that it needs, for the runtime"
	for _, c := range []struct{ root, code, details, want string }{
		{"web", "application_crashed", "see its log", lists},
		{"web", "application_crashed", "it printed nothing that says why", lists},
		{"web", "application_unhealthy", "Its last error: Error: supabaseUrl is required.", strings.TrimPrefix(lists, ".")},
		{"web", "release_failed", "The environment variable TOKEN is not set: add it to the site, for the runtime", lists},
		{"many", "application_crashed", "see its log", "have: A1, A2, A3, A4, A5, A6, A7, A8 and 2 more variables. Add"},
		{"web", "application_full", "see its log", ""},
		{"web", "application_crashed", "Node.js ran out of memory: raise the site's memory limit (run.memoryMiB)", ""},
		{"web", "build_failed", "TypeScript error in src/a.ts, line 3: Cannot find name 'x' (TS2304)", ""},
		{"bad", "application_crashed", "see its log", ""},
		{"", "application_crashed", "see its log", ""},
	} {
		before := &fault.Error{Kind: fault.Invalid, Message: "It ended", Details: c.details, Code: c.code}
		plan := framework.Plan{Root: c.root, Env: map[string]string{"APP_ENV": "production"}}
		got := fault.As(w.lacking(t.Context(), x, tree, plan, "runtime", before))
		if c.want == "" && got.Details != c.details || !strings.HasPrefix(got.Details, strings.TrimSuffix(c.details, ".")) ||
			!strings.Contains(got.Details, c.want) || before.Details != c.details {
			t.Errorf("%+v: %s", c, got.Details)
		}
	}
}
