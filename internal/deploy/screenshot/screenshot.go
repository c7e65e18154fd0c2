// Package screenshot owns pictures of sites as visitors see them. A browser installed on the host opens a site's first
// page in a sandbox.
//
// The sandbox limits the browser's memory, time, processes and disk, and it reaches only the page's own site, at this
// machine's edge. It has no cookies or credentials, so it sees what every visitor sees. A site that requires a password
// or a login has no picture, not even one from before. The browser's output is decoded within limits and encoded again.
// One picture is taken at a time, and owners take turns.
package screenshot

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"slipway/internal/edge/access"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// QueueName is the job queue of pictures. A process takes one at a time.
const QueueName = "screenshots"

// Kind says what a picture shows.
type Kind string

// The kinds: the live site, and the site before and after the last WordPress update.
const (
	Live   Kind = "live"
	Before Kind = "before"
	After  Kind = "after"
)

// Users returns the uid of each site's processes.
type Users interface {
	UID(ctx context.Context, site site.ID) (int, error)
}

// Config holds what Screenshots need.
type Config struct {
	DB     *db.DB
	Sites  *site.Sites
	Camera *Camera // Optional: nil disables pictures.
	Users  Users   // Required with Camera.
	Log    *slog.Logger
}

// Screenshots takes, stores and finds pictures of sites.
type Screenshots struct{ c Config }

// New returns Screenshots. It starts nothing: Work registers its job.
func New(c Config) *Screenshots {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Screenshots{c}
}

// settle is the delay of the picture after a deployment, so that several in a row need only one.
const settle = 5 * time.Second

// shoot is the job that takes the picture of a live site. It may run again: the picture is of what is live then.
type shoot struct{ Site site.ID }

func (shoot) Kind() string { return "deploy.screenshot" }

// TakeTx schedules a picture of a site that has changed.
func TakeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) error {
	_, err := job.Enqueue(ctx, tx, shoot{id}, job.Options{
		Queue: QueueName, Unique: "screenshot/" + string(id), Share: string(owner), At: db.Now().Add(settle),
	})
	return err
}

// Work registers this service's job.
func (s *Screenshots) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Attempts: 2,
		GivenUp: func(ctx context.Context, args []byte, _ error) error { // the old picture shows an earlier version
			var x shoot
			if err := json.Unmarshal(args, &x); err != nil {
				return err
			}
			return s.store(ctx, x.Site, Live, nil)
		},
	}, func(ctx context.Context, x shoot, _ int64) error { return s.Take(ctx, x.Site, Live) })
}

// target is a site to take a picture of.
type target struct {
	label, owner string
	hosts        []string
	live, open   bool
}

// Take takes a picture of the site as visitors see it now, and replaces the last one of its kind. It deletes that one
// if not everyone can see the site, or the site doesn't answer with a page.
func (s *Screenshots) Take(ctx context.Context, id site.ID, kind Kind) error {
	if s == nil || !s.c.Camera.Ready() {
		return nil
	}
	t, err := s.find(ctx, id)
	if err != nil || !t.live {
		return err
	}
	var picture []byte
	if t.open {
		page := s.c.Sites.URL(t.label) + "/"
		if page, err = s.c.Camera.shown(ctx, page, t.hosts); err == nil {
			var uid int
			if uid, err = s.c.Users.UID(ctx, id); err != nil {
				return fmt.Errorf("take picture of %s: %w", id, err)
			}
			picture, err = s.c.Camera.Take(ctx, uid, page, t.hosts)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // interrupted; the job runs again after a restart
		}
		if err != nil { // usually the site's own fault
			s.c.Log.InfoContext(ctx, "no picture of site", "site", id, "err", err)
		}
	}
	return s.store(ctx, id, kind, picture)
}

// find returns a site's hosts and whether everyone can see it.
func (s *Screenshots) find(ctx context.Context, id site.ID) (t target, err error) {
	var label, owner, release, serving, status string
	rows, err := s.c.DB.Query(ctx, `
		SELECT s.subdomain, s.owner_id, s.live_release, s.status, COALESCE(v.settings, '')
		FROM open_sites s LEFT JOIN serving v ON v.site_id = s.id WHERE s.id = $1`, id)
	found, err := db.Collect(rows, err, func(r db.Scanner) (struct{}, error) {
		return struct{}{}, r.Scan(&label, &owner, &release, &status, &serving)
	})
	if err != nil {
		return t, fmt.Errorf("find site to take a picture of: %w", err)
	}
	if len(found) == 0 {
		return t, nil
	}
	t = target{label: label, owner: owner, live: release != "" && status != "stopped", open: open(serving)}
	rows, err = s.c.DB.Query(ctx, `SELECT host FROM custom_hosts WHERE site_id = $1 ORDER BY host LIMIT 100`, id)
	t.hosts, err = db.Collect(rows, err, func(r db.Scanner) (host string, err error) { return host, r.Scan(&host) })
	if err != nil {
		return t, fmt.Errorf("find hosts of site: %w", err)
	}
	t.hosts = append(t.hosts, hostOf(s.c.Sites.URL(label)))
	return t, nil
}

