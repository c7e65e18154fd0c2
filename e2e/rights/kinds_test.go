package rights

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

// kinds gives a right to the stage's member, for each row of the table, and registers with the stage what ends only
// that right.
var kinds = map[string]func(s *stage) *holder{
	"session of the dashboard":              session,
	"API key of a member":                   memberKey,
	"service key of a team":                 serviceKey,
	"access token of an app":                accessToken,
	"refresh token of an app":               refreshToken,
	"authorization code of an app":          authorizationCode,
	"device code that was approved":         deviceCode,
	"deploy hook":                           deployHook,
	"deploy hook that an app made":          appHook,
	"Git hook":                              gitHook,
	"webhook of a team":                     webhook,
	"webhook that an app made":              appWebhook,
	"notification channel of a team":        channel,
	"notification channel that an app made": func(s *stage) *holder { return s.channel(s.granted().access) },
	"listener of slipway webhooks listen":   listener,
	"application log that is followed":      followedLog,
	"application log that an app follows":   func(s *stage) *holder { return s.follow(s.granted().access) },
	"listener of an app":                    func(s *stage) *holder { return s.listen(s.granted().access) },
	"application log on a page":             followedPage,
	"download under way":                    download,
	"terminal of a key":                     keyTerminal,
	"terminal of the dashboard":             pageTerminal,
	"invitation that is not yet accepted":   invitation,
	"offer of a transfer":                   offer,
	"password link":                         passwordLink,
	"credential of a repository":            credential,
	"polling of a repository":               polling,
	"key of a workflow's run":               runKey,
	"sign-in at a protected address":        memberVisit,
	"visitors' password of a site":          passwordVisit,
}

func works(f func() (bool, string)) *holder { return &holder{works: f} }
func once(f func() (bool, string)) *holder  { return &holder{works: f, once: true} }

// ends registers what ends a right itself, for the event Revoked.
func (s *stage) ends(f func()) { s.revoke = append(s.revoke, f) }

// deletes registers a DELETE request of the owner that ends a right.
func (s *stage) deletes(path string) {
	s.ends(func() { s.call(s.ownerTeamKey, "DELETE", path, nil, nil) })
}

// write returns a request that changes the site.
func (s *stage) write(key string) world.Request {
	return world.Request{
		Method: "POST", Path: "/sites/" + s.site + "/env", Key: key, Body: map[string]any{"key": "PROBE", "value": time.Now().String()},
	}
}

func session(s *stage) *holder {
	p := s.person
	s.ends(func() {
		if ok, said := s.open(must(s, s.Person)(s.member), "/account/sessions/end", url.Values{}); !ok {
			s.t.Fatalf("ending the other sessions: %s", said)
		}
	})
	n := 0
	return works(func() (bool, string) {
		n++
		return s.open(p, "/sites/"+s.site+"/env", url.Values{
			"key": {fmt.Sprintf("PROBE_%d", n)}, "value": {"by a session"}, "scope": {"all"}, "target": {"runtime"},
		})
	})
}

// must wraps a function whose error ends the test.
func must[A, B any](s *stage, f func(A) (B, error)) func(A) B {
	return func(a A) B {
		s.t.Helper()
		b, err := f(a)
		s.check(err)
		return b
	}
}

func (s *stage) keyID(holder, key string) string {
	s.t.Helper()
	var list struct {
		Data []struct{ ID, Hint string }
	}
	s.call(holder, "GET", "/keys", nil, &list)
	for _, k := range list.Data {
		if strings.HasPrefix(key, strings.TrimRight(k.Hint, "…")) {
			return k.ID
		}
	}
	s.t.Fatalf("no key like %.12s in %+v", key, list)
	return ""
}

func memberKey(s *stage) *holder {
	key := s.key(s.memberKey, nil)
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	return works(func() (bool, string) { return s.allowed(s.write(key)) })
}

