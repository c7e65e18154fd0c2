package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
)

// Key is an API key as its owner sees it.
type Key struct {
	ID        KeyID
	Name      string
	Hint      string // the secret's first characters
	Scopes    Scopes
	Sites     []id.Site      // empty: all
	Nets      []netip.Prefix // empty: anywhere
	Expires   db.Time        // 0: never
	CreatedAt db.Time
	UsedAt    db.Time // 0: never
	UsedAddr  string
	Service   bool   // outlives who made it
	By        UserID // who made it
	ByEmail   string
}

// NewKey holds the settings of a key to create.
type NewKey struct {
	Name    string // 1 to 100 characters
	Scopes  Scopes
	Sites   []id.Site      // Optional: empty means all of the owner's sites, also later ones.
	Nets    []netip.Prefix // Optional: empty means from anywhere.
	Expires db.Time        // Optional: 0 means never.
	Service bool           // Optional: of a team, by its admins: it stays when they leave.
}

// The most a key can name.
const (
	maxSites = 100
	maxNets  = 50
)

const keyColumns = `id, name, hint, scopes, sites, nets, expires_at, created_at, used_at, used_addr, kind = 'service', user_id,
	(SELECT email FROM users WHERE users.id = api_keys.user_id)`

func scanKey(row db.Scanner) (k Key, err error) {
	var scopes, sites, nets string
	err = row.Scan(&k.ID, &k.Name, &k.Hint, &scopes, &sites, &nets, &k.Expires, &k.CreatedAt, &k.UsedAt, &k.UsedAddr, &k.Service,
		&k.By, &k.ByEmail)
	if errors.Is(err, sql.ErrNoRows) {
		return k, fault.Missing("key")
	}
	k.Scopes, k.Sites, k.Nets = splitScopes(scopes), id.Split[id.Site](sites), splitNets(nets)
	return k, err
}

// CreateKey makes a key for the user's personal account and returns the secret, which is
// not stored.
func (a *Accounts) CreateKey(ctx context.Context, user UserID, n NewKey) (k Key, secret string, err error) {
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		u, err := scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, user))
		if err != nil {
			return err
		}
		k, secret, err = a.CreateKeyTx(ctx, tx, u.Caller(), n)
		return err
	})
	return k, secret, err
}

// CreateKeyTx makes a key that acts for the caller's owner, no wider than the caller: a Forbidden
// fault says which way it would be.
func (a *Accounts) CreateKeyTx(ctx context.Context, tx *db.Tx, by Caller, n NewKey) (Key, string, error) {
	if err := n.check(); err != nil {
		return Key{}, "", err
	}
	if err := by.requireNoWider(n); err != nil {
		return Key{}, "", err
	}
	kind, through := "user", by.Through
	if n.Service {
		through = "" // it is the team's, whoever made it
		kind = "service"
		if by.Team == "" || !by.Role.AtLeast(RoleAdmin) {
			return Key{}, "", fault.New(fault.Forbidden, "role_required", "Only admins of a team can create service keys",
				"leave service out, or ask an admin")
		}
	}
	if err := a.limits.RequireTx(ctx, tx, by.Owner, limits.Keys, 1); err != nil {
		return Key{}, "", err
	}
	if by.Team != "" { // the owner is locked now: somebody may have removed the caller meanwhile, and a service key would stay
		if err := holds(ctx, tx, by.Actor(netip.Addr{})); err != nil {
			return Key{}, "", err
		}
	}
	nets := make([]string, len(n.Nets))
	for i, p := range n.Nets {
		nets[i] = p.String()
	}
	secret := newSecret()
	k, err := scanKey(tx.QueryRow(ctx, `
		INSERT INTO api_keys (id, owner_id, user_id, hash, hint, name, scopes, sites, nets, expires_at, created_at, used_at, used_addr, kind,
		  provider_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, '', $12, $13)
		RETURNING `+keyColumns,
		db.NewID("key"), by.Owner, by.User, digest(secret), secret[:hintLen], n.Name, n.Scopes.String(),
		id.Join(n.Sites), strings.Join(nets, " "), n.Expires, db.Now(), kind, through))
	if err != nil {
		return Key{}, "", fmt.Errorf("create key: %w", err)
	}
	return k, secret, nil
}

