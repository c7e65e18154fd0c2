package wordpress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/build/htaccess"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// How a network tells its blogs apart.
const (
	Subfolder = "subfolder"
	Subdomain = "subdomain"
)

// NetworkOf is the variable that says which kind of network a WordPress is.
const NetworkOf = "SLIPWAY_WP_NETWORK"

// maxBlogs caps the blogs of a network that is moved to other addresses, and whose events run.
const maxBlogs = 500

// NetworkRules are WordPress's rules for Apache in a network whose blogs are folders: what lies at the top is found below each of them.
func NetworkRules() []htaccess.Folder {
	folder, _ := htaccess.Translate("", `RewriteEngine On
RewriteBase /
RewriteRule ^index\.php$ - [L]
RewriteRule ^([_0-9a-zA-Z-]+/)?wp-admin$ $1wp-admin/ [R=301,L]
RewriteCond %{REQUEST_FILENAME} -f [OR]
RewriteCond %{REQUEST_FILENAME} -d
RewriteRule ^ - [L]
RewriteRule ^([_0-9a-zA-Z-]+/)?(wp-(content|admin|includes).*) $2 [L]
RewriteRule ^([_0-9a-zA-Z-]+/)?(.*\.php)$ $2 [L]
`)
	return []htaccess.Folder{folder}
}

// Blog is a site of a network.
type Blog struct {
	ID     int64  `json:"id"`
	Domain string `json:"domain"` // with its port, where it has one
	Path   string `json:"path"`   // begins and ends with a slash
}

func (b Blog) address() string { return "https://" + b.Domain + strings.TrimRight(b.Path, "/") }

var (
	blogDomain = lazyregexp.New(`^[a-z0-9.-]{1,200}(:[0-9]{1,5})?$`)
	blogPath   = lazyregexp.New(`^/([A-Za-z0-9_~%-][A-Za-z0-9._~%-]{0,99}/){0,4}$`)
)

// checkBlogs refuses a network that can't be moved: plugins write what it says.
func checkBlogs(blogs []Blog) error {
	if len(blogs) > maxBlogs {
		return fault.New(fault.Conflict, "network_too_large", "This network has too many sites",
			fmt.Sprintf("up to %d sites of a network can be moved to another address", maxBlogs))
	}
	for _, b := range blogs {
		if b.ID <= 0 || !blogDomain.MatchString(b.Domain) || !blogPath.MatchString(b.Path) {
			return fault.New(fault.Conflict, "network_unreadable", "The sites of this network can't be moved",
				fmt.Sprintf("site %d has the address %.100q", b.ID, b.Domain+b.Path))
		}
	}
	return nil
}

// moved returns where the blogs of a network go whose first one goes to a host. Blogs that the target has, was, keep their address there.
// Others stay below the network's host. A blog with a domain of its own keeps it where the site itself moves, and else gets a folder or a
// host by the first part of its domain.
func moved(kind string, blogs, was []Blog, host string, itself bool) []Blog {
	main := blogs[0] // they come by their ids
	out := make([]Blog, 0, len(blogs))
	for _, b := range blogs {
		label, below, _ := strings.Cut(b.Domain, ".")
		at := slices.IndexFunc(was, func(x Blog) bool { return x.ID == b.ID })
		switch {
		case b.ID == main.ID:
			b.Domain, b.Path = host, "/"
		case at >= 0:
			b.Domain, b.Path = was[at].Domain, was[at].Path
		case b.Domain == main.Domain:
			b.Domain = host
		case kind == Subdomain && below == main.Domain:
			b.Domain = label + "." + host
		case itself:
		case kind == Subdomain:
			b.Domain = label + "." + host
		default:
			b.Domain, b.Path = host, "/"+label+"/"
		}
		for slices.ContainsFunc(out, func(x Blog) bool { return x.Domain == b.Domain && x.Path == b.Path }) {
			if b.Path == "/" {
				b.Domain = fmt.Sprintf("%d-%s", b.ID, b.Domain)
			} else {
				b.Path = fmt.Sprintf("%s-%d/", strings.TrimRight(b.Path, "/"), b.ID)
			}
		}
		out = append(out, b)
	}
	return out
}

// maxMoved caps the blogs of a network that get another domain, or another path, when the network moves: each has addresses of its own in
// the database.
const maxMoved = 50

// move returns where the blogs of a network go, see moved, and how their addresses change beside that of the first one.
func move(kind string, blogs, was []Blog, host string, itself bool) (to []Blog, list [][2]string, err error) {
	if err := checkBlogs(blogs); err != nil || len(blogs) == 0 {
		return nil, nil, err
	}
	to = moved(kind, blogs, was, host, itself)
	n := 0
	for i, b := range blogs {
		if to[i] == b || b.Domain == blogs[0].Domain && to[i].Domain == host && to[i].Path == b.Path { // with the first one
			continue
		}
		if n++; n > maxMoved {
			return nil, nil, fault.New(fault.Conflict, "network_too_large", "Too many sites of this network have domains of their own",
				fmt.Sprintf("up to %d of them can get another address at once", maxMoved))
		}
		list = append(list, addressPairs([]string{b.address()}, to[i].address())...)
	}
	return to, list, nil
}

