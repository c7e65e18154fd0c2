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

// ways are where programs of this node get to beside public addresses. They are a runtime.Ways.
type ways struct {
	databases *database.Databases
	wordpress *wordpress.WordPress
	mail      *mail.Relay  // nil: none
	redis     *redis.Redis // nil: none
}

func newWays(c Config) *ways {
	w := &ways{databases: c.Databases, wordpress: c.WordPress, redis: c.Redis}
	if c.Mailer != nil {
		w.mail = mail.NewRelay(mail.RelayConfig{Mailer: c.Mailer, Dir: c.Dir, Senders: senders{c.DB, c.Sites, c.Apps}})
	}
	return w
}

// DatabaseSocket opens the way from a site's programs to its databases.
func (w *ways) DatabaseSocket(ctx context.Context, s runtime.Spec) (socket string, done func(), err error) {
	return w.databases.Socket(ctx, database.Client{Owner: s.Owner, Site: s.Site, Preview: s.Preview})
}

// ServeMail takes what a site's programs send.
func (w *ways) ServeMail(ctx context.Context, id site.ID, l net.Listener) {
	if w.mail == nil {
		l.Close()
		return
	}
	w.mail.Serve(ctx, string(id), l)
}

// ServeRedis leads what a site's programs, or those of its preview, connect to the operator's Redis server.
func (w *ways) ServeRedis(ctx context.Context, s runtime.Spec, l net.Listener) {
	if w.redis == nil {
		l.Close()
		return
	}
	w.redis.Serve(ctx, redis.Client{Owner: s.Owner, Site: s.Site, Preview: s.Preview}, l)
}

// Changed hears that a command of a site has ended, which may have changed what its WordPress stores.
func (w *ways) Changed(id site.ID) { w.wordpress.Changed(id) }

// senders are the sites whose programs send mails. They are a mail.Senders.
type senders struct {
	db    *db.DB
	sites *site.Sites
	apps  *app.Apps
}

// Note writes why a mail was not taken into the site's log.
func (s senders) Note(sender, line string) { s.apps.Note(site.ID(sender), line) }

// OwnerOf is who pays for what a site takes; its id where that can't be read.
func (s senders) OwnerOf(ctx context.Context, id string) string {
	x, err := s.sites.ByID(ctx, s.db, site.ID(id))
	if err != nil {
		return id
	}
	return string(x.Owner)
}
