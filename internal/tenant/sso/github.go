package sso

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/oauth2"
)

// GitHub uses OAuth without OpenID Connect: the user is queried with the access token, which is then discarded.
// GitHub's numeric user ID is permanent; names and addresses aren't.

var githubScopes = []string{"read:user", "user:email"}

// githubAt returns the OAuth endpoint of GitHub or a GitHub Enterprise Server.
func githubAt(p Provider) oauth2.Endpoint {
	return oauth2.Endpoint{
		AuthURL: p.Issuer + "/login/oauth/authorize", TokenURL: p.Issuer + "/login/oauth/access_token", AuthStyle: oauth2.AuthStyleInParams,
	}
}

func githubAPI(p Provider) string {
	if p.Issuer == issuers[GitHub] {
		return "https://api.github.com"
	}
	return p.Issuer + "/api/v3"
}

func (s *SSO) askGitHub(ctx context.Context, proof *Proof, secret, code string, keep secrets) error {
	p := proof.Provider
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.out)
	token, err := s.client(p, githubAt(p), secret).Exchange(ctx, code, oauth2.VerifierOption(keep.Verifier))
	if err != nil {
		return fmt.Errorf("exchange code: %w", err)
	}
	var user struct {
		ID int64 `json:"id"`
	}
	if err := s.read(ctx, token, githubAPI(p)+"/user", &user); err != nil {
		return err
	}
	if user.ID <= 0 {
		return fmt.Errorf("GitHub names no user")
	}
	proof.Subject = strconv.FormatInt(user.ID, 10)
	var emails []struct {
		Email    string `json:"email"`
		Primary  bool   `json:"primary"`
		Verified bool   `json:"verified"`
	}
	if err := s.read(ctx, token, githubAPI(p)+"/user/emails", &emails); err != nil {
		return err
	}
	for _, e := range emails {
		if e.Primary {
			proof.Email, proof.Verified = e.Email, e.Verified
		}
	}
	return nil
}

func (s *SSO) read(ctx context.Context, token *oauth2.Token, address string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	token.SetAuthHeader(r)
	answer, err := s.out.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
