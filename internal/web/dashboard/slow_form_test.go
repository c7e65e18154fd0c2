package dashboard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// meanwhile is a body that calls happens before its first byte.
type meanwhile struct {
	happens func()
	io.Reader
}

func (m *meanwhile) Read(b []byte) (int, error) {
	if m.happens != nil {
		m.happens()
		m.happens = nil
	}
	return m.Reader.Read(b)
}

// If the sender of a form is signed out while its body arrives, the form does nothing. A stolen session can't be
// extended by sending slowly.
func TestFormThatOutlivesItsSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, w *world, u account.User){
		"nothing": func(*testing.T, *world, account.User) {},
		"signed out": func(t *testing.T, w *world, u account.User) {
			must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := w.dash.Accounts.EndSessionsTx(t.Context(), tx, u.ID, "")
				return err
			}))
		},
		"another password": func(t *testing.T, w *world, u account.User) {
			must(t, w.dash.Accounts.SetPassword(t.Context(), u.ID, "another good passphrase 17"))
		},
		"no operator any more": func(t *testing.T, w *world, u account.User) {
			must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, err := w.dash.Accounts.SetRoleTx(t.Context(), tx, u.ID, false)
				return err
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.user("op@example.test", true)
			u := w.user("ada@example.test", true)
			b := w.as("ada@example.test")
			at, err := url.Parse(w.srv.URL)
			must(t, err)
			send := func(path string, form url.Values, happens func()) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), "POST", w.srv.URL+path, &meanwhile{
					happens,
					strings.NewReader(form.Encode()),
				})
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				for _, c := range b.client.Jar.Cookies(at) {
					r.AddCookie(c)
				}
				rec := httptest.NewRecorder()
				w.dash.Handler().ServeHTTP(rec, r)
				return rec
			}
			form, path := url.Values{"name": {"CI"}, "scopes": {"sites:read"}, "expires": {"30d"}}, "/account/keys/new"
			if name == "no operator any more" {
				form, path = url.Values{"email": {"friend@example.test"}, "role": {"operator"}}, "/operator/users/invite"
			}
			a := send(path, form, func() { end(t, w, u) })
			keys, err := w.dash.Accounts.ListKeys(t.Context(), u.Caller())
			must(t, err)
			_, err = w.dash.Accounts.UserByEmail(t.Context(), "friend@example.test")
			if name == "nothing" {
				if a.Code != http.StatusOK || len(keys) != 1 {
					t.Errorf("an ordinary form: %d, %d keys", a.Code, len(keys))
				}
			} else if a.Code == http.StatusOK || len(keys) != 0 || err == nil {
				t.Errorf("status %d, %d keys, invited: %v", a.Code, len(keys), err == nil)
			}
		})
	}
}