func (n *NewKey) check() error {
	n.Name = strings.TrimSpace(n.Name)
	if c := utf8.RuneCountInString(n.Name); c < 1 || c > 100 || !utf8.ValidString(n.Name) || !Visible(n.Name) ||
		strings.ContainsFunc(n.Name, unicode.IsControl) {
		return fault.New(fault.Invalid, "invalid_name", "Invalid key name", "a name has 1 to 100 characters")
	}
	names := make([]string, len(n.Scopes))
	for i, s := range n.Scopes {
		names[i] = string(s)
	}
	var err error
	if n.Scopes, err = ParseScopes(names); err != nil {
		return err
	}
	if len(n.Sites) > maxSites || len(n.Nets) > maxNets {
		return fault.New(fault.Invalid, "too_many_restrictions", "Too many restrictions",
			fmt.Sprintf("a key names at most %d sites and %d address ranges", maxSites, maxNets))
	}
	for _, s := range n.Sites {
		if rest, ok := strings.CutPrefix(string(s), "site_"); !ok || rest == "" || len(s) > 64 ||
			strings.ContainsFunc(rest, func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9') }) {
			return fault.New(fault.Invalid, "invalid_sites", "Invalid site in the key's sites",
				"sites holds site ids (site_…)").Got(s)
		}
	}
	n.Nets = slices.Clone(n.Nets)
	for i, p := range n.Nets {
		if !p.IsValid() {
			return fault.New(fault.Invalid, "invalid_addresses", "Invalid address range", "a range looks like 203.0.113.0/24")
		}
		n.Nets[i] = p.Masked()
	}
	if n.Expires != 0 && n.Expires <= db.Now() {
		return fault.New(fault.Invalid, "invalid_expiry", "The expiry is in the past",
			"the expiry must be in the future").Got(n.Expires.String())
	}
	return nil
}

// ParseNet reads an address or a range in CIDR form (RFC 4632); IPv4 mapped into IPv6
// becomes IPv4.
func ParseNet(s string) (netip.Prefix, error) {
	bad := fault.New(fault.Invalid, "invalid_addresses", "Invalid address range",
		"a range looks like 203.0.113.0/24 or 2001:db8::/48").Got(s)
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, bad
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, bad
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func splitNets(text string) (out []netip.Prefix) {
	for s := range strings.FieldsSeq(text) {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		} else { // a damaged row must not open the key to everybody
			out = append(out, netip.Prefix{})
		}
	}
	return out
}

// ListKeys returns the keys of the caller's user that are no wider than the caller,
// newest first, with their last uses as of now.
func (a *Accounts) ListKeys(ctx context.Context, by Caller) ([]Key, error) {
	rows, err := a.db.Query(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE owner_id = $1 ORDER BY created_at DESC, id DESC`, by.Owner)
	keys, err := db.Collect(rows, err, scanKey)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys = slices.DeleteFunc(keys, func(k Key) bool { return !by.covers(k) })
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range keys {
		if u, ok := a.used[keys[i].ID]; ok && u.at > keys[i].UsedAt {
			keys[i].UsedAt, keys[i].UsedAddr = u.at, u.addr.String()
		}
	}
	return keys, nil
}

// RevokeKey ends a key for good, or is a NotFound fault.
func (a *Accounts) RevokeKey(ctx context.Context, by Caller, id KeyID) error {
	return a.db.Write(ctx, func(tx *db.Tx) error { return a.RevokeKeyTx(ctx, tx, by, id) })
}

// RevokeKeyTx is RevokeKey in the caller's transaction. A key that is wider than the
// caller is not found: nobody ends what they could not have made.
func (a *Accounts) RevokeKeyTx(ctx context.Context, tx *db.Tx, by Caller, id KeyID) error {
	k, err := scanKey(tx.QueryRow(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE owner_id = $1 AND id = $2`, by.Owner, id))
	if err != nil {
		return err
	}
	if !by.covers(k) {
		return fault.Missing("key")
	}
	n, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE owner_id = $1 AND id = $2`, by.Owner, id)
	if err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	if n == 0 {
		return fault.Missing("key")
	}
	return nil
}

// EndRunKeysTx deletes the keys that runs of workflows got for a site.
func EndRunKeysTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE id IN (SELECT key_id FROM run_keys WHERE site_id = $1)`, site); err != nil {
		return fmt.Errorf("end keys of workflows: %w", err)
	}
	return nil
}

// errKey is the one error for every invalid credential, so that nobody learns why.
var errKey = fault.New(fault.Unauthorized, "invalid_key", "Invalid API key", "send a valid key as Authorization: Bearer slw_…")

