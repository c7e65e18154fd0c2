package world

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Person is a user of the dashboard: a browser with cookies and redirects, but without scripts.
type Person struct {
	Client *http.Client
	base   string
}

// Person signs a user in at the dashboard.
func (w *World) Person(email string) (*Person, error) {
	client, err := w.Browser() // also resolves the sites
	if err != nil {
		return nil, err
	}
	if client.Jar, err = cookiejar.New(nil); err != nil {
		return nil, err
	}
	client.CheckRedirect, client.Timeout = nil, time.Minute
	p := &Person{client, "http://" + w.Listen}
	page, err := p.Open(p.base+"/sign-in", url.Values{"email": {email}, "password": {Password}})
	if err == nil && (page.Status != http.StatusOK || page.URL.Path == "/sign-in") {
		err = fmt.Errorf("signing in ends at %s: %d %s", page.URL, page.Status, page.Body)
	}
	return p, err
}

// Page is the page at which a person has arrived.
type Page struct {
	URL    *url.URL
	Status int
	Onward string // URL to which the page redirects by itself; empty if none
	Body   string
}

// Open opens a URL, or submits a form to it.
func (p *Person) Open(at string, form url.Values) (Page, error) {
	body, method := io.Reader(http.NoBody), http.MethodGet
	if form != nil {
		body, method = strings.NewReader(form.Encode()), http.MethodPost
	}
	request, err := http.NewRequest(method, at, body)
	if err != nil {
		return Page{}, err
	}
	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := p.Client.Do(request)
	if err != nil {
		return Page{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	page := Page{URL: answer.Request.URL, Status: answer.StatusCode, Body: string(text)}
	_, page.Onward, _ = strings.Cut(answer.Header.Get("Refresh"), "url=")
	return page, err
}

var (
	sealedRequest = regexp.MustCompile(`name="request" value="([^"]+)"`)
	offeredScope  = regexp.MustCompile(`name="scopes" value="([^"]+)"`)
)

// decision returns the completed form of a consent page.
func decision(page Page, decision string) url.Values {
	form := url.Values{"decision": {decision}, "reach": {"all"}, "expires": {"1d"}}
	for _, m := range offeredScope.FindAllStringSubmatch(page.Body, -1) {
		form.Add("scopes", m[1])
	}
	return form
}

// Consent answers an app's request for access ("allow" or "deny") at a URL, and returns the URL of the redirect. If the
// request is refused without a question, there is no decision.
func (p *Person) Consent(at, decide string) (string, error) {
	page, err := p.Open(at, nil)
	if err == nil && page.Onward == "" {
		found := sealedRequest.FindStringSubmatch(page.Body)
		if found == nil {
			return "", fmt.Errorf("no consent page at %s: %d %s", page.URL, page.Status, page.Body)
		}
		form := decision(page, decide)
		form.Set("request", html.UnescapeString(found[1]))
		page, err = p.Open(page.URL.String(), form)
	}
	if err == nil && page.Onward == "" {
		err = fmt.Errorf("consent ends at %s: %d %s", page.URL, page.Status, page.Body)
	}
	return page.Onward, err
}

// Device enters a device's code at a URL and decides about it.
func (p *Person) Device(at, code, decide string) error {
	page, err := p.Open(at, url.Values{"code": {code}})
	if err != nil {
		return err
	}
	form := decision(page, decide)
	form.Set("code", code)
	page, err = p.Open(at, form)
	if err == nil && !strings.Contains(page.Body, `data-test="done"`) {
		err = fmt.Errorf("the device is not decided about: %d %s", page.Status, page.Body)
	}
	return err
}
