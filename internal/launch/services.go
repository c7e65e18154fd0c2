package launch

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/program/app"
	"slipway/internal/program/redis"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// addDatabases adds the variables and sockets of a program's databases: the site's own in production, others in
// previews, and none if isolated. The site's own variables with these names take precedence.
func (l *Launch) addDatabases(ctx context.Context, w *app.Wanted, p *program) error {
	env, secrets, err := l.databases(ctx, p)
	if err == nil && !p.Isolated && p.Preview == "" {
		w.Missing = l.c.Databases.Missing(ctx, w.Site)
	}
	if err != nil || len(env) == 0 {
		return err
	}
	w.Spec.Database, w.Pinned = true, l.c.Databases.Private()
	for k, v := range env {
		if _, set := p.Env[k]; !set {
			p.Env[k] = v
		}
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

func (l *Launch) databases(ctx context.Context, p *program) (env map[string]string, secrets []string, err error) {
	switch {
	case p.Isolated:
		return nil, nil, nil
	case p.Preview == "":
		return l.c.Databases.Env(ctx, p.Site.ID)
	}
	begin, err := l.c.Git.PreviewDatabase(ctx, p.Site.ID)
	if err != nil || begin == "none" {
		return nil, nil, err
	}
	return l.c.Databases.PreviewEnv(ctx, p.Site.ID, p.Preview, begin == "copy")
}

// addRedis adds the variables and socket of the operator's Redis server, unless the site sets one of the variables.
// Previews have their own keys, and isolated programs get no Redis.
func (l *Launch) addRedis(w *app.Wanted, p *program) {
	if l.c.Redis == nil || p.Isolated || p.Runtime == framework.WordPress {
		return
	}
	port := strconv.Itoa(runtime.RedisPort)
	env := map[string]string{
		"REDIS_URL": "redis://127.0.0.1:" + port, "REDIS_HOST": "127.0.0.1", "REDIS_PORT": port,
		"REDIS_PREFIX": redis.Client{Site: p.Site.ID, Preview: p.Store}.Prefix(),
	}
	for k := range env {
		if _, set := p.Env[k]; set {
			return
		}
	}
	maps.Copy(p.Env, env)
	w.Spec.RedisServer = true
}

// addWordPress adds the environment of a WordPress. The site's variables can't override it.
func (l *Launch) addWordPress(ctx context.Context, w *app.Wanted, p *program) error {
	if p.Runtime != framework.WordPress {
		return nil
	}
	if p.Isolated || p.Preview != "" { // these have no database of their own
		return site.NoPreviews
	}
	address, err := l.c.WordPress.Address(ctx, p.Site)
	if err != nil {
		return err
	}
	env, secrets, revision, err := l.c.WordPress.Environment(ctx, p.Site.ID, address)
	if err != nil {
		return err
	}
	w.Revision = revision
	w.Spec.Redis = env[wordpress.ObjectCacheOn] != "" && l.c.WordPress.NoObjectCache() == ""
	if w.Spec.Redis && l.c.Redis != nil {
		w.Spec.RedisServer, env["SLIPWAY_REDIS_PREFIX"] = true, redis.Client{Site: p.Site.ID}.Prefix()
	}
	if slices.ContainsFunc(p.Content, func(folder string) bool { return !strings.Contains(folder, "/") }) {
		env["SLIPWAY_WP_MANAGED"] = "1" // a single theme allows installing others
	}
	for _, own := range []string{address, l.c.Sites.URL(p.Site.Slug)} {
		own = ownAddress(own)
		if own != "" && !slices.Contains(w.Spec.Own, own) {
			w.Spec.Own = append(w.Spec.Own, own)
		}
	}
	if l.c.Mailer != nil {
		w.Spec.Mail, env["SLIPWAY_WP_MAIL"] = true, strconv.Itoa(runtime.MailPort)
	}
	for k, v := range env {
		if _, set := p.Env[k]; !set || k != wordpress.EnvironmentType {
			p.Env[k] = v
		}
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

// ownAddress returns the host and port of a site's URL.
func ownAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
}
