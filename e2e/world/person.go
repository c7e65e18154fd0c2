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

// Person is somebody at the dashboard: a browser that keeps cookies and follows redirects, without scripts.
type Person struct {
	Client *http.Client
	base   string
}

// Person signs a user in at the dashboard.
func (w *World) Person(email string) (*Person, error) {
	client, err := w.Browser() // finds the sites, too
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

// Page is where a person has come to.
type Page struct {
	URL    *url.URL
	Status int
	Onward string // the address that the page leads to by itself; empty: none
	Body   string
}

// Open follows an address, or sends a form there.
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

// decision fills in the form of a consent page.
func decision(page Page, decision string) url.Values {
	form := url.Values{"decision": {decision}, "reach": {"all"}, "expires": {"1d"}}
	for _, m := range offeredScope.FindAllStringSubmatch(page.Body, -1) {
		form.Add("scopes", m[1])
	}
	return form
}

// Consent decides ("allow" or "deny") about what an app asks for at an address, and returns the one to which the person is
// led back. An app that is refused without a question gets no decision.
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

// Device types a device's code at an address, and decides about it.
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
