package launch

import (
	"context"
	"net"

	"slipway/internal/platform/db"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// Ways are where programs of this node get to beside public addresses. They are a runtime.Ways.
type Ways struct {
	Databases *database.Databases
	WordPress *wordpress.WordPress
	Mail      *mail.Relay // nil: none
}

// DatabaseSocket opens the way from a site's programs to its databases.
func (w *Ways) DatabaseSocket(ctx context.Context, s runtime.Spec) (socket string, done func(), err error) {
	return w.Databases.Socket(ctx, database.Client{Owner: s.Owner, Site: s.Site, Preview: s.Preview})
}

// ServeMail takes what a site's programs send.
func (w *Ways) ServeMail(ctx context.Context, id site.ID, l net.Listener) {
	if w.Mail == nil {
		l.Close()
		return
	}
	w.Mail.Serve(ctx, string(id), l)
}

// Changed hears that a command of a site has ended, which may have changed what its WordPress stores.
func (w *Ways) Changed(id site.ID) { w.WordPress.Changed(id) }

// Senders are the sites whose programs send mails. They are a mail.Senders.
type Senders struct {
	DB    *db.DB
	Sites *site.Sites
	Apps  *app.Apps
}

// Note writes why a mail was not taken into the site's log.
func (s Senders) Note(sender, line string) { s.Apps.Note(site.ID(sender), line) }

// OwnerOf is who pays for what a site takes; its id where that can't be read.
func (s Senders) OwnerOf(ctx context.Context, id string) string {
	x, err := s.Sites.ByID(ctx, s.DB, site.ID(id))
	if err != nil {
		return id
	}
	return string(x.Owner)
}
