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

// HostsConfig says what sellers' hosts stand beside.
type HostsConfig struct {
	DB         *db.DB
	BaseURL    string       // of the installation: sellers' hosts have its scheme and port
	Own        []string     // hosts of the installation
	SiteDomain string       // below which sites have their addresses
	Shared     bool         // whether hosts may share a registrable domain with sites
	Log        *slog.Logger // Optional.
}

// Hosts are the hosts at which sellers' customers reach the dashboard, as they were when they were read last. A nil Hosts has none, as
// without billing. It is safe for concurrent use.
type Hosts struct {
	c   HostsConfig
	now atomic.Pointer[map[string]Place]
}

// Place is a host of a seller's.
type Place struct {
	Seller string
	Brand  Brand
	URL    string // as the installation's base URL is
}

// NewHosts returns hosts that know none yet: Read, or Run, tells them.
func NewHosts(c HostsConfig) *Hosts {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Hosts{c: c}
}

// At returns the seller's place that a request's Host names; false: there is none.
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

// Has reports whether a host is a seller's.
func (h *Hosts) Has(host string) bool {
	_, found := h.At(host)
	return found
}

// topic wakes those who keep hosts.
const topic = "sellers"

// Run keeps the hosts as the database has them until ctx ends: at once when it tells of a change, within five seconds when it didn't. While
// it is away the hosts known so far stay.
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

// Read reads the hosts from the database. One that the settings of this start forbid is left out.
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

// allowed says why a host can't be a seller's, whatever the database has.
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

// registrable is the part of a name that somebody registered.
func registrable(host string) string {
	if d, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return d
	}
	return host
}

// SetTx gives a seller the host at which its customers reach the dashboard; empty: the installation's alone. A host that a site has is
// refused, as sites are refused those of sellers (package domain).
func (h *Hosts) SetTx(ctx context.Context, tx *db.Tx, seller, host string) error {
	host = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(host), "."))
	if host != "" {
		if err := h.allowed(host); err != nil {
			return err
		}
		if !tx.Single() { // one that is given at the same moment is seen once its transaction has ended
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
