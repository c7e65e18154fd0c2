// Package login owns obtaining and storing the command line's tokens.
//
// One file, readable only by its user, stores tokens by installation. OAuth refresh tokens (device grant, RFC 8628) are
// exchanged while the file is locked, so that two commands never use the same one twice, which would end the grant.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"slipway/internal/platform/disk"
)

// clientID is the command line's OAuth app, which every installation has.
const clientID = "app_slipway_cli"

// ErrSignedOut is returned if a command needs an account and the user isn't signed in.
var ErrSignedOut = errors.New("you aren't signed in")

// Account holds the credentials for one installation.
type Account struct {
	Key    string        `json:"key,omitempty"`   // an API key
	Token  *oauth2.Token `json:"token,omitempty"` // instead of a key
	CAFile string        `json:"caFile,omitempty"`
}

// Store is the file of accounts.
type Store struct{ path string }

type file struct {
	Default string              `json:"default"` // the installation of the last sign-in
	Servers map[string]*Account `json:"servers"`
}

// Open returns this user's store, $XDG_CONFIG_HOME/slipway/auth.json. It reads nothing yet.
func Open() (*Store, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("find where settings are kept: %w", err)
	}
	return &Store{filepath.Join(dir, "slipway", "auth.json")}, nil
}

// At returns a store in the given file.
func At(path string) *Store { return &Store{path} }

// Path returns the file's path.
func (s *Store) Path() string { return s.path }

// Default returns the installation of the last sign-in, or "".
func (s *Store) Default() (string, error) {
	f, err := s.read()
	return f.Default, err
}

// Account returns the credentials for an installation, or ErrSignedOut.
func (s *Store) Account(server string) (Account, error) {
	f, err := s.read()
	if err != nil {
		return Account{}, err
	}
	if a := f.Servers[server]; a != nil {
		return *a, nil
	}
	return Account{}, ErrSignedOut
}

// Put stores an account and makes its installation the default.
func (s *Store) Put(server string, a Account) error {
	return s.change(func(f *file) error {
		f.Servers[server], f.Default = &a, server
		return nil
	})
}

// Remove forgets an account.
func (s *Store) Remove(server string) error {
	return s.change(func(f *file) error {
		if f.Servers[server] == nil {
			return ErrSignedOut
		}
		delete(f.Servers, server)
		if f.Default == server {
			f.Default = ""
			for other := range f.Servers {
				f.Default = other
			}
		}
		return nil
	})
}

// read refuses a file that others may read, since the tokens may be known.
func (s *Store) read() (file, error) {
	f := file{Servers: map[string]*Account{}}
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if !private(info) {
		return f, fmt.Errorf("%s can be read by others: sign in again after chmod 600 %s, and revoke what it held", s.path, s.path)
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s is damaged: remove it and sign in again", s.path)
	}
	if f.Servers == nil {
		f.Servers = map[string]*Account{}
	}
	return f, nil
}

// change rewrites the file while it is locked.
func (s *Store) change(do func(*file) error) error {
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := exclusive(lock); err != nil {
		return fmt.Errorf("lock %s: %w", s.path, err)
	}
	f, err := s.read()
	if err != nil {
		return err
	}
	if err := do(&f); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return disk.Write(s.path, text, 0o600)
}

// Token returns a token for an installation that is valid for at least a minute.
func (s *Store) Token(ctx context.Context, h *http.Client, server string) (string, error) {
	a, err := s.Account(server)
	switch {
	case err != nil:
		return "", err
	case a.Key != "":
		return a.Key, nil
	case a.Token == nil:
		return "", ErrSignedOut
	case time.Until(a.Token.Expiry) > time.Minute:
		return a.Token.AccessToken, nil
	}
	var fresh *oauth2.Token
	err = s.change(func(f *file) error {
		a := f.Servers[server]
		if a == nil || a.Token == nil {
			return ErrSignedOut
		}
		if time.Until(a.Token.Expiry) > time.Minute { // another command refreshed it
			fresh = a.Token
			return nil
		}
		old := &oauth2.Token{RefreshToken: a.Token.RefreshToken}
		t, err := config(server, nil).TokenSource(context.WithValue(ctx, oauth2.HTTPClient, h), old).Token()
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) && refused.ErrorCode == "invalid_grant" {
			return fmt.Errorf("%w any more: the access was revoked or has expired", ErrSignedOut)
		}
		if err != nil {
			return fmt.Errorf("refresh the token: %w", err)
		}
		fresh, a.Token = t, t
		return nil
	})
	if err != nil {
		return "", err
	}
	return fresh.AccessToken, nil
}

func config(server string, scopes []string) *oauth2.Config {
	return &oauth2.Config{ClientID: clientID, Scopes: scopes, Endpoint: oauth2.Endpoint{
		TokenURL: server + "/oauth/token", DeviceAuthURL: server + "/oauth/device", AuthStyle: oauth2.AuthStyleInParams,
	}}
}

// Device signs in with the device grant: show tells the user the address and the code, and Device returns once the user
// has decided.
func Device(ctx context.Context, h *http.Client, server string, scopes []string, show func(address, code string)) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, h)
	c := config(server, scopes)
	d, err := c.DeviceAuth(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for a code: %w", err)
	}
	show(d.VerificationURI, d.UserCode)
	t, err := c.DeviceAccessToken(ctx, d)
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		switch refused.ErrorCode {
		case "access_denied":
			return nil, errors.New("the request was denied in the browser")
		case "expired_token":
			return nil, errors.New("the code has expired: run slipway login again")
		}
	}
	return t, err
}

// Revoke ends a grant at its installation.
func Revoke(ctx context.Context, h *http.Client, server string, t *oauth2.Token) error {
	form := url.Values{"client_id": {clientID}, "token": {t.RefreshToken}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/oauth/revoke", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := h.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	return nil
}
