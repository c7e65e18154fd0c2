package account

import (
	"net/netip"
	"slices"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// Caller is who is asking, and with what authority.
type Caller struct {
	User    UserID  // who acts
	Owner   OwnerID // whose things they act on
	Email   string
	Key     KeyID  // empty for somebody who logged in
	Grant   string // of an app that acts for the user (package oauth); empty: no app does
	App     string // its client_id
	Via     string // the key in words: its name and the secret's first characters; or the app's name
	Scopes  Scopes
	Sites   []id.Site      // empty: all of the user's sites
	Nets    []netip.Prefix // empty: from anywhere
	Expires db.Time        // 0: never
	Admin   bool           // runs the installation, and neither scopes nor sites are restricted

	Team      string           // the team that Owner is; empty for a personal account
	Slug      string           // of the team
	Role      Role             // in the team; empty for guests
	SiteRoles map[id.Site]Role // roles on single sites of the team
	Service   bool             // a service key: it acts for the team, not with the role of who made it
	granted   Scopes           // of the credential, before the role narrowed them: read where Team is set
	Through   string           // the team's sign-in provider of the session that this is, or that made the key or grant; empty: none
	session   SessionID        // empty: a key or an app
	snapshot  string           // of the membership: a change made with an older one is refused
}

// Caller returns a caller with the user's whole authority over their personal account.
func (u User) Caller() Caller {
	return Caller{User: u.ID, Owner: u.Owner, Email: u.Email, Admin: u.Admin, Scopes: Scopes{All}}
}

// Actor is the caller as the audit log names one.
func (c Caller) Actor(addr netip.Addr) audit.Actor {
	return audit.Actor{
		User: c.User, Owner: c.Owner, Key: c.Key, Grant: c.Grant, App: c.App, Session: c.session, Via: c.Via, Addr: addr,
		Rights: c.snapshot, Service: c.Service, Through: c.Through,
	}
}

// Require returns nil when the caller may do what the scope names, else a Forbidden fault
// that names it.
func (c Caller) Require(s Scope) error {
	if c.User != "" && c.Scopes.Include(s) {
		return nil
	}
	if c.Team != "" && c.User != "" && c.granted.Include(s) {
		return ErrRole(s, "")
	}
	return c.requireGranted(s)
}

func (c Caller) requireGranted(s Scope) error {
	return fault.New(fault.Forbidden, "scope_required", "The "+c.credential()+" lacks the required scope",
		"the scope "+string(s)+" is required")
}

// credential names the secret that the caller came with.
func (c Caller) credential() string {
	if c.Grant != "" {
		return "access token"
	}
	return "API key"
}

// Allows reports whether the caller may touch this site of its owner.
func (c Caller) Allows(site id.Site) bool {
	return len(c.Sites) == 0 || slices.Contains(c.Sites, site)
}

// RequireSite returns nil when the caller may touch this site of its owner, else a
// Forbidden fault. Ask after the site was found, so that a stranger's stays unknown.
func (c Caller) RequireSite(site id.Site) error {
	if c.User != "" && c.Allows(site) {
		return nil
	}
	return fault.New(fault.Forbidden, "site_not_allowed", "The "+c.credential()+" has no access to this site",
		"it is restricted to other sites")
}

// RequireAllSites returns nil when the caller is not restricted to some sites, else a
// Forbidden fault: for what concerns every site, such as making one.
func (c Caller) RequireAllSites() error {
	if c.User != "" && len(c.Sites) == 0 {
		return nil
	}
	return fault.New(fault.Forbidden, "site_not_allowed", "The "+c.credential()+" is restricted to some sites",
		"this request concerns all sites")
}

// covers reports whether a key like k can do nothing that c cannot.
func (c Caller) covers(k Key) bool {
	if c.Team != "" && k.By != c.User && !c.Role.AtLeast(RoleAdmin) {
		return false // members see their own keys of a team, admins everybody's
	}
	return k.ID != "" && k.ID == c.Key || c.requireNoWider(NewKey{
		Scopes:  k.Scopes,
		Sites:   k.Sites,
		Nets:    k.Nets,
		Expires: k.Expires,
	}) == nil
}

// requireNoWider returns nil when a key like n could do nothing that c cannot.
func (c Caller) requireNoWider(n NewKey) error {
	refuse := func(details string) error {
		return fault.New(fault.Forbidden, "wider_key", "An API key can't create a key with more permissions than its own", details)
	}
	for _, s := range n.Scopes {
		as, err := c.For(s, "")
		if err != nil {
			return refuse("this key does not have the scope " + string(s))
		}
		if len(as.Sites) > 0 {
			c.Sites = as.Sites // a role on some sites: the key can be for those alone
		}
	}
	if len(c.Sites) > 0 {
		if len(n.Sites) == 0 {
			return refuse("this key is restricted to some sites: name those of the new one in sites")
		}
		for _, s := range n.Sites {
			if !slices.Contains(c.Sites, s) {
				return refuse("this key is restricted to other sites")
			}
		}
	}
	if len(c.Nets) > 0 {
		if len(n.Nets) == 0 {
			return refuse("this key is restricted to some addresses: name those of the new one in addresses")
		}
		for _, p := range n.Nets {
			if !slices.ContainsFunc(c.Nets, func(own netip.Prefix) bool { return own.Bits() <= p.Bits() && own.Contains(p.Addr()) }) {
				return refuse("this key is restricted to other addresses")
			}
		}
	}
	if c.Expires != 0 && (n.Expires == 0 || n.Expires > c.Expires) {
		return refuse("this key expires at " + c.Expires.String() + ": the new one must not expire later")
	}
	return nil
}
