package shell

import (
	"net/url"
	"strings"
)

// Onward is a page that leads to another host at once. Addresses are followed by a header,
// because the Content Security Policy lets no form of ours end up at another host; a form
// for another host is the one exception, for that host alone.
func Onward(o OnwardData) Answer {
	u, err := url.Parse(o.To)
	if err == nil {
		o.Host = u.Host
	}
	a := Page("onward", "Continue to "+o.Host, o)
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

// OnwardData is a page that leads to another host: by a form, or by an address.
type OnwardData struct {
	Host     string
	To       string
	Manifest string // that the form sends; empty: there is no form
	Back     bool   // to where they came from
}

// AsPopup lets the page that opened this one as a popup learn that it has closed, as clients of OAuth do.
func (a Answer) AsPopup() Answer {
	a.popup = true
	return a
}

// Leave is a page that leads to another address at once: one that a service has checked, also of a private scheme.
func Leave(name, title string, data any, to string) Answer {
	a := Page(name, title, data)
	a.status, a.onward = 200, to
	return a
}

// With200 is the page of a form that did not fail, although it is shown again.
func (a Answer) With200() Answer {
	a.status = 200
	return a
}
