package launch

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is Launch with real dependencies. It never connects to the database server.
type world struct {
	*Launch
	t         *testing.T
	db        *db.DB
	git       *pushes.Pushes
	databases *database.Databases
	site      site.Site
}

const anna = account.OwnerID("usr_anna")

func newWorld(t *testing.T) *world {
	d := dbtest.New(t)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	ok(t, err)
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer})
	sites := site.New(site.Config{DB: d, Hooks: hooks, Seal: sealer, Domain: "sites.test"})
	deployments := deploy.New(deploy.Config{DB: d, Sites: sites, Hooks: hooks})
	w := &world{t: t, db: d, git: pushes.New(pushes.Config{DB: d, Sites: sites, Deployments: deployments, Seal: sealer})}
	w.databases, err = database.New(database.Config{
		DB:       d,
		Sites:    sites,
		Seal:     sealer,
		Dir:      t.TempDir(),
		External: "mysql://admin:secret@127.0.0.1:1",
	})
	ok(t, err)
	w.Launch = New(Config{
		DB:          d,
		Sites:       sites,
		Deployments: deployments,
		Databases:   w.databases,
		Previews:    deployments.Previews,
		Git:         w.git,
	})
	w.site, err = sites.Create(t.Context(), anna, site.NewSite{
		Name:       "Shop",
		Type:       "static",
		Repository: "git.test/acme/shop",
		Branch:     "main",
	})
	ok(t, err)
	ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := sites.SetEnvTx(t.Context(), tx, anna, w.site.ID, []site.NewVar{
			{Key: "BOTH", Value: "1", Secret: true, Target: []string{"runtime"}},
			{Key: "LIVE", Value: "1", Secret: true, Target: []string{"runtime", "production"}},
		})
		if err != nil {
			return err
		}
		_, err = w.databases.CreateTx(t.Context(), tx, anna, w.site.ID, database.NewDatabase{})
		return err
	}))
	ok(t, w.makeDatabases())
	return w
}

// makeDatabases acts as the jobs that create databases.
func (w *world) makeDatabases() error {
	return w.db.Admin(w.t.Context(), `UPDATE databases SET status = 'active', server = 'mariadb/127.0.0.1:1' WHERE status = 'creating'`)
}

// deployed creates a deployment of a program with storage.
func (w *world) deployed(x deploy.Trigger) deployment.ID {
	w.t.Helper()
	x.Cause = deployment.ByAPI
	d, err := w.c.Deployments.Trigger(w.t.Context(), anna, w.site.ID, x)
	ok(w.t, err)
	ok(
		w.t,
		w.db.Admin(
			w.t.Context(),
			`UPDATE deployments SET bundle = 'bundle', runtime = 'node', plan = '{"runtime":"node","start":{"command":{"shell":"node ."},"storage":["data"]}}' WHERE id = '`+string(d.ID)+`'`,
		),
	)
	return d.ID
}

// wanted returns a deployment's program and its variables.
func (w *world) wanted(id deployment.ID) (app.Wanted, map[string]string) {
	w.t.Helper()
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				_ = w.makeDatabases()
			}
		}
	}()
	want, err := w.Wanted(w.t.Context(), id)
	close(done)
	<-over
	ok(w.t, err)
	env := map[string]string{}
	for _, kv := range want.Spec.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return want, env
}

func (w *world) setPreviewDatabase(to string) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.git.UpdateTx(w.t.Context(), tx, anna, w.site.ID, pushes.Patch{PreviewDatabase: &to})
		return err
	}))
}

// A fork's pull request has no variables, databases or storage of its site. Other previews have their own databases and
// storage, and don't get production's variables.
func TestPreviewsHaveTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, production := w.wanted(w.deployed(deploy.Trigger{}))
	if production["DATABASE_URL"] == "" || production["LIVE"] != "1" {
		t.Fatalf("production: %v", production)
	}
	fork, env := w.wanted(w.deployed(deploy.Trigger{Branch: "patch", Pull: 7, Fork: true, Commit: strings.Repeat("a", 40)}))
	for _, k := range []string{"DATABASE_URL", "DB_PASSWORD", "BOTH", "LIVE"} {
		if env[k] != "" {
			t.Errorf("a fork has %s", k)
		}
	}
	if fork.Spec.Database || !fork.Spec.Isolated || fork.Spec.Mail || len(fork.Spec.Storage) != 1 || !fork.Spec.Storage[0].Temporary {
		t.Errorf("a fork: %+v", fork.Spec)
	}
	urls, stores := []string{production["DATABASE_URL"]}, []string{""}
	var feature deployment.ID
	for i, x := range []deploy.Trigger{{Branch: "feature"}, {Branch: "other"}, {Branch: "third", Pull: 8}} {
		id := w.deployed(x)
		if i == 0 {
			feature = id
		}
		want, env := w.wanted(id)
		if env["DATABASE_URL"] == "" || slices.Contains(urls, env["DATABASE_URL"]) || !want.Spec.Database {
			t.Errorf("%+v has the database %q of %q", x, env["DATABASE_URL"], urls)
		}
		if slices.Contains(stores, want.Spec.Preview) || want.Spec.Isolated || want.Spec.Storage[0].Temporary {
			t.Errorf("%+v has the storage %q of %q", x, want.Spec.Preview, stores)
		}
		if env["LIVE"] != "" || env["BOTH"] != "1" {
			t.Errorf("%+v: %v", x, env)
		}
		urls, stores = append(urls, env["DATABASE_URL"]), append(stores, want.Spec.Preview)
	}
	if want, env := w.wanted(w.deployed(deploy.Trigger{
		Branch: "feature",
	})); env["DATABASE_URL"] != urls[1] || want.Spec.Preview != stores[1] {
		t.Errorf("the branch's next deployment has %q and %q", env["DATABASE_URL"], want.Spec.Preview)
	}
	if _, env := w.wanted(w.deployed(deploy.Trigger{
		Branch: "fork",
		Pull:   8,
		Fork:   true,
		Commit: strings.Repeat("a", 40),
	})); env["DATABASE_URL"] != "" {
		t.Error("a fork has the database of the branch's preview")
	}
	w.setPreviewDatabase("none")
	if want, env := w.wanted(feature); env["DATABASE_URL"] != "" || want.Spec.Database {
		t.Errorf("without databases of previews: %v", env)
	}
	w.setPreviewDatabase("copy")
	if _, env := w.wanted(feature); env["DATABASE_URL"] != urls[1] {
		t.Errorf("the preview has another database than before: %v", env)
	}
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := preview.EndTx(t.Context(), tx, w.site.ID, "feature"); return err }))
	if want, env := w.wanted(feature); env["DATABASE_URL"] != "" || want.Spec.Database || !want.Spec.Isolated {
		t.Errorf("of a preview that has ended: %v %+v", env, want.Spec)
	}
}
