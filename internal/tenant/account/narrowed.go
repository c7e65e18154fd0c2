package account

import (
	"slices"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
)

// Narrowing takes away a part of a credential's rights for one request. It never adds any.
type Narrowing struct {
	Sites    []id.Site // empty: those of the credential
	ReadOnly bool
}

// Narrowed returns the caller with what the narrowing leaves, or a Forbidden fault where no site is left.
func (c Caller) Narrowed(n Narrowing) (Caller, error) {
	if n.ReadOnly {
		c.Admin = false
		c.Scopes, c.granted = c.Scopes.reading(), c.granted.reading()
	}
	if len(n.Sites) == 0 {
		return c, nil
	}
	c.Admin = false
	if len(c.Sites) == 0 {
		c.Sites = slices.Clone(n.Sites)
		return c, nil
	}
	var both []id.Site
	for _, id := range n.Sites {
		if slices.Contains(c.Sites, id) {
			both = append(both, id)
		}
	}
	if len(both) == 0 { // not nil: no sites would mean all
		return c, fault.New(fault.Forbidden, "site_not_allowed", "The "+c.credential()+" has no access to these sites",
			"it is restricted to other sites")
	}
	c.Sites = both
	return c, nil
}

// reading returns those scopes, as far as these include them, that change nothing.
func (s Scopes) reading() (out Scopes) {
	for _, one := range AllScopes {
		if strings.HasSuffix(string(one), ":read") && s.Include(one) {
			out = append(out, one)
		}
	}
	return out
}
