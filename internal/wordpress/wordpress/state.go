package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/core"
	"slipway/internal/wordpress/difference"
	"slipway/internal/wordpress/guard"
)

// State is how a site's WordPress is.
type State struct {
	Version, LatestVersion, PHPVersion, Title, Locale, AdminURL string
	Maintenance, Debug, XMLRPC                                  bool
	Memory, Upload, Execution                                   int64
	Plugins, Themes                                             []Extension
	AutoUpdate                                                  string
	ObjectCache                                                 ObjectCache
	DatabaseBytes, DiskBytes                                    int64
	Content                                                     difference.Content
	PageCache                                                   guard.PageCache
	Network                                                     string
	Managed                                                     bool // plugins and themes come from a repository
}

// facts are what a WordPress says of itself. They are stored, so that they can be shown without waking it.
type facts struct {
	Version, PHPVersion, Title, Locale, AdminURL string
	Plugins, Themes                              []Extension
	ObjectCache                                  *told
	Content                                      difference.Content
	Managed                                      bool
	Admins                                       []string
	DiskBytes                                    int64 // ours: of wp-content
}

// automatic returns how many plugins and themes are updated by themselves.
func (f facts) automatic() (n int) {
	for _, x := range slices.Concat(f.Plugins, f.Themes) {
		if x.AutoUpdate {
			n++
		}
	}
	return n
}

// maxAdmins caps how many administrators are stored of a site.
const maxAdmins = 20

// maxFacts bounds what is stored of a site, in bytes. A WordPress with more to say is asked each time.
const maxFacts = 256 << 10

// Read asks the owner's WordPress how it is, waking it where it sleeps, and stores what it says.
func (w *WordPress) Read(ctx context.Context, owner account.OwnerID, id site.ID) (State, error) {
	s, x, err := w.ofOwner(ctx, owner, id)
	if err != nil {
		return State{}, err
	}
	f, err := w.learn(ctx, s)
	if err != nil {
		return State{}, err
	}
	return w.state(ctx, owner, x, f)
}

// Stored returns how the owner's WordPress was when it last said so, and when that was. It wakes nothing.
// Settings and versions on offer are those of now. at is 0 if nothing is stored.
func (w *WordPress) Stored(ctx context.Context, owner account.OwnerID, id site.ID) (st State, at db.Time, err error) {
	_, x, err := w.ofOwner(ctx, owner, id)
	if err != nil {
		return State{}, 0, err
	}
	var text string
	if err := w.c.DB.QueryRow(ctx, `SELECT facts, facts_at FROM wordpress_sites WHERE site_id = $1`, id).Scan(&text, &at); err != nil {
		return State{}, 0, fmt.Errorf("read facts of WordPress: %w", err)
	}
	var f facts
	if text == "" || json.Unmarshal([]byte(text), &f) != nil { // a previous version's: asked for again
		at, f = 0, facts{}
	}
	st, err = w.state(ctx, owner, x, f)
	return st, at, err
}

// ofOwner returns the owner's site, which must be live, and what is stored of it.
func (w *WordPress) ofOwner(ctx context.Context, owner account.OwnerID, id site.ID) (s site.Site, x row, err error) {
	if s, err = w.c.Sites.Get(ctx, owner, id); err == nil {
		err = w.live(s)
	}
	if err == nil {
		x, err = w.get(ctx, w.c.DB, id)
	}
	return s, x, err
}

// learn asks a WordPress for its facts and stores them.
func (w *WordPress) learn(ctx context.Context, s site.Site) (f facts, err error) {
	return w.learnSince(ctx, s, 0, false)
}

// learnSince is learn that also counts what is newer than since, and reads digests of the options where they are
// to be compared. Neither is stored.
func (w *WordPress) learnSince(ctx context.Context, s site.Site, since db.Time, compare bool) (f facts, err error) {
	at := db.Now()
	in := map[string]any{"content": true, "since": int64(since) / 1000, "compare": compare}
	if err := w.task(ctx, s, s.LiveDeployment, "info", in, &f); err != nil {
		return f, err
	}
	f.Content.Bound()
	f.Admins = f.Admins[:min(len(f.Admins), maxAdmins)]
	for i, name := range f.Admins {
		f.Admins[i] = text.Line(name, 60)
	}
	f.Content.Files, _ = w.tree(s).Count(ctx)
	if f.DiskBytes = w.disk(ctx, s.ID); f.DiskBytes == 0 && f.Content.Files != nil {
		f.DiskBytes = f.Content.Files.Bytes
	}
	stored := f
	stored.Content = f.Content.WithoutComparison()
	encoded, err := json.Marshal(stored)
	if err != nil || len(encoded) > maxFacts {
		return f, err
	}
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET facts = $2, facts_at = $3, auto_extensions = $4 WHERE site_id = $1 AND facts_at < $3`,
			s.ID, string(encoded), at, f.automatic())
		return err
	})
	if err != nil {
		return f, fmt.Errorf("store facts of WordPress: %w", err)
	}
	return f, nil
}

// learnTime is how long an operation that has ended waits for WordPress to say what has changed.
const learnTime = 20 * time.Second

// relearn stores the facts of a site that an operation has changed. One that doesn't answer keeps those from
// before: pages show how old they are.
func (w *WordPress) relearn(ctx context.Context, owner account.OwnerID, id site.ID) {
	ctx, done := context.WithTimeout(ctx, learnTime)
	defer done()
	s, _, err := w.ofOwner(ctx, owner, id)
	if err == nil {
		_, err = w.learn(ctx, s)
	}
	if err != nil {
		w.c.Log.InfoContext(ctx, "what WordPress says after an operation is not known", "site", id, "err", err)
	}
}

// state returns facts with what is ours.
func (w *WordPress) state(ctx context.Context, owner account.OwnerID, x row, f facts) (State, error) {
	st := State{
		Version: f.Version, PHPVersion: f.PHPVersion, Title: f.Title, Locale: f.Locale, AdminURL: f.AdminURL,
		Maintenance: x.Maintenance, Debug: x.Debug, XMLRPC: x.XMLRPC,
		Memory: x.Memory, Upload: x.Upload, Execution: x.Execution,
		Plugins: f.Plugins, Themes: f.Themes,
		AutoUpdate:  x.Auto,
		ObjectCache: w.objectCache(x.ObjectCache, f.ObjectCache),
		DiskBytes:   f.DiskBytes,
		Content:     f.Content,
		PageCache:   readPageCache(x.PageCache),
		Network:     x.Network,
		Managed:     f.Managed,
	}
	var err error
	if st.LatestVersion, err = core.Newest(ctx, w.c.DB); err != nil {
		return st, fmt.Errorf("find WordPress: %w", err)
	}
	if d, err := w.c.Databases.Get(ctx, w.c.DB, owner, x.Database); err == nil {
		st.DatabaseBytes = d.Size
	}
	return st, nil
}
