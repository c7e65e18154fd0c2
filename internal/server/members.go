package server

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"slipway/internal/account"
	"slipway/internal/edge"
	"slipway/internal/fault"
	"slipway/internal/site"
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
	cookieTime   = time.Hour // after which the visitor asks again, and who is no member any more is out
)

// sealedAnswer holds the fields that all three have.
type sealedAnswer struct {
	Site  string `json:"s"`
	Host  string `json:"h"`
	Path  string `json:"p,omitempty"`
	Nonce string `json:"n,omitempty"`
	Until int64  `json:"u"` // Unix time
}

func (h *node) sealAnswer(purpose string, a sealedAnswer, life time.Duration) string {
	a.Until = time.Now().Add(life).Unix()
	text, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	return h.seal.Seal(text, purpose)
}

func (h *node) openAnswer(purpose, text string) (a sealedAnswer, ok bool) {
	if text == "" || len(text) > 8192 {
		return a, false
	}
	plain, err := h.seal.Open(text, purpose)
	if err != nil || json.Unmarshal(plain, &a) != nil || time.Now().Unix() > a.Until {
		return sealedAnswer{}, false
	}
	return a, true
}

// members is how the edge lets members in.
func (h *node) members() *edge.Members {
	return &edge.Members{
		Ask: func(q edge.Question) string {
			return h.s.baseURL + "/access?ask=" + url.QueryEscape(h.sealAnswer(questionPurpose, sealedAnswer{Site: q.Site, Host: q.Host, Path: q.Path, Nonce: q.Nonce}, questionTime))
		},
		Granted: func(grant string) (edge.Question, time.Time, bool) {
			a, ok := h.openAnswer(grantPurpose, grant)
			return edge.Question{Site: a.Site, Host: a.Host, Path: a.Path, Nonce: a.Nonce}, time.Now().Add(cookieTime), ok
		},
		Pass: func(site, host string, until time.Time) string {
			return h.sealAnswer(cookiePurpose, sealedAnswer{Site: site, Host: host}, time.Until(until))
		},
		Passes: func(value, site, host string) bool {
			a, ok := h.openAnswer(cookiePurpose, value)
			return ok && a.Site == site && a.Host == host
		},
	}
}

// answerQuestion returns where a member goes with the grant that answers a question of the
// edge: to the host that asked, and nowhere else. Others get a fault.
func (h *node) answerQuestion(ctx context.Context, who account.OwnerID, ask string) (string, error) {
	q, ok := h.openAnswer(questionPurpose, ask)
	if !ok {
		return "", &fault.Error{Kind: fault.Invalid, Message: "This link has expired", Details: "open the page again", Code: "invalid_question"}
	}
	s, err := h.sites.Get(ctx, who, site.ID(q.Site))
	if fault.Is(err, fault.NotFound) {
		return "", &fault.Error{Kind: fault.Forbidden, Message: "Only members of this site can see this page", Details: "sign in with another account, or ask the site's owner", Code: "no_member"}
	}
	if err != nil {
		return "", err
	}
	grant := h.sealAnswer(grantPurpose, sealedAnswer{Site: string(s.ID), Host: q.Host, Path: q.Path, Nonce: q.Nonce}, grantTime)
	return "https://" + q.Host + edge.GrantPath + "?grant=" + url.QueryEscape(grant), nil
}
