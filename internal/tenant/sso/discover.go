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
	discoveryLife = time.Hour        // how long an issuer's metadata is cached
	failureLife   = 5 * time.Second  // how long a failed issuer isn't asked again
	askTime       = 10 * time.Second // for all requests of one sign-in step
)

// discovery caches an issuer's metadata. The holder of lock may access the other fields.
type discovery struct {
	lock   chan struct{}
	issuer string
	to     *issuer
	err    error
	until  time.Time
}

// issuer is the client for an OpenID Connect issuer.
type issuer struct {
	*oidc.Provider
	signsAnswers bool // authorization responses name the issuer (RFC 9207)
}

// discover returns the client for a provider's issuer. Only one goroutine fetches an issuer's metadata while others
// wait for it.
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
		return nil, unreachable(p) // a canceled request says nothing about the issuer
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

// ask fetches an issuer's metadata and validates its URLs.
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

// client returns the oauth2 configuration of a provider.
func (s *SSO) client(p Provider, e oauth2.Endpoint, secret string, scopes ...string) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: secret, Endpoint: e, RedirectURL: s.Callback(p.ID), Scopes: scopes}
}

// Test checks for `slipway sso test` whether a sign-in can begin.
func (s *SSO) Test(ctx context.Context, p Provider) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := s.open(p); err != nil {
		return err
	}
	if p.Kind == GitHub {
		return nil // GitHub has no metadata; only a sign-in shows whether it works
	}
	_, err := s.ask(ctx, p)
	var mismatch *oidc.IssuerMismatchError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the issuer calls itself %q, and its tokens do too: use exactly that as the issuer", mismatch.Discovered)
	}
	return err
}