func serviceKey(s *stage) *holder {
	key := s.key(s.teamKey, map[string]any{"service": true, "scopes": []string{"sites:write", "env:write"}})
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	return works(func() (bool, string) { return s.allowed(s.write(key)) })
}

// app is another user's OAuth app to which the member has consented for the team.
type app struct{ id, code, access, refresh string }

const (
	callback = "https://app.example/callback"
	verifier = "a-verifier-of-at-least-43-characters-for-pkce-s256"
)

func (s *stage) newApp() *app {
	s.t.Helper()
	var made struct{ ID string }
	s.call(s.receiver, "POST", "/oauth/apps", map[string]any{"name": "Deployer " + s.name, "redirectUris": []string{callback}}, &made)
	return &app{id: made.ID}
}

// consents makes the member consent for the team, and returns an app with an authorization code.
func (s *stage) consents() *app {
	s.t.Helper()
	a := s.newApp()
	sum := sha256.Sum256([]byte(verifier))
	to, err := s.person.Consent("http://"+s.Listen+"/oauth/authorize?"+url.Values{
		"client_id": {a.id}, "redirect_uri": {callback}, "response_type": {"code"}, "team": {s.name},
		"scope":          {"sites:write env:write deployments:write webhooks:write"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode(), "allow")
	s.check(err)
	u, err := url.Parse(to)
	s.check(err)
	if a.code = u.Query().Get("code"); a.code == "" {
		s.t.Fatalf("the consent leads to %s", to)
	}
	return a
}

// tokens requests tokens and stores them.
func (s *stage) tokens(a *app, form url.Values) (bool, string) {
	form.Set("client_id", a.id)
	answer, err := world.Read(http.PostForm("http://"+s.Listen+"/oauth/token", form))
	if err != nil {
		return false, err.Error()
	}
	var got struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if json.Unmarshal(answer.Body, &got) == nil && got.Access != "" {
		a.access, a.refresh = got.Access, got.Refresh
	}
	return answer.Status == http.StatusOK, fmt.Sprintf("%d %.200s", answer.Status, answer.Body)
}

func (s *stage) redeem(a *app) (bool, string) {
	return s.tokens(a, url.Values{
		"grant_type": {"authorization_code"}, "code": {a.code}, "redirect_uri": {callback}, "code_verifier": {verifier},
	})
}

// granted returns an app with tokens.
func (s *stage) granted() *app {
	s.t.Helper()
	a := s.consents()
	if ok, said := s.redeem(a); !ok {
		s.t.Fatalf("tokens: %s", said)
	}
	s.revokeGrant(a)
	return a
}

// revokeGrant registers that the member revokes the app's grant.
func (s *stage) revokeGrant(a *app) {
	s.ends(func() {
		var list struct {
			Data []struct {
				ID  string
				App struct{ ID string }
			}
		}
		s.call(s.teamKey, "GET", "/oauth/grants", nil, &list)
		found := false
		for _, g := range list.Data {
			if g.App.ID == a.id {
				found = true
				s.call(s.teamKey, "DELETE", "/oauth/grants/"+g.ID, nil, nil)
			}
		}
		if !found {
			s.t.Errorf("no grant of %s in %+v", a.id, list)
		}
	})
}

func accessToken(s *stage) *holder {
	a := s.granted()
	return works(func() (bool, string) { return s.allowed(s.write(a.access)) })
}

func refreshToken(s *stage) *holder {
	a := s.granted()
	return works(func() (bool, string) {
		if ok, said := s.tokens(a, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {a.refresh}}); !ok {
			return false, said
		}
		return s.allowed(s.write(a.access))
	})
}

func authorizationCode(s *stage) *holder {
	a := s.consents()
	s.revokeGrant(a)
	return once(func() (bool, string) {
		if ok, said := s.redeem(a); !ok {
			return false, said
		}
		return s.allowed(s.write(a.access))
	})
}

func deviceCode(s *stage) *holder {
	a := s.newApp()
	answer, err := world.Read(http.PostForm("http://"+s.Listen+"/oauth/device", url.Values{"client_id": {a.id}, "scope": {"sites:write env:write"}}))
	s.check(err)
	var device struct {
		Device string `json:"device_code"`
		User   string `json:"user_code"`
	}
	s.check(answer.JSON(&device))
	s.check(s.person.Device("http://"+s.Listen+"/device?team="+s.name, device.User, "allow"))
	s.revokeGrant(a)
	return once(func() (bool, string) {
		if ok, said := s.tokens(a, url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {device.Device},
		}); !ok {
			return false, said
		}
		return s.allowed(s.write(a.access))
	})
}

