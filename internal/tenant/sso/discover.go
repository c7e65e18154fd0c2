package sso

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"slipway/internal/platform/fault"
)

const (
	discoveryLife = time.Hour        // how long what an issuer said of itself is used
	failureLife   = 5 * time.Second  // how long an issuer that failed is spared
	askTime       = 10 * time.Second // for all that one step of a sign-in asks an issuer
)

// discovery holds the document of an issuer. The holder of lock reads and writes the rest.
type discovery struct {
	lock   chan struct{}
	issuer string
	to     *issuer
	err    error
	until  time.Time
}

// issuer is an issuer of OpenID Connect as it is spoken to.
type issuer struct {
	*oidc.Provider
	signsAnswers bool // the address that people come back to names the issuer (RFC 9207)
}

// discover returns what a provider's issuer says of itself. One at a time asks an issuer, and the others wait for its
// answer.
func (s *SSO) discover(ctx context.Context, p Provider) (*issuer, error) {
	s.mu.Lock()
	d := s.found[p.ID]
	if d == nil || d.issuer != p.Issuer {
		d = &discovery{lock: make(chan struct{}, 1), issuer: p.Issuer}
		s.found[p.ID] = d
	}
	s.mu.Unlock()
	select {
	case d.lock <- struct{}{}:
		defer func() { <-d.lock }()
	case <-ctx.Done():
		return nil, unreachable(p)
	}
	if time.Now().Before(d.until) {
		return d.to, d.err
	}
	to, err := s.ask(ctx, p)
	if ctx.Err() != nil && err != nil {
		return nil, unreachable(p) // whoever asked has gone: that says nothing about the issuer
	}
	life := discoveryLife
	if err != nil {
		s.c.Log.WarnContext(ctx, "sign-in provider not available", "provider", p.ID, "issuer", p.Issuer, "err", err)
		to, err, life = nil, unreachable(p), failureLife
	}
	d.to, d.err, d.until = to, err, time.Now().Add(life)
	return to, err
}

func unreachable(p Provider) error {
	return &fault.Error{
		Kind: fault.Unavailable, Message: p.Name + " is not available", RetryAfter: failureLife,
		Details: "sign in another way, or try again in a moment; the operator's log and `slipway sso test` say what is wrong",
		Code:    "provider_unavailable",
	}
}

// ask reads an issuer's document and checks that each of its addresses may be used.
func (s *SSO) ask(ctx context.Context, p Provider) (*issuer, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, s.out), p.Issuer)
	if err != nil {
		return nil, err
	}
	var says struct {
		JWKS    string   `json:"jwks_uri"`
		Signs   bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&says); err != nil {
		return nil, err
	}
	home, err := url.Parse(p.Issuer)
	if err != nil {
		return nil, err
	}
	e := found.Endpoint()
	for what, address := range map[string]string{
		"authorization_endpoint": e.AuthURL, "token_endpoint": e.TokenURL, "jwks_uri": says.JWKS, "userinfo_endpoint": found.UserInfoEndpoint(),
	} {
		if address == "" && what == "userinfo_endpoint" {
			continue
		}
		if u, err := url.Parse(address); err != nil || u.Host == "" || !secure(u, home) {
			return nil, fmt.Errorf("%s is not an https address", what)
		}
	}
	return &issuer{found, says.Signs}, nil
}

// client is a provider as golang.org/x/oauth2 knows it.
func (s *SSO) client(p Provider, e oauth2.Endpoint, secret string, scopes ...string) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: secret, Endpoint: e, RedirectURL: s.Callback(p.ID), Scopes: scopes}
}

// Test asks a provider's issuer what `slipway sso test` wants to know: whether a sign-in can begin.
func (s *SSO) Test(ctx context.Context, p Provider) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := s.open(p); err != nil {
		return err
	}
	if p.Kind == GitHub {
		return nil // it has no document: the first sign-in tells
	}
	_, err := s.ask(ctx, p)
	var mismatch *oidc.IssuerMismatchError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the issuer calls itself %q, and its tokens do too: use exactly that as the issuer", mismatch.Discovered)
	}
	return err
}
