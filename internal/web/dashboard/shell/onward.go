package shell

import (
	"net/url"
	"strings"
)

// Onward returns a page that redirects to another host by a header, because the Content Security Policy doesn't allow
// forms that end up at another host. A form for another host is allowed for that host only.
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

// policyFor returns the Content Security Policy of a page with a form for another origin.
func policyFor(origin string) string {
	return strings.Replace(policy, "form-action 'self'", "form-action 'self' "+origin, 1)
}

// OnwardData describes a redirect to another host, by a form or a URL.
type OnwardData struct {
	Host     string
	To       string
	Manifest string // content of the form; empty: no form
	Back     bool   // whether it leads back to where the person came from
}

// AsPopup lets the page that opened this one as a popup see that it has closed, as OAuth clients do.
func (a Answer) AsPopup() Answer {
	a.popup = true
	return a
}

// Leave returns a page that redirects to a URL that a service has validated, which may have a private scheme.
func Leave(name, title string, data any, to string) Answer {
	a := Page(name, title, data)
	a.status, a.onward = 200, to
	return a
}

// With200 marks the page of a form that is shown again without having failed.
func (a Answer) With200() Answer {
	a.status = 200
	return a
}