// Authenticate returns who holds this secret. An unknown, revoked or expired key, or one
// of a suspended user, is an Unauthorized fault; one used from an address it is not for
// is Forbidden.
func (a *Accounts) Authenticate(ctx context.Context, secret string, addr netip.Addr) (Caller, error) {
	if !LooksLikeKey(secret) {
		return Caller{}, errKey
	}
	var c Caller
	var name, hint, scopes, sites, nets, why string
	var suspended db.Time
	var personal bool
	err := a.db.QueryRow(ctx, `
		SELECT k.id, k.name, k.hint, k.scopes, k.sites, k.nets, k.expires_at, k.owner_id, u.id, u.email, u.admin, u.suspended_at, u.suspended_why,
			k.kind = 'service', k.owner_id = u.owner_id, k.provider_id
		FROM api_keys k JOIN users u ON u.id = k.user_id
		WHERE k.hash = $1`, digest(secret)).Scan(
		&c.Key,
		&name,
		&hint,
		&scopes,
		&sites,
		&nets,
		&c.Expires,
		&c.Owner,
		&c.User,
		&c.Email,
		&c.Admin,
		&suspended,
		&why,
		&c.Service,
		&personal,
		&c.Through,
	)
	if errors.Is(err, sql.ErrNoRows) || err == nil && c.Expires != 0 && c.Expires <= db.Now() {
		return Caller{}, errKey
	}
	if err != nil {
		return Caller{}, fmt.Errorf("authenticate: %w", err)
	}
	if suspended != 0 && !c.Service {
		return Caller{}, errSuspended(fault.Unauthorized, why)
	}
	c.Scopes, c.Sites, c.Nets = splitScopes(scopes), id.Split[id.Site](sites), splitNets(nets)
	c.Admin = c.Admin && c.Scopes.Include(All) && len(c.Sites) == 0
	c.Via = name + " (" + hint + "…)"
	switch {
	case c.Service:
		err = c.serve(ctx, a.db)
	case !personal:
		_, err = c.cap(ctx, a.db)
	}
	if err != nil {
		return Caller{}, err
	}
	addr = addr.Unmap().WithZone("")
	if len(c.Nets) > 0 && !slices.ContainsFunc(c.Nets, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return c, fault.New(fault.Forbidden, "address_not_allowed", "The API key can't be used from this IP address",
			"the key is restricted to other IP addresses")
	}
	a.note(c.Key, addr)
	return c, nil
}

// Holds is nil while what the caller came with still lets them in: their key is there and
// has not expired, they are not suspended, and still belong to the team, with the role they had. It is for answers
// that stay open, and requests that take long to come.
func (a *Accounts) Holds(ctx context.Context, c Caller) error {
	return holds(ctx, a.db, c.Actor(netip.Addr{}))
}

// holds is nil while an actor may go on.
func holds(ctx context.Context, r db.Reader, by audit.Actor) error {
	personal, service := true, false
	if by.Key != "" {
		var ok bool
		err := r.QueryRow(ctx, `
			SELECT (u.suspended_at = 0 OR k.kind = 'service') AND (k.expires_at = 0 OR k.expires_at > $2), k.owner_id = u.owner_id,
			k.kind = 'service'
			FROM api_keys k JOIN users u ON u.id = k.user_id WHERE k.id = $1`, by.Key, db.Now()).Scan(&ok, &personal, &service)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !ok {
			return errKey
		}
		if err != nil {
			return fmt.Errorf("check key again: %w", err)
		}
		if service {
			return owned(ctx, r, by.Owner)
		}
	} else {
		var own OwnerID
		var at db.Time
		var why string
		err := r.QueryRow(ctx, `SELECT owner_id, suspended_at, suspended_why FROM users WHERE id = $1`, by.User).Scan(&own, &at, &why)
		if errors.Is(err, sql.ErrNoRows) {
			return errSession
		}
		if err != nil {
			return fmt.Errorf("read user: %w", err)
		}
		if at != 0 {
			return errSuspended(fault.Unauthorized, why)
		}
		personal = by.Rights == "" || by.Owner == own
	}
	if personal {
		return nil
	}
	m, err := MembershipOf(ctx, r, by.User, by.Owner)
	if err == nil {
		_, err = m.admitted(ctx, r, by)
	}
	if err == nil && m.snapshot != by.Rights && by.Rights != "" {
		err = fault.New(fault.Unauthorized, "role_changed", "Your role in this team has changed", "send the request again")
	}
	return err
}

// serve makes the caller a service key's: it acts for the team with its own scopes, but never for more than an admin.
func (c *Caller) serve(ctx context.Context, r db.Reader) error {
	if err := owned(ctx, r, c.Owner); err != nil {
		return err
	}
	if err := r.QueryRow(ctx, `SELECT id, name FROM owner_standing WHERE owner_id = $1`, c.Owner).Scan(&c.Team, &c.Slug); err != nil {
		return fmt.Errorf("find team of key: %w", err)
	}
	c.Admin, c.Role = false, RoleAdmin
	c.granted, c.Scopes = c.Scopes, c.Scopes.within(scopesInTeam[RoleAdmin])
	return nil
}

