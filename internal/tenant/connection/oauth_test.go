package connection

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

const (
	clientID     = "client-7f31"
	clientSecret = "client-secret-9d02"
)

// oauthStandIn is a fake OAuth server as the provider documents it: codes and refresh tokens work once, need the PKCE
// verifier, and are valid only for the app.
type oauthStandIn struct {
	t        *testing.T
	provider forge.Provider
	srv      *httptest.Server

	mu        sync.Mutex // guards the rest
	challenge string     // of the issued code
	code      string
	refresh   string // the valid one
	token     string // the valid one
	n         int    // tokens issued
	refreshes int
	revoked   []string
	life      int // seconds
	down      bool
	slow      time.Duration
}

func newOAuthStandIn(t *testing.T, p forge.Provider) *oauthStandIn {
	s := &oauthStandIn{t: t, provider: p, life: 7200}
	e := oauthOf[p]
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+e.token, s.issue)
	if e.revoke != "" {
		mux.HandleFunc("POST "+e.revoke, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.isApp(r) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			s.revoked = append(s.revoked, r.PostFormValue("token"))
			fmt.Fprint(w, "{}")
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		scheme := map[bool]string{true: "token ", false: "Bearer "}[p == forge.Gitea]
		if r.Header.Get("Authorization") != scheme+s.token {
			http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"login": "octo", "username": "octo"}`)
	})
	s.srv = httptest.NewServer(mux)
	t.Cleanup(s.srv.Close)
	return s
}

// isApp reports whether the request authenticates the app in the way of this provider.
func (s *oauthStandIn) isApp(r *http.Request) bool {
	if s.provider == forge.Bitbucket {
		id, secret, _ := r.BasicAuth()
		return id == clientID && secret == clientSecret && r.PostFormValue("client_secret") == ""
	}
	return r.PostFormValue("client_id") == clientID && r.PostFormValue("client_secret") == clientSecret
}

func (s *oauthStandIn) issue(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.slow)
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "refused " + code})
	}
	if r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		refuse(400, "invalid_request")
		return
	}
	switch {
	case s.down:
		http.Error(w, "down", http.StatusBadGateway)
		return
	case !s.isApp(r):
		refuse(401, "invalid_client")
		return
	}
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if s.code == "" || r.PostFormValue("code") != s.code || base64.RawURLEncoding.EncodeToString(sum[:]) != s.challenge ||
			r.PostFormValue("redirect_uri") != "https://slipway.test/account/git/callback" {
			refuse(400, "invalid_grant")
			return
		}
		s.code = ""
	case "refresh_token":
		s.refreshes++
		if r.PostFormValue("refresh_token") != s.refresh {
			refuse(400, "invalid_grant")
			return
		}
	default:
		refuse(400, "unsupported_grant_type")
		return
	}
	s.n++
	s.token, s.refresh = fmt.Sprintf("access-%d", s.n), fmt.Sprintf("refresh-%d", s.n)
	json.NewEncoder(w).Encode(map[string]any{
		"access_token":  s.token,
		"token_type":    "bearer",
		"expires_in":    s.life,
		"refresh_token": s.refresh,
		"scope":         "api",
	})
}

// allow simulates a user who presses Allow at the authorization URL, and returns the query of the redirect back.
func (s *oauthStandIn) allow(to string) url.Values {
	s.t.Helper()
	u, err := url.Parse(to)
	must(s.t, err)
	q := u.Query()
	if u.Path != oauthOf[s.provider].authorize || u.Scheme != "https" || q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("state")) < 43 || q.Get("redirect_uri") != "https://slipway.test/account/git/callback" ||
		strings.Contains(to, clientSecret) {
		s.t.Errorf("sign-in at %s", to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.challenge = "code-"+q.Get("state")[:8], q.Get("code_challenge")
	return url.Values{"code": {s.code}, "state": {q.Get("state")}}
}

func (s *oauthStandIn) count() (refreshes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

func newOAuthWorld(t *testing.T, host string, srv *httptest.Server) *world {
	w := newWorld(t, host, &standIn{srv: srv})
	w.c.Base, w.c.Hooks = "https://slipway.test", "https://slipway.test"
	return w
}

func (w *world) app(p forge.Provider, host string) (a App) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) {
		a, err = w.CreateAppTx(w.t.Context(), tx, NewApp{Provider: p, Host: host, ClientID: clientID, Secret: clientSecret})
		return err
	})
	return a
}

func (w *world) begin(session account.SessionID, a AppID, report bool) (to string) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) { to, err = w.BeginTx(w.t.Context(), tx, session, a, report); return err })
	return to
}

func (w *world) store(owner account.OwnerID, k Checked) (c Connection) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) { c, err = w.CreateTx(w.t.Context(), tx, owner, k); return err })
	return c
}

// Users can connect each provider by OAuth with PKCE and a state that works once, in the session that created it.
// Tokens are encrypted in the database.
func TestSignInAtForges(t *testing.T) {
	t.Parallel()
	for p, x := range map[forge.Provider]struct{ host, scope, less, user string }{
		forge.GitLab:    {"gitlab.test", "api", "read_api read_repository", "oauth2"},
		forge.Gitea:     {"git.test", "read:user write:repository write:issue", "read:user read:repository", "octo"},
		forge.Bitbucket: {"bitbucket.org", "", "", "x-token-auth"},
	} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			s := newOAuthStandIn(t, p)
			w := newOAuthWorld(t, x.host, s.srv)
			a := w.app(p, x.host)
			for report, want := range map[bool]string{true: x.scope, false: x.less} {
				u, err := url.Parse(w.begin("ses_1", a.ID, report))
				must(t, err)
				if got := u.Query().Get("scope"); got != want || u.Host != x.host {
					t.Errorf("report %v: scope %q at %s", report, got, u.Host)
				}
			}
			back := s.allow(w.begin("ses_1", a.ID, true))
			for name, bad := range map[string]struct {
				session account.SessionID
				q       url.Values
			}{
				"another session": {"ses_2", back},
				"no session":      {"", back},
				"a forged state":  {"ses_1", url.Values{"code": back["code"], "state": {strings.Repeat("x", 43)}}},
				"no state":        {"ses_1", url.Values{"code": back["code"]}},
			} {
				if _, _, err := w.Finish(t.Context(), bad.session, bad.q); fault.As(err) == nil || fault.As(err).Code != "invalid_state" {
					t.Errorf("%s: %v", name, err)
				}
			}
			k, _, err := w.Finish(t.Context(), "ses_1", back)
			must(t, err)
			if _, _, err := w.Finish(t.Context(), "ses_1", back); fault.As(err) == nil || fault.As(err).Code != "invalid_state" {
				t.Errorf("the same answer again: %v", err)
			}
			c := w.store(anna, k)
			if c.Login != "octo" || c.App != a.ID || c.ExpiresAt == 0 || c.Ended {
				t.Errorf("connected as %+v", c)
			}
			cred, err := w.CredentialFor(t.Context(), anna, c.ID, x.host+"/octo/site")
			must(t, err)
			if cred.Token != "access-1" || cred.User != x.user || cred.Host != x.host {
				t.Errorf("read with %s %s at %s", cred.User, cred.Token, cred.Host)
			}
			for _, q := range []string{`SELECT token FROM connections`, `SELECT secrets FROM git_apps`} {
				var stored string
				must(t, w.db.QueryRow(t.Context(), q).Scan(&stored))
				if strings.Contains(stored, "access-") || strings.Contains(stored, "refresh-") || strings.Contains(stored, clientSecret) {
					t.Errorf("%s: %s", q, stored)
				}
			}
			refused := w.begin("ses_1", a.ID, true)
			u, _ := url.Parse(refused)
			_, _, err = w.Finish(t.Context(), "ses_1", url.Values{
				"state":             {u.Query().Get("state")},
				"error":             {"access_denied"},
				"error_description": {"You said no"},
			})
			if f := fault.As(err); f == nil || f.Code != "sign_in_refused" || f.Details != "You said no" {
				t.Errorf("refused at the forge: %v", err)
			}
			back = s.allow(w.begin("ses_1", a.ID, true))
			back.Set("code", "another")
			if _, _, err = w.Finish(t.Context(), "ses_1", back); fault.As(err) == nil || fault.As(err).Code != "sign_in_refused" {
				t.Errorf("a forged code: %v", err)
			}
			w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
			w.drain()
			if want := map[bool]string{true: "[access-1]", false: "[]"}[oauthOf[p].revoke != ""]; fmt.Sprint(s.revoked) != want {
				t.Errorf("revoked %v, want %s", s.revoked, want)
			}
		})
	}
}

// When several nodes need a token that is about to expire, one node refreshes it and all use the new one, because a
// refresh token works once.
func TestOneRefreshes(t *testing.T) {
	t.Parallel()
	s := newOAuthStandIn(t, forge.GitLab)
	s.life, s.slow = 60, 200*time.Millisecond
	w := newOAuthWorld(t, "gitlab.test", s.srv)
	a := w.app(forge.GitLab, "gitlab.test")
	k, _, err := w.Finish(t.Context(), "ses_1", s.allow(w.begin("ses_1", a.ID, true)))
	must(t, err)
	c := w.store(anna, k)
	s.mu.Lock()
	s.life = 7200
	s.mu.Unlock()
	other := New(w.c) // another node
	var all sync.WaitGroup
	got := make([]string, 16)
	for i := range got {
		all.Go(func() {
			of := []*Connections{w.Connections, other}[i%2]
			cred, err := of.CredentialFor(t.Context(), anna, c.ID, "gitlab.test/octo/site")
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = cred.Token
		})
	}
	all.Wait()
	for _, token := range got {
		if token != "access-2" {
			t.Fatalf("tokens %v", got)
		}
	}
	if n := s.count(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
	if c, err = w.Get(t.Context(), w.db, anna, c.ID); err != nil || c.ExpiresAt.Time().Before(time.Now().Add(time.Hour)) {
		t.Errorf("afterwards %+v, %v", c, err)
	}
}

// A provider that is down doesn't end a connection. One that rejects the tokens does, until the user signs in again.
func TestConnectionEnds(t *testing.T) {
	t.Parallel()
	s := newOAuthStandIn(t, forge.GitLab)
	w := newOAuthWorld(t, "gitlab.test", s.srv)
	a := w.app(forge.GitLab, "gitlab.test")
	k, _, err := w.Finish(t.Context(), "ses_1", s.allow(w.begin("ses_1", a.ID, true)))
	must(t, err)
	c := w.store(anna, k)
	expire := func() {
		w.write(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE connections SET expires_at = $1`, db.Now())
			return err
		})
	}
	read := func() error {
		_, err := w.CredentialFor(t.Context(), anna, c.ID, "gitlab.test/octo/site")
		return err
	}
	expire()
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	if err := read(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while the forge is down: %v", err)
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	must(t, read())
	expire()
	s.mu.Lock()
	s.refresh = "revoked at the forge"
	s.mu.Unlock()
	before := s.count()
	for range 3 {
		if f := fault.As(read()); f == nil || f.Code != "connection_ended" {
			t.Fatalf("after it was revoked: %v", f)
		}
	}
	if n := s.count() - before; n != 1 {
		t.Errorf("%d attempts with a refresh token that is refused", n)
	}
	if c, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || !c.Ended {
		t.Errorf("afterwards %+v, %v", c, err)
	}
	k, _, err = w.Finish(t.Context(), "ses_1", s.allow(w.begin("ses_1", a.ID, true)))
	must(t, err)
	if again := w.store(anna, k); again.ID != c.ID || again.Ended {
		t.Errorf("connected again as %+v", again)
	}
	must(t, read())
	w.write(func(tx *db.Tx) error { _, err := w.DeleteAppTx(t.Context(), tx, a.ID); return err })
	if list, err := w.List(t.Context(), w.db, anna); err != nil || len(list) != 0 {
		t.Errorf("after its app was deleted: %v, %v", list, err)
	}
}

