package launch

import (
	"strings"
	"testing"

	"slipway/internal/deploy/deploy"
	"slipway/internal/platform/db"
	"slipway/internal/program/app"
	"slipway/internal/program/redis"
	"slipway/internal/tenant/site"
)

// Production and each preview use the operator's Redis server with their own prefixes. Forks can't use it, and a site
// with its own REDIS_URL keeps that.
func TestRedisOfPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if want, env := w.wanted(w.deployed(deploy.Trigger{})); want.Spec.RedisServer || env["REDIS_URL"] != "" {
		t.Errorf("without a server: %v", env)
	}
	var err error
	w.c.Redis, err = redis.Open(t.Context(), "redis://:secret@127.0.0.1:1", &app.Apps{}, nil)
	ok(t, err)
	production, env := w.wanted(w.deployed(deploy.Trigger{}))
	if !production.Spec.RedisServer || env["REDIS_URL"] != "redis://127.0.0.1:36379" || env["REDIS_PREFIX"] != string(w.site.ID)+":" {
		t.Errorf("production: %v", env)
	}
	feature, env := w.wanted(w.deployed(deploy.Trigger{Branch: "feature"}))
	if !feature.Spec.RedisServer || env["REDIS_PREFIX"] != string(w.site.ID)+"."+feature.Spec.Preview+":" || feature.Spec.Preview == "" {
		t.Errorf("a preview: %v", env)
	}
	fork, env := w.wanted(w.deployed(deploy.Trigger{Branch: "patch", Pull: 7, Fork: true, Commit: strings.Repeat("a", 40)}))
	if fork.Spec.RedisServer || env["REDIS_URL"] != "" || env["REDIS_PREFIX"] != "" {
		t.Errorf("a fork: %v", env)
	}
	ok(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Sites.SetEnvTx(t.Context(), tx, anna, w.site.ID, []site.NewVar{
			{Key: "REDIS_HOST", Value: "redis.example.net", Target: []string{"runtime"}},
		})
		return err
	}))
	own, env := w.wanted(w.deployed(deploy.Trigger{}))
	if own.Spec.RedisServer || env["REDIS_HOST"] != "redis.example.net" || env["REDIS_URL"] != "" || env["REDIS_PREFIX"] != "" {
		t.Errorf("with one of the site's own: %v", env)
	}
}
