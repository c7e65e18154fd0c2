package launch

import (
	"context"
	"net"

	"slipway/internal/platform/db"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/redis"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// ways connects programs on this node to databases, mail and Redis. It implements [runtime.Ways].
type ways struct {
	databases *database.Databases
	wordpress *wordpress.WordPress
	mail      *mail.Relay  // nil without mail
	redis     *redis.Redis // nil without Redis
}

func newWays(c Config) *ways {
	w := &ways{databases: c.Databases, wordpress: c.WordPress, redis: c.Redis}
	if c.Mailer != nil {
		w.mail = mail.NewRelay(mail.RelayConfig{Mailer: c.Mailer, Dir: c.Dir, Senders: senders{c.DB, c.Sites, c.Apps}})
	}
	return w
}

// DatabaseSocket opens a socket from a site's programs to its databases.
func (w *ways) DatabaseSocket(ctx context.Context, s runtime.Spec) (socket string, done func(), err error) {
	return w.databases.Socket(ctx, database.Client{Owner: s.Owner, Site: s.Site, Preview: s.Preview})
}

// ServeMail accepts emails from a site's programs.
func (w *ways) ServeMail(ctx context.Context, id site.ID, l net.Listener) {
	if w.mail == nil {
		l.Close()
		return
	}
	w.mail.Serve(ctx, string(id), l)
}

// ServeRedis forwards connections of a site's or preview's programs to the operator's Redis server.
func (w *ways) ServeRedis(ctx context.Context, s runtime.Spec, l net.Listener) {
	if w.redis == nil {
		l.Close()
		return
	}
	w.redis.Serve(ctx, redis.Client{Owner: s.Owner, Site: s.Site, Preview: s.Preview}, l)
}

// Changed records that a site's command has ended, which may have changed WordPress's data.
func (w *ways) Changed(id site.ID) { w.wordpress.Changed(id) }

// senders looks up the sites whose programs send email. It implements [mail.Senders].
type senders struct {
	db    *db.DB
	sites *site.Sites
	apps  *app.Apps
}

// Note writes to the site's log why an email was refused.
func (s senders) Note(sender, line string) { s.apps.Note(site.ID(sender), line) }

// OwnerOf returns the owner of a site, or the site's id if it can't be read.
func (s senders) OwnerOf(ctx context.Context, id string) string {
	x, err := s.sites.ByID(ctx, s.db, site.ID(id))
	if err != nil {
		return id
	}
	return string(x.Owner)
}