// called calls a deploy hook. It also works if the call joins a waiting deployment.
func (s *stage) called(hook string) (bool, string) {
	answer, err := world.Read(http.Post(hook, "", nil))
	if err != nil {
		return false, err.Error()
	}
	return answer.Status == http.StatusOK, fmt.Sprintf("%d %.200s", answer.Status, answer.Body)
}

func (s *stage) hook(key string) (id, url string) {
	s.t.Helper()
	var made struct{ ID, URL string }
	s.call(key, "POST", "/sites/"+s.site+"/hooks", map[string]any{"name": "a hook"}, &made)
	return made.ID, made.URL
}

func deployHook(s *stage) *holder {
	id, at := s.hook(s.teamKey)
	s.deletes("/hooks/" + id)
	return works(func() (bool, string) { return s.called(at) })
}

func appHook(s *stage) *holder {
	a := s.granted()
	_, at := s.hook(a.access)
	return works(func() (bool, string) { return s.called(at) })
}

func gitHook(s *stage) *holder {
	var made struct{ URL, Secret string }
	s.call(s.teamKey, "POST", "/sites/"+s.site+"/git/hook", nil, &made)
	s.ends(func() { s.call(s.ownerTeamKey, "POST", "/sites/"+s.site+"/git/hook", nil, nil) })
	n := new(atomic.Int64)
	return works(func() (bool, string) {
		tip, err := exec.Command("git", "-C", s.Git.Path(s.repository), "rev-parse", "main").Output()
		if err != nil {
			return false, err.Error()
		}
		body := fmt.Sprintf(`{"ref": "refs/heads/main", "after": %q, "repository": {"clone_url": %q}, "n": %d}`,
			strings.TrimSpace(string(tip)), "https://git.test/"+s.repository+".git", n.Add(1))
		mac := hmac.New(sha256.New, []byte(made.Secret))
		mac.Write([]byte(body))
		request, err := http.NewRequest("POST", made.URL, strings.NewReader(body))
		if err != nil {
			return false, err.Error()
		}
		request.Header.Set("X-GitHub-Event", "push")
		request.Header.Set("X-GitHub-Delivery", fmt.Sprintf("%s-%d", s.name, n.Load()))
		request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		answer, err := world.Read(http.DefaultClient.Do(request))
		if err != nil {
			return false, err.Error()
		}
		return answer.Status == http.StatusOK, fmt.Sprintf("%d %.200s", answer.Status, answer.Body)
	})
}

// delivered changes the site, and reports whether the webhook at a path receives the event.
func (s *stage) delivered(path string) (bool, string) {
	before := 0
	mine := func(d world.Delivery) bool { return d.Path == path }
	for _, d := range s.Hooks.All() {
		if mine(d) {
			before++
		}
	}
	if ok, said := s.touched(); !ok {
		return false, said
	}
	ctx, cancel := context.WithTimeout(s.ctx, world.Patience(2*time.Second))
	defer cancel()
	got, err := s.Hooks.Wait(ctx, before+1, mine)
	return err == nil, fmt.Sprintf("%d deliveries, %d before", len(got), before)
}

