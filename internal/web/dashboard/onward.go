package dashboard

import (
	"context"
	"net/url"
	"strings"

	"slipway/internal/platform/fault"
)

// onward is a page that leads to another host at once. Addresses are followed by a header,
// because the Content Security Policy lets no form of ours end up at another host; a form
// for another host is the one exception, for that host alone.
func onward(o onwardData) answer {
	u, err := url.Parse(o.To)
	if err == nil {
		o.Host = u.Host
	}
	a := page("onward", "Continue to "+o.Host, o)
	a.status = 200
	if o.Manifest == "" {
		a.onward = o.To
	} else {
		a.formTo = u.Scheme + "://" + u.Host
	}
	return a
}

// policyFor is the Content Security Policy of a page with a form for another host.
func policyFor(origin string) string {
	return strings.Replace(policy, "form-action 'self'", "form-action 'self' "+origin, 1)
}

// answerAccess lets a member go on to the protected address that sent them here.
func (d *Dashboard) answerAccess(ctx context.Context, q *request) (answer, error) {
	if d.Members == nil {
		return answer{}, fault.Missing("page")
	}
	to, err := d.Members.Answer(ctx, q.caller.Owner, q.query("ask"))
	if err != nil {
		return answer{}, err
	}
	return onward(onwardData{To: to, Back: true}), nil
}