// blogs asks a site for the blogs of its network; none where it isn't one.
func (w *WordPress) blogs(ctx context.Context, s site.Site) (kind string, blogs []Blog, err error) {
	var out struct {
		Network string
		Blogs   []Blog
	}
	err = w.task(ctx, s, s.LiveDeployment, "network", map[string]any{"most": maxBlogs}, &out)
	if f := fault.As(err); f != nil && f.Code == outdated {
		return "", nil, nil
	}
	if err == nil {
		err = checkBlogs(out.Blogs)
	}
	return out.Network, out.Blogs, err
}

// networkTx begins to make the owner's site a network.
func (w *WordPress) networkTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, x row, kind string) error {
	s, err := w.c.Sites.GetTx(ctx, tx, owner, x.Site)
	if err == nil {
		err = w.live(s)
	}
	switch {
	case err != nil:
		return err
	case kind != Subfolder && kind != Subdomain:
		return fault.New(fault.Invalid, "invalid_wordpress", "Invalid network", "network must be subfolder or subdomain").Got(kind)
	case x.Network != "":
		return fault.New(fault.Conflict, "is_network", "This site is a network already",
			"its kind can't be changed; restore a backup from before to make it a single site again")
	}
	_, err = w.beginTx(ctx, tx, owner, x.Site, Work{What: kindNetwork, Network: kind})
	return err
}

// becomeNetwork is one call of the job that makes a site a network.
func (r *run) becomeNetwork(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	switch r.step.At {
	case atBackup:
		ready, err := r.backUp(ctx, r.x.Site, &r.step.Backup, "Before the site became a network")
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
		paths, err := r.pagesOf(ctx, s)
		if err != nil {
			return err
		}
		if r.step.Before, err = r.look(ctx, s, paths); err != nil {
			return err
		}
		to, err := r.Address(ctx, s)
		if err != nil {
			return err
		}
		r.step.Since = db.Now()
		if err := r.to(ctx, atChange, 0.4, "Making the site a network"); err != nil {
			return err
		}
		if err := r.task(ctx, s, s.LiveDeployment, "network", map[string]any{
			"create": r.x.Network, "domain": strings.TrimPrefix(to, "https://"), "most": maxBlogs,
		}, &struct{}{}); err != nil {
			return err
		}
		err = r.to(ctx, atCheck, 0.6, "Checking the site", func(tx *db.Tx) error { return r.setNetworkTx(ctx, tx, s.ID, r.x.Network) })
		if err != nil {
			return err
		}
		return job.Later(waitFor)
	case atChange: // a crash cut it off
		return r.goBack(ctx, interrupted)
	case atCheck:
		var now struct{ Network string }
		err := r.task(ctx, s, s.LiveDeployment, "home", map[string]any{}, &now)
		if r.step.Tries++; (err != nil || now.Network != r.x.Network) && r.step.Tries < maxEarly { // the program of before still runs
			if err := r.to(ctx, atCheck, 0.7, "Waiting for the program"); err != nil {
				return err
			}
			return job.Later(waitFor)
		}
		why, err := r.check(ctx, s, r.step.Before, r.step.Since)
		if err != nil {
			return err
		}
		if why != "" {
			return r.goBack(ctx, "The site doesn't work as a network: "+why)
		}
		r.purgeAll(ctx, s.ID)
		return r.end(ctx, "The site is a network", "", r.result())
	}
	return r.goBack(ctx, "")
}

// setNetworkTx notes which kind of network a site is. Its program starts again with that.
func (w *WordPress) setNetworkTx(ctx context.Context, tx *db.Tx, id site.ID, kind string) error {
	n, err := tx.Exec(ctx, `UPDATE wordpress_sites SET network = $2, revision = revision + 1 WHERE site_id = $1 AND network <> $2`, id, kind)
	if err != nil || n == 0 {
		return err
	}
	tx.Notify("live")
	return w.settingsChangedTx(ctx, tx, id)
}

// eventsOfBlogs runs what is due of a network's other blogs, and returns when the next is, in seconds; 0: none.
func (w *WordPress) eventsOfBlogs(ctx context.Context, s site.Site, blogs []blogEvents) (next int64) {
	for _, b := range blogs[:min(len(blogs), maxBlogs)] {
		if b.Next <= time.Now().Unix() && blogDomain.MatchString(b.Domain) && blogPath.MatchString(b.Path) {
			var out struct{ Next int64 }
			err := w.task(ctx, s, s.LiveDeployment, "cron", map[string]any{"blog": b.Blog}, &out)
			if err != nil && ctx.Err() == nil {
				w.c.Programs.Note(s.ID, "Scheduled events of "+b.Domain+b.Path+" did not run: "+err.Error())
				out.Next = time.Now().Add(cronLeast).Unix()
			}
			b.Next = out.Next
		}
		if b.Next > 0 && (next == 0 || b.Next < next) {
			next = b.Next
		}
	}
	return next
}

// blogEvents says when the next event of a blog is, in seconds.
type blogEvents struct {
	Blog
	Next int64
}