// touched changes the site with a key of its current owner.
func (s *stage) touched() (bool, string) {
	var last string
	for _, key := range []string{s.ownerTeamKey, s.receiver} {
		ok, said := s.allowed(s.write(key))
		if ok {
			return true, said
		}
		last = said
	}
	return false, last
}

func (s *stage) subscribe(key string) (path string) {
	s.t.Helper()
	path = fmt.Sprintf("/%s-%d", s.name, time.Now().UnixNano())
	var made struct{ ID string }
	s.call(key, "POST", "/webhooks", map[string]any{"url": s.Hooks.URL + path, "events": []string{"site.updated"}}, &made)
	if key == s.teamKey {
		s.deletes("/webhooks/" + made.ID)
	}
	return path
}

func webhook(s *stage) *holder {
	path := s.subscribe(s.teamKey)
	return works(func() (bool, string) { return s.delivered(path) })
}

func appWebhook(s *stage) *holder {
	path := s.subscribe(s.granted().access)
	return works(func() (bool, string) { return s.delivered(path) })
}

func channel(s *stage) *holder { return s.channel(s.teamKey) }

// channel creates a notification channel for the site, and works while the team's owner gets test messages through it.
func (s *stage) channel(key string) *holder {
	s.t.Helper()
	path := fmt.Sprintf("/channel-%s-%d", s.name, time.Now().UnixNano())
	var made struct{ ID string }
	s.call(key, "POST", "/notifications", map[string]any{"kind": "slack", "target": s.Hooks.URL + path, "siteIds": []string{s.site}}, &made)
	if key == s.teamKey {
		s.deletes("/notifications/" + made.ID)
	}
	sent := 0
	return works(func() (bool, string) {
		ok, said := s.allowed(world.Request{Method: "POST", Path: "/notifications/" + made.ID + "/test", Key: s.ownerTeamKey})
		if !ok {
			return false, said
		}
		sent++
		ctx, cancel := context.WithTimeout(s.ctx, world.Patience(10*time.Second))
		defer cancel()
		got, err := s.Hooks.Wait(ctx, sent, func(d world.Delivery) bool { return d.Path == path })
		return err == nil, fmt.Sprintf("%d messages of %d", len(got), sent)
	})
}

// stream follows server-sent events. It works while the stream is open.
func (s *stage) stream(client *http.Client, at, key string) *holder {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", at, nil)
	s.check(err)
	request.Header.Set("Accept", "text/event-stream")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := client.Do(request)
	s.check(err)
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		s.t.Fatalf("%s is answered with %d %s", at, answer.StatusCode, kind)
	}
	over := new(atomic.Bool)
	go func() {
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		}
		over.Store(true)
	}()
	return works(func() (bool, string) {
		if over.Load() {
			return false, "the stream is closed"
		}
		return true, "the stream is open"
	})
}

func (s *stage) api(path string) string { return "http://" + s.Listen + "/api/v1" + path }

func listener(s *stage) *holder {
	key := s.key(s.memberKey, nil)
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	return s.listen(key)
}

// listen creates a webhook listener with a key or a token, and follows it.
func (s *stage) listen(key string) *holder {
	s.t.Helper()
	var made struct{ ID string }
	s.call(key, "POST", "/webhook-listeners", map[string]any{"secret": "a secret of a listener"}, &made)
	return s.stream(http.DefaultClient, s.api("/webhook-listeners/"+made.ID+"/deliveries"), key)
}

func followedLog(s *stage) *holder {
	key := s.key(s.memberKey, nil)
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	return s.follow(key)
}

// follow follows the site's log with a key or a token.
func (s *stage) follow(key string) *holder {
	return s.stream(http.DefaultClient, s.api("/sites/"+s.site+"/logs"), key)
}

func followedPage(s *stage) *holder {
	client := *s.person.Client
	client.Timeout = 0
	return s.stream(&client, "http://"+s.Listen+"/sites/"+s.site+"/logs/lines", "")
}

