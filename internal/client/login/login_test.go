package login

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// Ten concurrent commands exchange an old refresh token once, because using it twice would end the grant.
func TestRefreshIsExchangedOnce(t *testing.T) {
	t.Parallel()
	var exchanged atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("refresh_token") != "old" || r.FormValue("client_id") != clientID {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		exchanged.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"new","refresh_token":"next","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "slipway", "auth.json")
	old := &oauth2.Token{AccessToken: "stale", RefreshToken: "old", Expiry: time.Now().Add(-time.Hour)}
	if err := At(path).Put(srv.URL, Account{Token: old}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if token, err := At(path).Token(t.Context(), srv.Client(), srv.URL); err != nil || token != "new" {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	wg.Wait()
	if n := exchanged.Load(); n != 1 {
		t.Errorf("exchanged %d times", n)
	}
	a, err := At(path).Account(srv.URL)
	if err != nil || a.Token.RefreshToken != "next" {
		t.Errorf("%+v, %v", a, err)
	}
}

// After the grant was revoked, the error says to sign in again.
func TestRevokedGrant(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
	}))
	t.Cleanup(srv.Close)
	s := At(filepath.Join(t.TempDir(), "auth.json"))
	if err := s.Put(srv.URL, Account{Token: &oauth2.Token{RefreshToken: "gone", Expiry: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Token(t.Context(), srv.Client(), srv.URL); !errors.Is(err, ErrSignedOut) {
		t.Errorf("%v", err)
	}
}

// Only the user can read the file, and a file that others can read is refused.
func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "slipway", "auth.json")
	s := At(path)
	if err := s.Put("https://a.example", Account{Key: "slw_a"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if dir, _ := os.Stat(filepath.Dir(path)); dir.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v", dir.Mode())
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Account("https://a.example"); err == nil || !strings.Contains(err.Error(), "read by others") {
		t.Errorf("%v", err)
	}
}

// Each installation has its own account. The one signed in to last is the default.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := At(filepath.Join(t.TempDir(), "auth.json"))
	for _, server := range []string{"https://a.example", "https://b.example"} {
		if err := s.Put(server, Account{Key: "slw_" + server}); err != nil {
			t.Fatal(err)
		}
	}
	if d, _ := s.Default(); d != "https://b.example" {
		t.Errorf("the default is %s", d)
	}
	if a, err := s.Account("https://a.example"); err != nil || a.Key != "slw_https://a.example" {
		t.Errorf("%+v, %v", a, err)
	}
	if err := s.Remove("https://b.example"); err != nil {
		t.Fatal(err)
	}
	if d, _ := s.Default(); d != "https://a.example" {
		t.Errorf("the default is %s", d)
	}
	if err := s.Remove("https://b.example"); !errors.Is(err, ErrSignedOut) {
		t.Errorf("%v", err)
	}
}

// The device grant shows the URL, waits until the user decides, and reports the decision.
func TestDevice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, want string }{
		"approved": {`{"access_token":"a","refresh_token":"r","token_type":"Bearer","expires_in":3600}`, ""},
		"denied":   {`{"error":"access_denied"}`, "denied"},
		"expired":  {`{"error":"expired_token"}`, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			polls := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == "/oauth/device" {
					fmt.Fprint(w, `{"device_code":"d","user_code":"BCDF-GHJK","verification_uri":"https://s.example/device","expires_in":600,"interval":1}`)
					return
				}
				answer := tt.answer
				polls++
				if polls == 1 {
					answer = `{"error":"authorization_pending"}`
				}
				if strings.Contains(answer, "error") {
					w.WriteHeader(http.StatusBadRequest)
				}
				fmt.Fprint(w, answer)
			}))
			t.Cleanup(srv.Close)
			var shown string
			token, err := Device(t.Context(), srv.Client(), srv.URL, []string{"sites:read"}, func(address, code string) { shown = address + " " + code })
			if shown != "https://s.example/device BCDF-GHJK" {
				t.Errorf("shown: %q", shown)
			}
			if tt.want == "" && (err != nil || token.RefreshToken != "r") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%+v, %v", token, err)
			}
			if polls != 2 {
				t.Errorf("%d polls", polls)
			}
		})
	}
}
