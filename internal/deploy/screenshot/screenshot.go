// Package screenshot owns pictures of sites as visitors see them: a browser of the host, where it has one, opens the first page of a
// site in a sandbox, and what it has drawn is stored.
//
// Whatever a page does stays inside: the browser has a limit of memory, time, processes and disk, and reaches nothing but the edge of
// this machine under the names of the page's own site. It comes without cookies or credentials, so it sees what everybody sees; a site
// whose visitors must give a password or sign in has no picture, also none from before it asked for that. What the browser has left is
// decoded within limits and encoded again. One picture is taken at a time, and the sites of all owners take turns.
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

// QueueName is the queue of the jobs that take pictures. A process works on one at a time.
const QueueName = "screenshots"

// Kind says what a picture shows.
type Kind string

// The kinds: the site as it is live, and before and after the last update of its WordPress.
const (
	Live   Kind = "live"
	Before Kind = "before"
	After  Kind = "after"
)

// Users gives each site the uid that its processes have.
type Users interface {
	UID(ctx context.Context, site site.ID) (int, error)
}

// Config holds what Screenshots need.
type Config struct {
	DB     *db.DB
	Sites  *site.Sites
	Camera *Camera // Optional: without it no pictures are taken.
	Users  Users   // Required with Camera.
	Log    *slog.Logger
}

// Screenshots takes, stores and finds pictures.
type Screenshots struct{ c Config }

// New returns Screenshots. It starts nothing: Work registers its job.
func New(c Config) *Screenshots {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Screenshots{c}
}

// settle is how long after a deployment the picture is taken: several in a row need one.
const settle = 5 * time.Second

// shoot is the job that takes the picture of a live site. The picture is of what is live then, so once more does no harm.
type shoot struct{ Site site.ID }

// Kind names the job.
func (shoot) Kind() string { return "deploy.screenshot" }

// TakeTx asks for a picture of a site that has changed.
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
		GivenUp: func(ctx context.Context, args []byte, _ error) error { // the last one shows what is no longer there
			var x shoot
			if err := json.Unmarshal(args, &x); err != nil {
				return err
			}
			return s.store(ctx, x.Site, Live, nil)
		},
	}, func(ctx context.Context, x shoot, _ int64) error { return s.Take(ctx, x.Site, Live) })
}

// target is the site to take a picture of.
type target struct {
	label, owner string
	hosts        []string
	live, open   bool
}

// Take takes a picture of the site as visitors see it now, and stores it in the place of the last one of its kind. A site that can't be
// seen by everybody, or doesn't answer with a page, has none afterwards.
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
			return context.Cause(ctx) // it was cut short; the next start does it again
		}
		if err != nil { // the site's own doing, mostly
			s.c.Log.InfoContext(ctx, "no picture of site", "site", id, "err", err)
		}
	}
	return s.store(ctx, id, kind, picture)
}

// find reads what of a site can be seen, and under which names.
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

// open reports whether everybody may see a site with these settings. Those that can't be read say no.
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

// Forget deletes the pictures of these kinds of a site.
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

// Tidy deletes the pictures of sites that are deleted.
func Tidy(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM screenshots WHERE site_id NOT IN (SELECT id FROM open_sites)`); err != nil {
			return fmt.Errorf("delete pictures: %w", err)
		}
		return nil
	})
}

// Found names a stored picture: its time tells it from an earlier one.
type Found struct {
	Kind   Kind
	MadeAt db.Time
}

// OfSites returns which pictures there are of the owner's sites that everybody may see.
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

// ImageOf returns a picture of the owner's site, a JPEG, or a NotFound fault.
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