// download reads a backup slowly, and works while there is more to read.
func download(s *stage) *holder {
	key := s.key(s.memberKey, nil)
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	var made struct{ ID string }
	s.call(key, "POST", "/sites/"+s.site+"/backups", map[string]any{}, &made)
	s.check(world.Until(s.ctx, 50*time.Millisecond, func() (bool, error) {
		var b struct{ Status, Error string }
		err := s.Call(s.ctx, key, "GET", "/backups/"+made.ID, nil, &b)
		return b.Status == "completed", errors.Join(err, fmt.Errorf("%+v", b))
	}))
	ctx, cancel := context.WithCancel(s.ctx)
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", s.api("/backups/"+made.ID+"/download"), nil)
	s.check(err)
	request.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(request)
	s.check(err)
	s.t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("the download is answered with %d", answer.StatusCode)
	}
	// The server closes a download that isn't read for 15 seconds, so a goroutine always reads a little. Each check reads 512 KiB more, to
	// empty the socket buffers, which deliver their content even after the server has closed. A complete download counts as not ended.
	var mu sync.Mutex
	var failed error
	read := func(n int64) error {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			_, failed = io.CopyN(io.Discard, answer.Body, n)
		}
		return failed
	}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for read(64<<10) == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return works(func() (bool, string) {
		err := read(512 << 10)
		return err == nil || err == io.EOF, fmt.Sprint("reading: ", err)
	})
}

// shell opens a terminal. It works while the terminal is open.
func (s *stage) shell(at string, o *websocket.DialOptions) *holder {
	s.t.Helper()
	conn, answer, err := websocket.Dial(s.ctx, at, o)
	if err != nil {
		status := 0
		if answer != nil {
			status = answer.StatusCode
		}
		s.t.Fatalf("the terminal at %s: %d %v", at, status, err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	var ended atomic.Pointer[error]
	go func() {
		for {
			if _, _, err := conn.Read(s.ctx); err != nil {
				ended.Store(&err)
				return
			}
		}
	}()
	return works(func() (bool, string) {
		if err := ended.Load(); err != nil {
			return false, (*err).Error()
		}
		err := conn.Write(s.ctx, websocket.MessageBinary, []byte("\n"))
		return err == nil, fmt.Sprint("writing: ", err)
	})
}

func keyTerminal(s *stage) *holder {
	key := s.key(s.memberKey, nil)
	s.deletes("/keys/" + s.keyID(s.ownerTeamKey, key))
	return s.shell("ws://"+s.Listen+"/api/v1/sites/"+s.site+"/terminal", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + key}},
	})
}

func pageTerminal(s *stage) *holder {
	client := *s.person.Client
	client.Timeout = 0
	return s.shell("ws://"+s.Listen+"/sites/"+s.site+"/terminal/connect?columns=80&rows=24", &websocket.DialOptions{
		HTTPClient: &client, HTTPHeader: http.Header{"Origin": {"http://" + s.Listen}},
	})
}

func invitation(s *stage) *holder {
	id, token := s.invitation(s.teamKey, s.receiverEmail, "admin")
	s.deletes("/teams/" + s.team + "/invitations/" + id)
	return once(func() (bool, string) {
		return s.allowed(world.Request{
			Method: "POST", Path: "/invitations/accept", Key: s.receiver, Body: map[string]string{"token": token},
		})
	})
}

func offer(s *stage) *holder {
	s.settled(s.teamKey)
	var made struct{ ID, Code string }
	s.call(s.teamKey, "POST", "/sites/"+s.site+"/transfer", map[string]any{"to": s.receiverEmail}, &made)
	s.deletes("/transfers/" + made.ID)
	h := once(func() (ok bool, said string) {
		ctx, cancel := context.WithTimeout(s.ctx, world.Patience(30*time.Second))
		defer cancel()
		_ = world.Until(ctx, 100*time.Millisecond, func() (bool, error) { // 409 while a hook's deployment isn't finished
			var status int
			status, said = s.status(world.Request{
				Method: "POST", Path: "/transfers/accept", Key: s.receiver, Body: map[string]string{"code": made.Code},
			})
			ok = status == http.StatusOK
			return status != http.StatusConflict, nil
		})
		return ok, said
	})
	h.moves = true
	return h
}