// owned is nil while there is such an owner and it is not suspended.
func owned(ctx context.Context, r db.Reader, owner OwnerID) error {
	var at db.Time
	err := r.QueryRow(ctx, `SELECT suspended_at FROM owner_standing WHERE owner_id = $1`, owner).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) || err == nil && at != 0 {
		return errKey
	}
	if err != nil {
		return fmt.Errorf("find owner: %w", err)
	}
	return nil
}

// EndMemberTx ends what a user who is no member any more came in with: their keys for that owner, and their sessions that
// began with a provider of that owner's. Service keys stay, and are another member's from then on. It returns the names of those.
func (a *Accounts) EndMemberTx(ctx context.Context, tx *db.Tx, owner OwnerID, user, heir UserID) (services []string, err error) {
	rows, err := tx.Query(ctx, `UPDATE api_keys SET user_id = $3 WHERE owner_id = $1 AND user_id = $2 AND kind = 'service' RETURNING name`,
		owner, user, heir)
	services, err = db.Collect(rows, err, func(r db.Scanner) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, fmt.Errorf("keep service keys: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE owner_id = $1 AND user_id = $2`, owner, user); err != nil {
		return nil, fmt.Errorf("end keys of member: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		DELETE FROM sessions WHERE user_id = $2 AND provider_id IN (SELECT id FROM team_providers WHERE owner_id = $1)`,
		owner, user); err != nil {
		return nil, fmt.Errorf("end sessions of member: %w", err)
	}
	return services, nil
}

// OpenOwnerTx makes an owner of a kind that is not a personal account.
func (a *Accounts) OpenOwnerTx(ctx context.Context, tx *db.Tx, kind string) (OwnerID, error) {
	id := db.ID[OwnerID]("own")
	if _, err := tx.Exec(ctx, `INSERT INTO owners (id, kind, created_at) VALUES ($1, $2, $3)`, id, kind, db.Now()); err != nil {
		return "", fmt.Errorf("create owner: %w", err)
	}
	return id, nil
}

// CloseOwnerTx removes an owner who has nothing any more, with the keys that act for it.
func (a *Accounts) CloseOwnerTx(ctx context.Context, tx *db.Tx, id OwnerID) error {
	for _, q := range []string{`DELETE FROM api_keys WHERE owner_id = $1`, `DELETE FROM owners WHERE id = $1`} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("remove owner: %w", err)
		}
	}
	return nil
}

// LockOwnerTx makes others who lock this owner wait until the transaction ends.
func LockOwnerTx(ctx context.Context, tx *db.Tx, id OwnerID) error {
	if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id = $1`, id); err != nil {
		return fmt.Errorf("lock owner: %w", err)
	}
	return nil
}

// ForgetSiteTx takes a site that is no longer an owner's out of the keys that are restricted to it and others. Those that
// were for it alone are deleted: no restriction would mean every site. It returns how many keys there were.
func (a *Accounts) ForgetSiteTx(ctx context.Context, tx *db.Tx, owner OwnerID, site id.Site) (int, error) {
	rows, err := tx.Query(ctx, `SELECT id, sites FROM api_keys WHERE owner_id = $1 AND sites LIKE '%' || $2 || '%' ORDER BY id`, owner, site)
	type key struct {
		id    KeyID
		sites []string
	}
	list, err := db.Collect(rows, err, func(r db.Scanner) (k key, err error) {
		var sites string
		err = r.Scan(&k.id, &sites)
		k.sites = strings.Fields(sites)
		return k, err
	})
	if err != nil {
		return 0, fmt.Errorf("find keys of site: %w", err)
	}
	n := 0
	for _, k := range list {
		rest := slices.DeleteFunc(slices.Clone(k.sites), func(s string) bool { return id.Site(s) == site })
		switch {
		case len(rest) == len(k.sites):
			continue
		case len(rest) == 0:
			_, err = tx.Exec(ctx, `DELETE FROM api_keys WHERE id = $1`, k.id)
		default:
			_, err = tx.Exec(ctx, `UPDATE api_keys SET sites = $2 WHERE id = $1`, k.id, strings.Join(rest, " "))
		}
		if err != nil {
			return 0, fmt.Errorf("forget site of key: %w", err)
		}
		n++
	}
	return n, nil
}