// open reports whether these settings let everyone see a site. It is false if they can't be read.
func open(serving string) bool {
	if serving == "" {
		return true
	}
	var s access.Settings
	return json.Unmarshal([]byte(serving), &s) == nil && !s.Protects(false)
}

func (s *Screenshots) store(ctx context.Context, id site.ID, kind Kind, picture []byte) error {
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO screenshots (site_id, kind, image, made_at) SELECT id, $2, $3, $4 FROM open_sites WHERE id = $1
			ON CONFLICT (site_id, kind) DO UPDATE SET image = excluded.image, made_at = excluded.made_at`,
			id, kind, base64.StdEncoding.EncodeToString(picture), db.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("store picture of %s: %w", id, err)
	}
	return nil
}

// Forget deletes a site's pictures of the given kinds.
func (s *Screenshots) Forget(ctx context.Context, id site.ID, kinds ...Kind) error {
	if s == nil {
		return nil
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, k := range kinds {
			if _, err := tx.Exec(ctx, `DELETE FROM screenshots WHERE site_id = $1 AND kind = $2`, id, k); err != nil {
				return fmt.Errorf("delete picture of %s: %w", id, err)
			}
		}
		return nil
	})
}

// Tidy deletes the pictures of deleted sites.
func Tidy(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM screenshots WHERE site_id NOT IN (SELECT id FROM open_sites)`); err != nil {
			return fmt.Errorf("delete pictures: %w", err)
		}
		return nil
	})
}

// Found identifies a stored picture. Its time tells it from earlier ones.
type Found struct {
	Kind   Kind
	MadeAt db.Time
}

// OfSites returns the stored pictures of those of the owner's sites that everyone may see.
func (s *Screenshots) OfSites(ctx context.Context, owner account.OwnerID, sites []site.ID) (map[site.ID][]Found, error) {
	out := map[site.ID][]Found{}
	if s == nil || len(sites) == 0 {
		return out, nil
	}
	args := db.Args{owner}
	list := db.AddList(&args, sites)
	rows, err := s.c.DB.Query(ctx, `
		SELECT s.id, p.kind, p.made_at, COALESCE(v.settings, '')
		FROM open_sites s JOIN screenshots p ON p.site_id = s.id LEFT JOIN serving v ON v.site_id = s.id
		WHERE s.owner_id = $1 AND p.image <> '' AND s.id IN (`+list+`)`, args...)
	_, err = db.Collect(rows, err, func(r db.Scanner) (struct{}, error) {
		var id site.ID
		var f Found
		var serving string
		err := r.Scan(&id, &f.Kind, &f.MadeAt, &serving)
		if err == nil && open(serving) {
			out[id] = append(out[id], f)
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read pictures of sites: %w", err)
	}
	return out, nil
}

// ImageOf returns a picture of the owner's site as a JPEG, or a NotFound fault.
func (s *Screenshots) ImageOf(ctx context.Context, owner account.OwnerID, id site.ID, kind Kind) ([]byte, error) {
	if s == nil {
		return nil, fault.Missing("page")
	}
	rows, err := s.c.DB.Query(ctx, `
		SELECT p.image, COALESCE(v.settings, '')
		FROM open_sites s JOIN screenshots p ON p.site_id = s.id LEFT JOIN serving v ON v.site_id = s.id
		WHERE s.owner_id = $1 AND s.id = $2 AND p.kind = $3 AND p.image <> ''`, owner, id, kind)
	found, err := db.Collect(rows, err, func(r db.Scanner) (x [2]string, err error) { return x, r.Scan(&x[0], &x[1]) })
	if err != nil {
		return nil, fmt.Errorf("read picture of %s: %w", id, err)
	}
	if len(found) == 0 || !open(found[0][1]) {
		return nil, fault.Missing("page")
	}
	b, err := base64.StdEncoding.DecodeString(found[0][0])
	if err != nil {
		return nil, fmt.Errorf("read picture of %s: %w", id, err)
	}
	return b, nil
}

func hostOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")
	return host
}

var errElsewhere = errors.New("the site sends its visitors elsewhere")