func passwordLink(s *stage) *holder {
	page, err := s.operator.Open("http://"+s.Listen+"/operator/users/"+s.memberID+"/link", url.Values{})
	s.check(err)
	link := regexp.MustCompile(`http://[^"< ]+/setup/[^"< ]+`).FindString(page.Body)
	if link == "" {
		s.t.Fatalf("no link on %s: %d %s", page.URL, page.Status, page.Body)
	}
	return works(func() (bool, string) {
		answer, err := world.Read(http.Get(link))
		if err != nil {
			return false, err.Error()
		}
		return answer.Status == http.StatusOK && strings.Contains(string(answer.Body), `name="password"`), fmt.Sprintf("%d", answer.Status)
	})
}

// credential deploys the private repository with a key of the site's current owner. Cloning needs the stored
// credential.
func credential(s *stage) *holder {
	s.ends(func() {
		s.call(s.ownerTeamKey, "PATCH", "/sites/"+s.site, map[string]any{"credential": map[string]any{}}, nil)
	})
	return once(func() (bool, string) {
		var errs error
		for _, key := range []string{s.ownerTeamKey, s.receiver} {
			var made struct{ DeploymentID string }
			if err := s.Call(s.ctx, key, "POST", "/sites/"+s.site+"/deploy", map[string]any{}, &made); err != nil {
				errs = errors.Join(errs, err)
				continue
			}
			var d struct{ Status, Error string }
			err := world.Until(s.ctx, 100*time.Millisecond, func() (bool, error) {
				err := s.Call(s.ctx, key, "GET", "/deployments/"+made.DeploymentID, nil, &d)
				return slices.Contains([]string{"success", "failed", "canceled"}, d.Status), errors.Join(err, fmt.Errorf("%+v", d))
			})
			s.check(err)
			return d.Status == "success", fmt.Sprintf("the deployment is %+v", d)
		}
		return false, errs.Error()
	})
}

// polling works while the repository is polled for new commits.
func polling(s *stage) *holder {
	s.call(s.teamKey, "PATCH", "/sites/"+s.site+"/git", map[string]any{"pollMinutes": 5}, nil)
	s.ends(func() {
		s.call(s.ownerTeamKey, "PATCH", "/sites/"+s.site+"/git", map[string]any{"pollMinutes": 0}, nil)
	})
	d, err := db.Open(s.ctx, db.Config{URL: "sqlite:" + filepath.Join(s.Data, "slipway.db")})
	s.check(err)
	s.t.Cleanup(func() { d.Close() })
	return works(func() (bool, string) {
		var before, now int64
		at := func(into *int64) {
			s.t.Helper()
			err := d.QueryRow(s.ctx, `SELECT COALESCE(MAX(polled_at), 0) FROM git_settings WHERE site_id = $1`, s.site).Scan(into)
			s.check(err)
		}
		at(&before)
		// Poll now instead of in five minutes.
		s.check(d.Admin(s.ctx, `UPDATE git_settings SET poll_at = 0 WHERE site_id = '`+s.site+`'`))
		ctx, cancel := context.WithTimeout(s.ctx, world.Patience(6*time.Second)) // three rounds of polling
		defer cancel()
		err := world.Until(ctx, 100*time.Millisecond, func() (bool, error) {
			at(&now)
			return now > before, nil
		})
		return err == nil, fmt.Sprintf("last asked at %d, before at %d", now, before)
	})
}

