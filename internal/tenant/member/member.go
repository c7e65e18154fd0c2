// Package member owns the proof that a visitor of a protected address is a member of the site: the edge's question, the
// control plane's grant, and the cookie.
//
// It stores nothing. All three are encrypted and valid for one purpose, site and host. The cookie names the member and
// their session, and both are checked again every few seconds.
package member

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A protected address needs a question sealed by the edge, a grant sealed by the control plane, and a cookie. Each is
// bound to its purpose, so that one can't be used as another, and to the site and host, so that it can't be used
// elsewhere.
const (
	questionPurpose = "member question"
	grantPurpose    = "member grant"
	cookiePurpose   = "member cookie"

	questionTime = 15 * time.Minute
	grantTime    = time.Minute
	cookieTime   = time.Hour       // lifetime of a cookie, after which membership is proven again
	teamTime     = 5 * time.Minute // the same on a team's site, whose members change more often
	recheck      = 3 * time.Second // how long a positive check is cached
	maxStanding  = 20_000          // cached visitors
)

// Config holds what Members needs.
type Config struct {
	Seal      *seal.Sealer
	DB        *db.DB
	Sites     *site.Sites
	Accounts  *account.Accounts
	BaseURL   string // the control plane's
	GrantPath string // path on each host that accepts grants
}

// Members decides who may see protected addresses.
type Members struct {
	c Config

	mu sync.Mutex // guards standing
	// share: total 20,000 members that were at protected addresses lately; owner those of its sites; edge more are asked about at each request
	standing map[visitor]found
}

// visitor is a cookie's holder on a site.
type visitor struct {
	user    account.UserID
	session account.SessionID
	site    site.ID
}

// found is a cached check.
type found struct {
	member bool
	at     time.Time
}

func New(c Config) *Members { return &Members{c: c, standing: map[visitor]found{}} }

// sealedAnswer is the content of all three.
type sealedAnswer struct {
	Site  site.ID `json:"s"`
	Host  string  `json:"h"`
	Path  string  `json:"p,omitempty"`
	Nonce string  `json:"n,omitempty"`
	Until int64   `json:"u"` // Unix time
	Team  bool    `json:"t,omitempty"`
	User  string  `json:"w,omitempty"` // holder of the grant or cookie; empty: made by an older version
	From  string  `json:"f,omitempty"` // the session at the control plane; empty: made by an older version
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

// Ask returns the control plane's URL for a question.
func (m *Members) Ask(q visit.Question) string {
	return m.c.BaseURL + "/access?ask=" + url.QueryEscape(m.seal(questionPurpose, sealedAnswer{
		Site:  q.Site,
		Host:  q.Host,
		Path:  q.Path,
		Nonce: q.Nonce,
	}, questionTime))
}

// Granted opens a grant. ok is false if it is invalid or expired.
func (m *Members) Granted(grant string) (q visit.Question, until time.Time, ok bool) {
	a, ok := m.open(grantPurpose, grant)
	life := cookieTime
	if a.Team {
		life = teamTime
	}
	return visit.Question{Site: a.Site, Host: a.Host, Path: a.Path, Nonce: a.Nonce, User: a.User, Session: a.From}, time.Now().Add(life), ok
}

// Pass returns a cookie's value for the member in q, valid on host until the given time.
func (m *Members) Pass(q visit.Question, host string, until time.Time) string {
	return m.seal(cookiePurpose, sealedAnswer{User: q.User, From: q.Session, Site: q.Site, Host: host}, time.Until(until))
}

// Passes reports whether a cookie's value is valid and its holder is still a member of the site.
func (m *Members) Passes(ctx context.Context, value string, at site.ID, host string) bool {
	a, ok := m.open(cookiePurpose, value)
	if !ok || a.Site != at || a.Host != host {
		return false
	}
	return a.User == "" || m.still(ctx, visitor{account.UserID(a.User), account.SessionID(a.From), at})
}

// still reports whether a visitor is a member, or was at the last check within recheck. If the database is unavailable,
// the cookie is valid until it expires, since sites are served without the database.
func (m *Members) still(ctx context.Context, v visitor) bool {
	m.mu.Lock()
	last, known := m.standing[v]
	m.mu.Unlock()
	now := time.Now()
	if known && now.Sub(last.at) < recheck {
		return last.member
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := m.admitUser(ctx, v)
	if err != nil && fault.As(err) == nil {
		return !known || last.member
	}
	member := err == nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.standing) >= maxStanding {
		maps.DeleteFunc(m.standing, func(_ visitor, f found) bool { return now.Sub(f.at) >= recheck })
	}
	if len(m.standing) < maxStanding {
		m.standing[v] = found{member, now}
	}
	return member
}

// admitUser is admit for a cookie's holder, whose session must still be open.
func (m *Members) admitUser(ctx context.Context, v visitor) error {
	who, err := m.c.Accounts.User(ctx, v.user)
	if err != nil {
		return err
	}
	if who.Suspended != 0 {
		return &fault.Error{Kind: fault.Forbidden, Message: "This account is suspended", Code: "account_suspended"}
	}
	var in account.Session
	if v.session != "" {
		if in, err = m.c.Accounts.OpenSession(ctx, v.user, v.session); err != nil {
			return err
		}
	}
	s, err := m.c.Sites.ByID(ctx, m.c.DB, v.site)
	if err != nil {
		return err
	}
	return m.admit(ctx, who, in, s)
}

// Answer returns the URL on the asking host that carries the grant for a question. It returns a fault to users who
// aren't members. in is their session.
func (m *Members) Answer(ctx context.Context, who account.User, in account.Session, ask string) (string, error) {
	q, ok := m.open(questionPurpose, ask)
	if !ok {
		return "", fault.New(fault.Invalid, "invalid_question", "This link has expired", "open the page again")
	}
	s, err := m.c.Sites.ByID(ctx, m.c.DB, q.Site)
	if err == nil {
		err = m.admit(ctx, who, in, s)
	}
	if f := fault.As(err); f != nil && f.Code != "two_factor_required" && f.Code != "sso_required" {
		return "", fault.New(fault.Forbidden, "no_member", "Only members of this site can see this page",
			"sign in with another account, or ask the site's owner")
	}
	if err != nil {
		return "", err
	}
	grant := m.seal(grantPurpose, sealedAnswer{
		Site: s.ID, Host: q.Host, Path: q.Path, Nonce: q.Nonce, Team: s.Owner != who.Owner,
		User: string(who.ID), From: string(in.ID),
	}, grantTime)
	return "https://" + q.Host + m.c.GrantPath + "?grant=" + url.QueryEscape(grant), nil
}

// admit returns nil if a user may read the site as its owner or through a team role.
func (m *Members) admit(ctx context.Context, who account.User, in account.Session, s site.Site) error {
	c, err := m.c.Accounts.CallerIn(ctx, who, in, s.Owner)
	if err != nil {
		return err
	}
	return c.RequireOn(account.SitesRead, s.ID)
}
