package wordpress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

const (
	addressEvery = 5 * time.Second  // finds what a lost wake-up left
	addressAgain = 10 * time.Minute // after a rewriting failed once; twice as long after each further failure
	addressMost  = 24 * time.Hour   // limits addressAgain
	maxOldHosts  = 20               // of a site
	newAddress   = "-"              // of a site whose domain has not been looked at
	oldContent   = "?"              // of a site whose content may name any domain that it had
)

// addressed is a site whose primary domain is another one than its program or its content knows. Empty is the site's own address.
type addressed struct {
	site                   site.ID
	owner                  account.OwnerID
	knows, names, old, now string
}

// followAddresses tells every WordPress what its primary domain is: first its program, then its content. It runs until ctx ends.
func (w *WordPress) followAddresses(ctx context.Context) {
	wake, stop := w.c.DB.Listen("live")
	defer stop()
	tick := time.NewTicker(addressEvery)
	defer tick.Stop()
	for {
		if err := w.readdress(ctx); err != nil && ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "primary domains of WordPress sites not read", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
	}
}

func (w *WordPress) readdress(ctx context.Context) error {
	rows, err := w.c.DB.Query(ctx, `
		SELECT w.site_id, w.owner_id, w.host, w.content_host, w.old_hosts, COALESCE(p.host, '')
		FROM wordpress_sites w JOIN open_sites s ON s.id = w.site_id LEFT JOIN primary_hosts p ON p.site_id = w.site_id
		WHERE w.host <> COALESCE(p.host, '') OR w.content_host <> w.host AND w.installed <> '' AND s.status = 'active' AND w.readdress_at <= $1
		ORDER BY w.site_id LIMIT 1000`, db.Now())
	list, err := db.Collect(rows, err, func(s db.Scanner) (x addressed, err error) {
		return x, s.Scan(&x.site, &x.owner, &x.knows, &x.names, &x.old, &x.now)
	})
	if err != nil {
		return err
	}
	var failed error
	for _, x := range list {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
			if x.knows != x.now {
				return w.renameTx(ctx, tx, x)
			}
			return w.rewriteTx(ctx, tx, x)
		})
		if err != nil && fault.As(err) == nil { // a fault is another operation of the site, which is waited for
			failed = errors.Join(failed, fmt.Errorf("tell site %s its address: %w", x.site, err))
		}
	}
	return failed
}

// renameTx has a site's program begin anew with its primary domain, without dropping a request.
func (w *WordPress) renameTx(ctx context.Context, tx *db.Tx, x addressed) error {
	old := slices.DeleteFunc(strings.Fields(x.old), func(host string) bool { return host == x.now || host == x.knows })
	if x.knows != newAddress && x.knows != "" {
		old = append(old, x.knows)
	}
	old = old[max(0, len(old)-maxOldHosts):]
	n, err := tx.Exec(ctx, `UPDATE wordpress_sites SET host = $3, old_hosts = $4, readdress_at = 0, readdress_wait = 0,
		revision = revision + CASE WHEN host = '-' THEN 0 ELSE 1 END,
		content_host = CASE WHEN content_host = '-' THEN $3 ELSE content_host END WHERE site_id = $1 AND host = $2`,
		x.site, x.knows, x.now, strings.Join(old, " "))
	if err != nil || n == 0 { // another node was first
		return err
	}
	tx.Notify("live")
	return w.settingsChangedTx(ctx, tx, x.site)
}

// rewriteTx begins to rewrite a site's content to its primary domain.
func (w *WordPress) rewriteTx(ctx context.Context, tx *db.Tx, x addressed) error {
	s, err := w.c.Sites.LockTx(ctx, tx, x.owner, x.site)
	if err == nil {
		err = w.live(s)
	}
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE wordpress_sites SET content_host = host WHERE site_id = $1 AND content_host = $2 AND host = $3`,
		x.site, x.names, x.knows)
	if err != nil || n == 0 {
		return err
	}
	_, err = w.beginTx(ctx, tx, x.owner, x.site, Work{What: kindAddress, Hosts: append(strings.Fields(x.old), x.names)})
	return err
}

// readdressLaterTx makes a failed rewriting begin again later, each time after twice the wait. Until then content may name a former domain.
func (w *WordPress) readdressLaterTx(ctx context.Context, tx *db.Tx, x Work) error {
	names := oldContent
	if n := len(x.Hosts); n > 0 {
		names = x.Hosts[n-1]
	}
	var last int64
	err := tx.QueryRow(ctx, `SELECT readdress_wait FROM wordpress_sites WHERE site_id = $1`, x.Site).Scan(&last)
	if err == nil {
		wait := min(max(2*time.Duration(last)*time.Millisecond, addressAgain), addressMost)
		_, err = tx.Exec(ctx, `UPDATE wordpress_sites SET content_host = $2, readdress_at = $3, readdress_wait = $4
			WHERE site_id = $1 AND content_host = host`, x.Site, names, db.Now().Add(wait), wait.Milliseconds())
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("note rewriting for later: %w", err)
	}
	return nil
}

// maxEarly bounds how often a rewriting waits for the program that knows the new address.
const maxEarly = 120

// readdressed is one call of the job that rewrites a site's content to its primary domain. It may be repeated.
func (r *run) readdressed(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	to, err := r.Address(ctx, s)
	if err != nil {
		return err
	}
	if r.step.At == atBackup {
		var now struct{ Home string }
		err := r.task(ctx, s, s.LiveDeployment, "home", map[string]any{}, &now)
		if f := fault.As(err); err != nil && (f == nil || f.Code != outdated) { // an earlier version's core can't say it
			return err
		}
		if r.step.Tries++; err == nil && now.Home != to && r.step.Tries < maxEarly { // what writes the old address still runs
			if err := r.to(ctx, atBackup, 0.1, "Waiting for the program"); err != nil {
				return err
			}
			return job.Later(waitFor)
		}
		old := []string{r.c.Sites.URL(s.Slug)}
		for _, host := range r.x.Hosts {
			if host != "" && host != newAddress && host != oldContent {
				old = append(old, r.c.Sites.Address(host))
			}
		}
		kind, blogs, err := r.blogs(ctx, s)
		if err != nil {
			return err
		}
		goTo, list, err := move(kind, blogs, nil, strings.TrimPrefix(to, "https://"), true)
		if err != nil {
			return err
		}
		r.step.Blogs, r.step.Pairs = goTo, longestFirst(append(list, addressPairs(old, to)...))
		if err := r.to(ctx, atFill, 0.2, "Rewriting addresses"); err != nil {
			return err
		}
	}
	if len(r.step.Blogs) > 0 {
		if err := r.task(ctx, s, s.LiveDeployment, "network", map[string]any{"blogs": r.step.Blogs, "most": maxBlogs}, &struct{}{}); err != nil {
			return err
		}
	}
	found, err := r.replaceAll(ctx, s, pairs{List: r.step.Pairs, Addresses: true}, false, 0.2)
	if err != nil {
		return err
	}
	err = r.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET readdress_at = 0, readdress_wait = 0 WHERE site_id = $1`, s.ID)
		return err
	})
	if err != nil {
		return err
	}
	out := r.result()
	out["rows"], out["replacements"], out["tables"], out["skippedTables"] = found.Rows, found.Replacements, found.Tables, found.Skipped
	return r.end(ctx, fmt.Sprintf("The site's content names %s", to), "", out)
}
