package wordpress

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Export holds what a backup has of a WordPress besides its files and its database. It has
// no secret: what comes back gets new ones, and everybody logs in again.
type Export struct {
	Title       string `json:"title"`
	AdminEmail  string `json:"adminEmail"`
	AdminUser   string `json:"adminUser"`
	Locale      string `json:"locale"`
	Installed   string `json:"installed"`
	XMLRPC      bool   `json:"xmlrpc"`
	Debug       bool   `json:"debug"`
	Maintenance bool   `json:"maintenance"`
	Memory      int64  `json:"memoryMiB"`
	Upload      int64  `json:"uploadMiB"`
	Execution   int64  `json:"executionSeconds"`
	Prefix      string `json:"tablePrefix,omitempty"` // empty: wp_
	AutoUpdate  string `json:"autoUpdate,omitempty"`  // empty: off
	ObjectCache bool   `json:"objectCache,omitempty"`

	Network string  `json:"network,omitempty"`     // Subfolder or Subdomain; empty: it is none
	Content *string `json:"contentHost,omitempty"` // the primary domain that the content names. nil: not known
}

// Export returns an Export as JSON: what is stored of a site's WordPress, nil where it is none.
func (w *WordPress) Export(ctx context.Context, id site.ID) (json.RawMessage, error) {
	x, err := w.get(ctx, w.c.DB, id)
	if fault.Is(err, fault.Conflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(Export{
		x.Title, x.AdminEmail, x.AdminUser, x.Locale, x.Installed, x.XMLRPC, x.Debug, x.Maintenance, x.Memory,
		x.Upload, x.Execution, x.Prefix, x.Auto, x.ObjectCache, x.Network, &x.Content,
	})
}

// ImportTx gives a site what of an export belongs to what is restored with it. Once its files and
// its database are in place it counts as installed; until then the next deployment would install it
// anew.
func (w *WordPress) ImportTx(ctx context.Context, tx *db.Tx, s site.Site, text json.RawMessage, of backup.Restored) error {
	if s.Type != site.WordPress {
		return nil
	}
	var e Export
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("read WordPress of backup: %w", err)
	}
	_, err := w.get(ctx, tx, s.ID)
	if fault.Is(err, fault.Conflict) {
		err = w.CreateTx(ctx, tx, s, Settings{
			Title:      e.Title,
			AdminEmail: e.AdminEmail,
			AdminUser:  e.AdminUser,
			Locale:     e.Locale,
		}, e.AdminEmail)
	}
	if err == nil && of.Settings {
		_, err = tx.Exec(ctx, `
			UPDATE wordpress_sites SET title = $2, admin_email = $3, admin_user = $4, locale = $5, xmlrpc = $6, debug = $7, maintenance = $8,
			memory_mib = $9, upload_mib = $10, execution_seconds = $11, auto_update = $12, object_cache = $13
			WHERE site_id = $1`, s.ID, e.Title, e.AdminEmail, e.AdminUser, e.Locale, e.XMLRPC, e.Debug, e.Maintenance, e.Memory, e.Upload,
			e.Execution, cmp.Or(e.AutoUpdate, AutoOff), e.ObjectCache)
	}
	if err == nil && of.Databases { // the tables are those of the export, whoever's settings there are
		content := oldContent
		switch {
		case of.New: // what made the site rewrites them
			content = ""
		case e.Content != nil:
			content = *e.Content
		}
		_, err = tx.Exec(ctx, `UPDATE wordpress_sites SET table_prefix = $2, content_host = $3, network = $4,
			readdress_at = 0, readdress_wait = 0 WHERE site_id = $1`, s.ID, cmp.Or(e.Prefix, "wp_"), content, e.Network)
	}
	if err != nil {
		return fmt.Errorf("import WordPress settings: %w", err)
	}
	tx.AfterCommit(func() { w.cache.Purge(s.ID, "*"); w.Forget() })
	if !of.New {
		return nil
	}
	list, err := w.c.Databases.List(ctx, tx, s.Owner, s.ID)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Name == DatabaseName {
			_, err = tx.Exec(
				ctx, `UPDATE wordpress_sites SET database_id = $2, installed = $3, next_cron = $4 WHERE site_id = $1`,
				s.ID, x.ID, e.Installed,
				db.Now()+60_000,
			)
		}
	}
	if err != nil {
		return fmt.Errorf("import WordPress settings: %w", err)
	}
	return nil
}
