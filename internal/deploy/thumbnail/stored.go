package thumbnail

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Thumbnails makes, stores and finds thumbnails of live releases.
type Thumbnails struct {
	db       *db.DB
	releases *release.Releases
}

// New returns Thumbnails. It starts nothing: Work registers its job.
func New(d *db.DB, releases *release.Releases) *Thumbnails { return &Thumbnails{d, releases} }

// attempts is how often the process may crash during one thumbnail.
const attempts = 2

// Work registers the package's job.
func (t *Thumbnails) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Attempts: attempts, Formerly: "deploy.portray",
		GivenUp: func(ctx context.Context, args []byte, _ error) error { // store an empty one, so that it isn't requested again
			var p Draw
			if err := json.Unmarshal(args, &p); err != nil {
				return err
			}
			return t.store(ctx, p.Release, Thumbnail{})
		},
	}, t.draw)
}

// Summary is what a site's card shows, without the pictures.
type Summary struct {
	Release release.ID
	Title   string
	Text    string
	Color   string // #rrggbb, or empty
	Icon    bool   // whether there is an icon
	Image   bool
}

// Draw is the job that makes the thumbnail of a release that went live. It depends only on the release, so it may run
// again.
type Draw struct{ Release release.ID }

func (Draw) Kind() string { return "deploy.thumbnail" }

// DrawTx schedules the thumbnail of a release that went live. They are made one at a time, because decoding large
// pictures takes much memory.
func DrawTx(ctx context.Context, tx *db.Tx, id release.ID) error {
	_, err := job.Enqueue(ctx, tx, Draw{id}, job.Options{Unique: "thumbnail/" + string(id), Group: "thumbnail"})
	return err
}

// draw makes and stores a thumbnail.
func (t *Thumbnails) draw(ctx context.Context, p Draw, _ int64) error {
	var known bool
	err := t.db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM thumbnails WHERE release = $1)`, p.Release).Scan(&known)
	if err != nil || known {
		return err
	}
	tree, err := t.releases.Load(ctx, p.Release)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the release was deleted
	}
	if err != nil {
		return fmt.Errorf("draw thumbnail: %w", err)
	}
	var broken error
	got := Of(ctx, Files{
		Page: func(limit int64) []byte {
			a := tree.Resolve(rules.Request{Path: "/"})
			if a.Kind != release.Found || !strings.HasPrefix(a.File.Type, "text/html") {
				return nil
			}
			b, err := t.releases.Peek(ctx, a.File, limit)
			broken = errors.Join(broken, err)
			return b
		},
		File: func(path string, limit int64) []byte {
			f, ok := tree.Lookup(path)
			if !ok || f.Body.Size > limit {
				return nil
			}
			b, err := t.releases.Read(ctx, f, limit)
			broken = errors.Join(broken, err)
			return b
		},
	})
	if ctx.Err() != nil {
		return context.Cause(ctx) // interrupted; the job runs again after a restart
	}
	if broken != nil {
		return fmt.Errorf("draw thumbnail %s: %w", p.Release, broken)
	}
	return t.store(ctx, p.Release, got)
}

func (t *Thumbnails) store(ctx context.Context, id release.ID, got Thumbnail) error {
	return t.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`
			INSERT INTO thumbnails (release, title, text, color, icon, image, made_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (release) DO NOTHING`,
			id,
			got.Title,
			got.Text,
			got.Color,
			base64.StdEncoding.EncodeToString(got.Icon),
			base64.StdEncoding.EncodeToString(got.Image),
			db.Now(),
		)
		if err != nil {
			return fmt.Errorf("store thumbnail: %w", err)
		}
		return nil
	})
}

// Tidy deletes the thumbnails of releases that aren't live, and schedules missing ones.
func Tidy(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		// A thumbnail may have been made just before its release goes live for another site.
		_, err := tx.Exec(ctx,
			`DELETE FROM thumbnails WHERE made_at < $1 AND release NOT IN (SELECT live_release FROM open_sites)`,
			db.Now().Add(-time.Hour))
		if err != nil {
			return fmt.Errorf("delete thumbnails: %w", err)
		}
		rows, err := tx.Query(ctx, `
			SELECT DISTINCT live_release FROM open_sites
			WHERE live_release <> '' AND live_release NOT IN (SELECT release FROM thumbnails) LIMIT 500`)
		missing, err := db.Collect(rows, err, func(s db.Scanner) (id release.ID, err error) { return id, s.Scan(&id) })
		if err != nil {
			return fmt.Errorf("find missing thumbnails: %w", err)
		}
		for _, id := range missing {
			if err := DrawTx(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// OfSites returns the summaries of those of the owner's sites that have a thumbnail.
func (t *Thumbnails) OfSites(ctx context.Context, owner account.OwnerID, sites []site.ID) (map[site.ID]Summary, error) {
	out := map[site.ID]Summary{}
	if len(sites) == 0 {
		return out, nil
	}
	args := db.Args{owner}
	list := db.AddList(&args, sites)
	rows, err := t.db.Query(ctx, `
		SELECT s.id, p.release, p.title, p.text, p.color, p.icon <> '', p.image <> ''
		FROM open_sites s JOIN thumbnails p ON p.release = s.live_release
		WHERE s.owner_id = $1 AND s.id IN (`+list+`)`, args...)
	type found struct {
		site site.ID
		Summary
	}
	all, err := db.Collect(rows, err, func(s db.Scanner) (f found, err error) {
		return f, s.Scan(&f.site, &f.Release, &f.Title, &f.Text, &f.Color, &f.Icon, &f.Image)
	})
	if err != nil {
		return nil, fmt.Errorf("read thumbnails: %w", err)
	}
	for _, f := range all {
		out[f.site] = f.Summary
	}
	return out, nil
}

// IconOf returns the icon of the owner's live site and its media type, or a NotFound fault.
func (t *Thumbnails) IconOf(
	ctx context.Context,
	owner account.OwnerID,
	id site.ID,
	of release.ID,
) (icon []byte, mediaType string, err error) {
	icon, err = t.part(ctx, `SELECT p.icon`, owner, id, of)
	return icon, IconType(icon), err
}

// ImageOf returns the picture of the owner's live site as a JPEG, or a NotFound fault.
func (t *Thumbnails) ImageOf(ctx context.Context, owner account.OwnerID, id site.ID, of release.ID) ([]byte, error) {
	return t.part(ctx, `SELECT p.image`, owner, id, of)
}

func (t *Thumbnails) part(ctx context.Context, what string, owner account.OwnerID, id site.ID, of release.ID) ([]byte, error) {
	rows, err := t.db.Query(ctx, what+`
		FROM open_sites s JOIN thumbnails p ON p.release = s.live_release
		WHERE s.owner_id = $1 AND s.id = $2 AND p.release = $3`, owner, id, of)
	found, err := db.Collect(rows, err, func(s db.Scanner) (text string, err error) { return text, s.Scan(&text) })
	if err != nil {
		return nil, fmt.Errorf("read thumbnail: %w", err)
	}
	if len(found) == 0 || found[0] == "" {
		return nil, fault.Missing("page")
	}
	b, err := base64.StdEncoding.DecodeString(found[0])
	if err != nil {
		return nil, fmt.Errorf("read thumbnail of %s: %w", of, err)
	}
	return b, nil
}