// Unused tokens are refreshed once a week so that their refresh tokens don't expire.
func TestUnusedTokensAreRefreshed(t *testing.T) {
	t.Parallel()
	s := newOAuthStandIn(t, forge.Gitea)
	w := newOAuthWorld(t, "git.test", s.srv)
	a := w.app(forge.Gitea, "git.test")
	k, _, err := w.Finish(t.Context(), "ses_1", s.allow(w.begin("ses_1", a.ID, true)))
	must(t, err)
	w.store(anna, k)
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE connections SET refreshed_at = $1`, db.Now().Add(-8*24*time.Hour))
		return err
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	wait.Until(t, "it is refreshed", func() bool { return s.count() > 0 })
	stop()
	must(t, <-done)
}

func TestAppsAreChecked(t *testing.T) {
	t.Parallel()
	w := newOAuthWorld(t, "git.test", httptest.NewServer(http.NotFoundHandler()))
	for name, n := range map[string]NewApp{
		"no host":       {Provider: forge.Gitea, ClientID: "x", Secret: "y"},
		"a path":        {Provider: forge.Gitea, Host: "git.test/x", ClientID: "x", Secret: "y"},
		"GitHub":        {Provider: forge.GitHub, ClientID: "x", Secret: "y"},
		"no id":         {Provider: forge.GitLab, Secret: "y"},
		"no secret":     {Provider: forge.GitLab, ClientID: "x"},
		"a line break":  {Provider: forge.GitLab, ClientID: "x", Secret: "y\nz"},
		"bad bitbucket": {Provider: forge.Bitbucket, Host: "bb.test", ClientID: "x", Secret: "y"},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CreateAppTx(t.Context(), tx, n); return err })
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := w.app(forge.Gitea, "git.test")
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.CreateAppTx(t.Context(), tx, NewApp{Provider: forge.Gitea, Host: "git.test", ClientID: "x", Secret: "y"})
		return err
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a second app for a host: %v", err)
	}
	for range 30 {
		w.begin("ses_1", a.ID, true)
	}
	var n int
	must(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM git_sign_ins`).Scan(&n))
	if n != maxSignIns {
		t.Errorf("%d sign-ins are under way in one session", n)
	}
	k := appSecret{Client: "planted"}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%#v", k), fmt.Sprintf("%+v", k)} {
		if strings.Contains(text, "planted") {
			t.Error(text)
		}
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "k", k)
	if strings.Contains(logged.String(), "planted") {
		t.Error(logged.String())
	}
}
