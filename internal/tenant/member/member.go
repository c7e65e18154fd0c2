// Package member owns the proof that a visitor of a protected address is a member of the
// site: the edge's request, the control plane's grant, and the cookie.
//
// It stores nothing: all three are encrypted, and each is valid for one purpose, site and host.
package member

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// What members of a site see its protected addresses with: a question that the edge seals,
// a grant that the control plane seals, and a cookie. Each is bound to its purpose, so none
// passes for another, and to the site and the host, so none is of use elsewhere.
const (
	questionPurpose = "member question"
	grantPurpose    = "member grant"
	cookiePurpose   = "member cookie"

	questionTime = 15 * time.Minute
	grantTime    = time.Minute
	cookieTime   = time.Hour       // after which the visitor asks again, and who is no member any more is out
	teamTime     = 5 * time.Minute // the same on a site of a team, whose members change
)

// Config holds what Members needs.
type Config struct {
	Seal      *seal.Sealer
	DB        *db.DB
	Sites     *site.Sites
	Accounts  *account.Accounts
	BaseURL   string // of the control plane
	GrantPath string // where a host takes grants
}

// Members answers who may see protected addresses.
type Members struct{ c Config }

// New returns Members.
func New(c Config) *Members { return &Members{c} }

// sealedAnswer holds the fields that all three have.
type sealedAnswer struct {
	Site  string `json:"s"`
	Host  string `json:"h"`
	Path  string `json:"p,omitempty"`
	Nonce string `json:"n,omitempty"`
	Until int64  `json:"u"` // Unix time
	Team  bool   `json:"t,omitempty"`
}

func (m *Members) seal(purpose string, a sealedAnswer, life time.Duration) string {
	a.Until = time.Now().Add(life).Unix()
	text, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	return m.c.Seal.Seal(text, purpose)
}

func (m *Members) open(purpose, text string) (a sealedAnswer, ok bool) {
	if text == "" || len(text) > 8192 {
		return a, false
	}
	plain, err := m.c.Seal.Open(text, purpose)
	if err != nil || json.Unmarshal(plain, &a) != nil || time.Now().Unix() > a.Until {
		return sealedAnswer{}, false
	}
	return a, true
}

// Question holds what a visitor of a protected address asks the control plane.
type Question struct {
	Site  string // its id
	Host  string // that was visited, in lower case, with the port where it is not 443
	Path  string // and query
	Nonce string // of the browser that asks: a grant is of use to it alone
}

// Ask returns the address at the control plane that a question is sent to.
func (m *Members) Ask(q Question) string {
	return m.c.BaseURL + "/access?ask=" + url.QueryEscape(m.seal(questionPurpose, sealedAnswer{
		Site:  q.Site,
		Host:  q.Host,
		Path:  q.Path,
		Nonce: q.Nonce,
	}, questionTime))
}

// Granted returns what a grant answers; false for what is none any more.
func (m *Members) Granted(grant string) (q Question, until time.Time, ok bool) {
	a, ok := m.open(grantPurpose, grant)
	life := cookieTime
	if a.Team {
		life = teamTime
	}
	return Question{Site: a.Site, Host: a.Host, Path: a.Path, Nonce: a.Nonce}, time.Now().Add(life), ok
}

// Pass returns the value of a cookie that is good for a site's host until then.
func (m *Members) Pass(site, host string, until time.Time) string {
	return m.seal(cookiePurpose, sealedAnswer{Site: site, Host: host}, time.Until(until))
}

// Passes reports whether a value is one that is good now.
func (m *Members) Passes(value, site, host string) bool {
	a, ok := m.open(cookiePurpose, value)
	return ok && a.Site == site && a.Host == host
}

// Answer returns where a member goes with the grant that answers a question of the
// edge: to the host that asked, and nowhere else. Others get a fault.
func (m *Members) Answer(ctx context.Context, who account.User, ask string) (string, error) {
	q, ok := m.open(questionPurpose, ask)
	if !ok {
		return "", &fault.Error{
			Kind:    fault.Invalid,
			Message: "This link has expired",
			Details: "open the page again",
			Code:    "invalid_question",
		}
	}
	s, err := m.c.Sites.ByID(ctx, m.c.DB, site.ID(q.Site))
	if err == nil {
		err = m.admit(ctx, who, s)
	}
	if f := fault.As(err); f != nil && f.Code != "two_factor_required" {
		return "", &fault.Error{
			Kind:    fault.Forbidden,
			Message: "Only members of this site can see this page",
			Details: "sign in with another account, or ask the site's owner",
			Code:    "no_member",
		}
	}
	if err != nil {
		return "", err
	}
	grant := m.seal(grantPurpose, sealedAnswer{Site: string(s.ID), Host: q.Host, Path: q.Path, Nonce: q.Nonce, Team: s.Owner != who.Owner}, grantTime)
	return "https://" + q.Host + m.c.GrantPath + "?grant=" + url.QueryEscape(grant), nil
}

// admit is nil for a user who may read the site: as its owner, or by a role in its team.
func (m *Members) admit(ctx context.Context, who account.User, s site.Site) error {
	c, err := m.c.Accounts.CallerFor(ctx, m.c.DB, who, s.Owner)
	if err != nil {
		return err
	}
	return c.RequireOn(account.SitesRead, string(s.ID))
}