// runKey allows a repository's workflows to deploy the site, and exchanges a run's identity token for an API key.
func runKey(s *stage) *holder {
	repository := "acme/" + s.name
	ok, said := s.open(s.person, "/sites/"+s.site+"/git/workflows", url.Values{"workflows": {repository}, "workflows_branch": {"main"}})
	if !ok {
		s.t.Fatalf("allowing workflows: %s", said)
	}
	s.ends(func() {
		s.call(s.ownerTeamKey, "PATCH", "/sites/"+s.site+"/git", map[string]any{"workflows": map[string]string{"repository": ""}}, nil)
	})
	now := time.Now()
	answer, err := world.Read(http.PostForm("http://"+s.Listen+"/oauth/token", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {s.site},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}, "subject_token": {s.forge.sign(map[string]any{
			"iss": s.Hooks.URL, "aud": "http://" + s.Listen, "jti": s.name, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
			"repository": repository, "repository_id": "74", "ref": "refs/heads/main", "event_name": "push", "run_id": "1",
		})},
	}))
	s.check(err)
	var got struct {
		Key string `json:"access_token"`
	}
	s.check(answer.JSON(&got))
	if got.Key == "" {
		s.t.Fatalf("the exchange is answered with %d %s", answer.Status, answer.Body)
	}
	return works(func() (bool, string) {
		return s.allowed(world.Request{Method: "POST", Path: "/sites/" + s.site + "/deploy", Key: got.Key})
	})
}

const visitorsPassword = "open sesame, please"

// protect makes every URL of the site require the visitors' password or a member's sign-in.
func (s *stage) protect() {
	s.t.Helper()
	if !s.protected {
		s.call(s.ownerTeamKey, "PATCH", "/sites/"+s.site+"/serving", map[string]any{
			"protection": "all", "signIn": "all", "password": visitorsPassword,
		}, nil)
		s.protected = true
	}
}

// visitor returns a holder that requests the site with a jar's cookies.
func (s *stage) visitor(jar http.CookieJar) *holder {
	client := must(s, func(*stage) (*http.Client, error) { return s.Browser() })(s)
	client.Jar, client.Timeout = jar, time.Minute
	return works(func() (bool, string) {
		answer, err := s.Site(s.ctx, client, world.Request{Method: "GET", URL: s.url + "/"})
		if err != nil {
			return false, err.Error()
		}
		return answer.Status == http.StatusOK && string(answer.Body) == "hello", fmt.Sprintf("%d %.200s", answer.Status, answer.Body)
	})
}

// reach repeats open until it succeeds. The edge applies a changed protection a moment after it was saved.
func (s *stage) reach(h *holder, open func() error) *holder {
	s.t.Helper()
	s.check(world.Until(s.ctx, 100*time.Millisecond, func() (bool, error) {
		if err := open(); err != nil {
			return false, err
		}
		ok, said := h.works()
		return ok, errors.New(said)
	}))
	return h
}

func memberVisit(s *stage) *holder {
	s.protect()
	return s.reach(s.visitor(s.person.Client.Jar), func() error {
		page, err := s.person.Open(s.url+"/.slipway/sign-in", nil)
		if err == nil && page.Onward != "" {
			_, err = s.person.Open(page.Onward, nil)
		}
		return err
	})
}

func passwordVisit(s *stage) *holder {
	s.protect()
	s.ends(func() {
		s.call(s.ownerTeamKey, "PATCH", "/sites/"+s.site+"/serving", map[string]any{"password": "another " + visitorsPassword}, nil)
	})
	jar := must(s, func(*stage) (*cookiejar.Jar, error) { return cookiejar.New(nil) })(s)
	client := must(s, func(*stage) (*http.Client, error) { return s.Browser() })(s)
	client.Jar, client.Timeout = jar, time.Minute
	return s.reach(s.visitor(jar), func() error {
		answer, err := world.Read(client.PostForm(s.url+"/", url.Values{"slipway_password": {visitorsPassword}}))
		if err == nil && answer.Status >= 500 {
			err = fmt.Errorf("%d %s", answer.Status, answer.Body)
		}
		return err
	})
}
