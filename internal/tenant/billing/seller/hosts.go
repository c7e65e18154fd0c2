package seller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/publicsuffix"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
)

// HostsConfig describes the installation that sellers' hosts belong to.
type HostsConfig struct {
	DB         *db.DB
	BaseURL    string       // the installation's; sellers' hosts share its scheme and port
	Own        []string     // the installation's hosts
	SiteDomain string       // parent domain of site addresses
	Shared     bool         // whether hosts may share a registrable domain with sites
	Log        *slog.Logger // Optional.
}

// Hosts caches the hosts at which sellers' customers reach the dashboard. A nil *Hosts has none. It is safe for
// concurrent use.
type Hosts struct {
	c   HostsConfig
	now atomic.Pointer[map[string]Place]
}

// Place is a seller's host.
type Place struct {
	Seller string
	Brand  Brand
	URL    string // base URL of the dashboard at this host
}

// NewHosts returns an empty Hosts; call Read or Run to fill it.
func NewHosts(c HostsConfig) *Hosts {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Hosts{c: c}
}

// At returns the seller's place for a request's Host header.
func (h *Hosts) At(host string) (p Place, found bool) {
	if h == nil {
		return p, false
	}
	now := h.now.Load()
	if now == nil || len(*now) == 0 {
		return p, false
	}
	if strings.Contains(host, ":") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	p, found = (*now)[strings.ToLower(strings.TrimSuffix(host, "."))]
	return p, found
}

// Has reports whether a host belongs to a seller.
func (h *Hosts) Has(host string) bool {
	_, found := h.At(host)
	return found
}

// topic notifies nodes about changed hosts.
const topic = "sellers"

// Run reloads the hosts until ctx ends: on notification, and every five seconds. While the database is unavailable the
// last known hosts stay.
func (h *Hosts) Run(ctx context.Context) error {
	wake, stop := h.c.DB.Listen(topic)
	defer stop()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		if err := h.Read(ctx); err != nil && ctx.Err() == nil {
			h.c.Log.WarnContext(ctx, "hosts of sellers not read", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

// Read loads the hosts from the database and skips those that the current configuration forbids.
func (h *Hosts) Read(ctx context.Context) error {
	rows, err := h.c.DB.Query(ctx, `
		SELECT c.host, s.id, s.name, s.logo_digest FROM control_hosts c JOIN billing_sellers s ON s.id = c.seller_id ORDER BY c.host`)
	type row struct {
		host string
		at   Place
	}
	all, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) {
		return x, r.Scan(&x.host, &x.at.Seller, &x.at.Brand.Name, &x.at.Brand.Logo)
	})
	if err != nil {
		return fmt.Errorf("read hosts of sellers: %w", err)
	}
	next := make(map[string]Place, len(all))
	for _, x := range all {
		if err := h.allowed(x.host); err != nil {
			if h.now.Load() == nil {
				h.c.Log.WarnContext(ctx, "host of a seller not served", "host", x.host, "seller", x.at.Seller, "err", err)
			}
			continue
		}
		x.at.URL = text.WithHost(h.c.BaseURL, x.host)
		next[x.host] = x.at
	}
	h.now.Store(&next)
	return nil
}

var hostForm = lazyregexp.New(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// allowed returns why the configuration forbids a host, or nil.
func (h *Hosts) allowed(host string) error {
	refuse := func(details string) error { return fault.InvalidField("host", details, host) }
	sites := strings.ToLower(h.c.SiteDomain)
	switch {
	case len(host) > 190 || !hostForm.MatchString(host):
		return refuse("host must be a host name such as panel.harbor.example, in ASCII")
	case slices.Contains(h.c.Own, host):
		return refuse("this is the installation's own host")
	case host == sites || strings.HasSuffix(host, "."+sites):
		return refuse("sites have their addresses below " + sites)
	case strings.HasPrefix(h.c.BaseURL, "https:") && !h.c.Shared && registrable(host) == registrable(sites):
		return refuse("it shares a registrable domain with sites, which could set cookies for it; start with --shared-domain to allow this")
	}
	return nil
}

// registrable returns a name's registrable domain (eTLD+1).
func registrable(host string) string {
	if d, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return d
	}
	return host
}

// SetTx sets the host at which a seller's customers reach the dashboard. An empty host removes it. It refuses a host
// used by a site, just as package domain refuses sellers' hosts.
func (h *Hosts) SetTx(ctx context.Context, tx *db.Tx, seller, host string) error {
	host = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(host), "."))
	if host != "" {
		if err := h.allowed(host); err != nil {
			return err
		}
		if !tx.Single() { // a host set concurrently becomes visible once its transaction has ended
			if _, err := tx.Exec(ctx, `SELECT 1 FROM billing_sellers ORDER BY id FOR UPDATE`); err != nil {
				return fmt.Errorf("lock sellers: %w", err)
			}
		}
		_, above, _ := strings.Cut(host, ".")
		var sites, others int
		if err := tx.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM custom_hosts WHERE state = 'active' AND host IN ($1, $2)),
				(SELECT count(*) FROM billing_sellers WHERE host = $1 AND id <> $3)`, host, "*."+above, seller).Scan(&sites, &others); err != nil {
			return fmt.Errorf("look up host of seller: %w", err)
		}
		switch {
		case sites > 0:
			return fault.New(fault.Conflict, "host_taken", "A site has this host", "remove the domain from the site first, or choose another host")
		case others > 0:
			return fault.New(fault.Conflict, "host_taken", "Another seller has this host", "each seller has a host of its own")
		}
	}
	n, err := tx.Exec(ctx, `UPDATE billing_sellers SET host = $2, updated_at = $3 WHERE id = $1`, seller, host, db.Now())
	if err != nil {
		return fmt.Errorf("write host of seller: %w", err)
	}
	if n == 0 {
		return fault.Missing("seller")
	}
	tx.Notify(topic)
	return nil
}
