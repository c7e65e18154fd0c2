package sso

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	maxAge = 10 * time.Minute // of an ID token, which is made for this sign-in
	skew   = 5 * time.Minute  // tolerated lead of an issuer's clock
)

// claims holds claims of an ID token or the userinfo endpoint.
type claims struct {
	Email    string   `json:"email"`
	Verified flag     `json:"email_verified"`
	Party    string   `json:"azp"`
	Hosted   string   `json:"hd"`       // Google: the Workspace domain
	Tenant   string   `json:"tid"`      // Microsoft
	Owned    flag     `json:"xms_edov"` // Microsoft: the address's domain is verified and belongs to the tenant
	IssuedAt *float64 `json:"iat"`
}

// flag is a boolean that some providers encode as a string or number.
type flag bool

// UnmarshalJSON treats true, "true" and 1 as true and everything else as false.
func (f *flag) UnmarshalJSON(b []byte) error {
	*f = flag(slices.Contains([]string{`true`, `"true"`, `1`, `"1"`}, strings.ToLower(string(b))))
	return nil
}

// exchange redeems a code and stores the issuer's claims in proof.
func (s *SSO) exchange(ctx context.Context, at *issuer, proof *Proof, secret, code string, keep secrets) error {
	ctx = oidc.ClientContext(ctx, s.out)
	p := proof.Provider
	token, err := s.client(p, at.Endpoint(), secret).Exchange(ctx, code, oauth2.VerifierOption(keep.Verifier))
	if err != nil {
		return fmt.Errorf("exchange code: %w", err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, c, err := verify(ctx, at, p, raw, keep.Nonce)
	if err != nil {
		return err
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return err
		}
	}
	if c.Email == "" && at.UserInfoEndpoint() != "" {
		more, err := at.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return fmt.Errorf("read userinfo: %w", err)
		}
		if more.Subject != id.Subject {
			return errors.New("userinfo is about another user")
		}
		var said claims
		if err := more.Claims(&said); err != nil {
			return err
		}
		c.Email, c.Verified = said.Email, said.Verified
	}
	proof.Subject, proof.Email = id.Subject, c.Email
	proof.Verified = c.verified(p.Kind)
	return nil
}

// verify checks an ID token as OpenID Connect Core §3.1.3.7 requires. go-oidc only accepts public-key signatures and
// never "none" or HMAC, whatever the issuer or token says.
func verify(ctx context.Context, at *issuer, p Provider, raw, nonce string) (*oidc.IDToken, claims, error) {
	var c claims
	if raw == "" {
		return nil, c, errors.New("no ID token")
	}
	id, err := at.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, c, err
	}
	if err := id.Claims(&c); err != nil {
		return nil, c, err
	}
	now := time.Now()
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1:
		return nil, c, errors.New("the nonce is another sign-in's")
	case id.Issuer != p.Issuer:
		return nil, c, fmt.Errorf("the ID token's issuer is %q", id.Issuer)
	case len(id.Audience) > 1 && c.Party == "", c.Party != "" && c.Party != p.ClientID:
		return nil, c, fmt.Errorf("the ID token was made for another client (%q)", c.Party)
	case c.IssuedAt == nil || id.IssuedAt.Before(now.Add(-maxAge)) || id.IssuedAt.After(now.Add(skew)):
		return nil, c, fmt.Errorf("the ID token was issued at %s", id.IssuedAt)
	case p.Kind == Microsoft && p.Issuer != "https://login.microsoftonline.com/"+c.Tenant+"/v2.0":
		return nil, c, fmt.Errorf("the account is of the tenant %q", c.Tenant)
	}
	return id, c, nil
}

// verified reports whether the address belongs to the person, by the rules of each kind: Google vouches for Gmail and
// the account's own Workspace domain, Microsoft only for addresses with xms_edov.
func (c claims) verified(kind Kind) bool {
	_, domain, ok := strings.Cut(strings.ToLower(c.Email), "@")
	if !ok {
		return false
	}
	switch kind {
	case Google:
		return bool(c.Verified) && (domain == "gmail.com" || domain == strings.ToLower(c.Hosted))
	case Microsoft:
		return bool(c.Owned)
	}
	return bool(c.Verified)
}

// plainSubject reports whether a subject is well-formed (OpenID Connect Core §2).
func plainSubject(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
