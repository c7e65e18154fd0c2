package launch

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"

	"slipway/internal/app"
	"slipway/internal/framework"
	"slipway/internal/runtime"
	"slipway/internal/wordpress"
)

// addDatabases adds the variables of the site's databases, and the way to them. The
// owner's own variables of the same name win.
func (l *Launch) addDatabases(ctx context.Context, w *app.Wanted, p *program) error {
	env, secrets, err := l.c.Databases.Env(ctx, w.Site)
	if err != nil || len(env) == 0 {
		return err
	}
	w.Spec.Database = true
	for k, v := range env {
		if _, set := p.Env[k]; !set {
			p.Env[k] = v
		}
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

// addWordPress adds what a WordPress finds in its environment. Nothing that the owner sets
// takes its place.
func (l *Launch) addWordPress(ctx context.Context, w *app.Wanted, p *program) error {
	if p.Runtime != framework.WordPress {
		return nil
	}
	address, err := l.c.Address(ctx, p.Site)
	if err != nil {
		return err
	}
	env, secrets, err := l.c.WordPress.Environment(ctx, p.Site.ID, address)
	if err != nil {
		return err
	}
	w.Spec.Redis = env[wordpress.ObjectCacheOn] != "" && l.c.WordPress.NoObjectCache() == ""
	if len(p.Content) > 0 {
		env["SLIPWAY_WP_MANAGED"] = "1"
	}
	for _, own := range []string{address, l.c.Sites.URL(p.Site.Slug)} {
		if own = ownAddress(own); own != "" && !slices.Contains(w.Spec.Own, own) {
			w.Spec.Own = append(w.Spec.Own, own)
		}
	}
	if l.c.Mail {
		w.Spec.Mail, env["SLIPWAY_WP_MAIL"] = true, strconv.Itoa(runtime.MailPort)
	}
	for k, v := range env {
		p.Env[k] = v
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

// ownAddress is the host and port of a site's URL.
func ownAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
}
