package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// program is the path of the built slipway.
var program string

func TestMain(m *testing.M) { os.Exit(world.Main(m, &program)) }

// Each row of the table is true. For each event, the test gives a team's member every right, checks that each works,
// triggers the event, and compares the rights that still work with the rows.
func TestRights(t *testing.T) {
	t.Parallel()
	w, err := world.New(program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen, "--rate-limit", "10000", "--billing", "--actions-issuer", w.Hooks.URL)
	forge, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	for path, document := range map[string]any{
		"/.well-known/openid-configuration": map[string]string{"issuer": w.Hooks.URL, "jwks_uri": w.Hooks.URL + "/keys"}, "/keys": forge.keys(),
	} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		w.Hooks.Serve(path, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(5*time.Minute))
	t.Cleanup(cancel)
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CLI(world.Password+"\n", "user", "create", "--email", "operator@example.test", "--admin"); err != nil {
		t.Fatal(err)
	}
	for what, settings := range map[string]string{
		"settings": `{"seller": {"name": "Acme Hosting", "country": "DE"}, "dueDays": 0, "graceDays": 0, "finalizeHours": 0}`,
		"publish":  `{"plan": "pro", "title": "Pro", "currency": "EUR", "interval": "month", "amount": 1900, "public": true}`,
	} {
		if _, err := w.CLI(settings, "billing", what, "-"); err != nil {
			t.Fatal(err)
		}
	}
	operator, err := w.Person("operator@example.test")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := w.Key("operator@example.test")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Table {
		if (kinds[r.Name] == nil) != (r.Told != "") {
			t.Errorf("no test tells of the right %q, or two do", r.Name)
		}
	}
	for name := range kinds {
		if !slices.ContainsFunc(Table, func(r Right) bool { return r.Name == name }) {
			t.Errorf("the table lacks the right %q", name)
		}
	}
	for _, event := range Events {
		t.Run(string(event), func(t *testing.T) {
			t.Parallel()
			if causes[event] == nil {
				t.Fatalf("no test makes the event %q", event)
			}
			s := newStage(t, ctx, w, operator, admin, string(event))
			s.forge = forge
			holders := map[string]*holder{}
			for _, r := range Table {
				if r.Told == "" && r.Outcome(event) != Apart {
					holders[r.Name] = s.give(r.Name)
				}
			}
			causes[event](s)
			late := time.After(Seconds * time.Second)
			for _, r := range Table {
				if h := holders[r.Name]; h != nil && !h.moves {
					t.Run(r.Name, func(t *testing.T) { h.compare(t, ctx, r.Outcome(event)) })
				}
			}
			<-late // by now, rights that end with a delay have ended
			for _, r := range Table {
				if h := holders[r.Name]; h != nil && !h.once && r.Outcome(event) == Stays {
					t.Run(r.Name+" later", func(t *testing.T) { h.compare(t, ctx, Stays) })
				}
			}
			for _, r := range Table {
				if h := holders[r.Name]; h != nil && h.moves {
					t.Run(r.Name, func(t *testing.T) { h.compare(t, ctx, r.Outcome(event)) })
				}
			}
			if s.paid == nil {
				return
			}
			s.paid()
			for _, r := range Table {
				if h := holders[r.Name]; h != nil && r.Outcome(event) == Pauses {
					t.Run(r.Name+" once it is paid", func(t *testing.T) { h.compare(t, ctx, Stays) })
				}
			}
		})
	}
}

// stage is a team with an owner, a member with the role admin, and a site from a private repository.
type stage struct {
	*world.World
	t             *testing.T
	ctx           context.Context
	name          string // unique in the installation
	owner, member string // email addresses
	ownerKey      string // of the owner's personal account
	ownerTeamKey  string
	memberKey     string // of the member's personal account
	memberID      string
	teamKey       string // the member's key for the team
	team, site    string
	person        *world.Person // the member's dashboard session
	operator      *world.Person
	admin         string // the operator\'s key
	receiver      string // key of another account, to which sites can be transferred
	receiverEmail string
	private       string // the repository's access token
	repository    string
	revoke        []func() // functions that end each right, for the event Revoked
	url           string   // of the site
	protected     bool     // the site's addresses ask for a password or a sign-in
	forge         signer   // signs the identity tokens of workflow runs
	paid          func()   // pays the overdue invoice; nil if there is none
}

// holder uses one right.
type holder struct {
	works func() (bool, string) // uses the right; the text describes the result
	once  bool                  // the right can be used once, so it isn't tried before the event
	moves bool                  // using the right moves the site, so it is tried after the others
}

// check ends the test if a preparing step fails.
func (s *stage) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\nthe program's last words:\n%s", err, s.Log(3000))
	}
}

func (s *stage) call(key, method, path string, body, out any) {
	s.t.Helper()
	s.check(s.Call(s.ctx, key, method, path, body, out))
}

// status sends a request and returns the response's status and the beginning of its body.
func (s *stage) status(r world.Request) (int, string) {
	answer, err := s.Do(s.ctx, r)
	if err != nil {
		return 0, err.Error()
	}
	return answer.Status, fmt.Sprintf("%d %.200s", answer.Status, answer.Body)
}

// allowed reports whether the response's status is 2xx.
func (s *stage) allowed(r world.Request) (bool, string) {
	status, said := s.status(r)
	return status >= 200 && status < 300, said
}

func newStage(t *testing.T, ctx context.Context, w *world.World, operator *world.Person, admin, event string) *stage {
	t.Helper()
	name := strings.ReplaceAll(strings.ToLower(event), " ", "-")
	s := &stage{
		World: w, t: t, ctx: ctx, operator: operator, admin: admin, name: name, owner: name + "-owner@example.test", member: name + "-member@example.test",
		receiverEmail: name + "-receiver@example.test", private: "token-of-" + name, repository: "acme/" + name,
	}
	var err error
	s.ownerKey, err = w.User(s.owner)
	s.check(err)
	s.memberKey, err = w.User(s.member)
	s.check(err)
	s.receiver, err = w.User(s.receiverEmail)
	s.check(err)
	var team struct{ ID string }
	s.call(s.ownerKey, "POST", "/teams", map[string]string{"name": name, "slug": name}, &team)
	s.team = team.ID
	s.ownerTeamKey = s.key(s.ownerKey, map[string]any{"scopes": []string{"*"}})
	s.join(s.memberKey, s.member, "admin")
	var members struct {
		Data []struct{ UserID, Email string }
	}
	s.call(s.ownerTeamKey, "GET", "/teams/"+s.team+"/members", nil, &members)
	for _, m := range members.Data {
		if m.Email == s.member {
			s.memberID = m.UserID
		}
	}
	s.teamKey = s.key(s.memberKey, nil)
	s.person, err = w.Person(s.member)
	s.check(err)

	dir := filepath.Join(w.Dir, "content-"+name)
	s.check(world.WriteFiles(dir, map[string]string{
		"package.json": `{"name": "app", "private": true, "scripts": {"start": "node app.js"}}`,
		// Its storage makes a large backup, whose download takes long.
		"app.js": `require('fs').writeFileSync('data/large', require('crypto').randomBytes(32 << 20))
require('http').createServer((q, r) => { console.log(q.url); r.end('hello') }).listen(process.env.PORT)`,
	}))
	_, err = w.Git.Commit(s.repository, "main", dir, "a commit")
	s.check(err)
	w.Git.Private(s.repository, s.private)
	var made struct{ Data struct{ ID, URL string } }
	s.call(s.teamKey, "POST", "/sites", map[string]any{
		"name": name, "type": "static", "repository": "git.test/" + s.repository, "credential": map[string]string{"token": s.private},
		"run": map[string]any{"terminal": true, "storage": []string{"data"}},
	}, &made)
	s.site, s.url = made.Data.ID, made.Data.URL
	s.settled(s.teamKey)
	return s
}

// settled waits until the site has no unfinished deployment.
func (s *stage) settled(key string) {
	s.t.Helper()
	s.check(world.Until(s.ctx, 50*time.Millisecond, func() (bool, error) {
		var list struct {
			Data []struct{ Status, Error string }
		}
		err := s.Call(s.ctx, key, "GET", "/sites/"+s.site+"/deployments", nil, &list)
		for _, d := range list.Data {
			if !slices.Contains([]string{"success", "failed", "canceled"}, d.Status) {
				return false, fmt.Errorf("%+v", list)
			}
		}
		return err == nil && len(list.Data) > 0, err
	}))
}

// key creates an API key for the team.
func (s *stage) key(of string, more map[string]any) string {
	s.t.Helper()
	body := map[string]any{"name": "a key", "teamId": s.team, "scopes": []string{ // everything that an admin may do
		"sites:write", "deployments:write", "domains:write", "env:write", "webhooks:write", "backups:write", "previews:write", "keys:write",
		"apps:write", "team:write", "audit:read", "account:read",
	}}
	for k, v := range more {
		body[k] = v
	}
	var made struct{ Key string }
	s.call(of, "POST", "/keys", body, &made)
	return made.Key
}

// invitation creates an invitation to the team and returns its ID and token.
func (s *stage) invitation(by, email, role string) (id, token string) {
	s.t.Helper()
	var made struct{ ID, URL string }
	s.call(by, "POST", "/teams/"+s.team+"/invitations", map[string]string{"email": email, "role": role}, &made)
	_, token, _ = strings.Cut(made.URL, "/invitations/")
	return made.ID, token
}

func (s *stage) join(key, email, role string) {
	s.t.Helper()
	_, token := s.invitation(s.ownerTeamKey, email, role)
	s.call(key, "POST", "/invitations/accept", map[string]string{"token": token}, nil)
}

// give gives a right and checks that it works.
func (s *stage) give(name string) *holder {
	s.t.Helper()
	s.t.Log("giving", name)
	h := kinds[name](s)
	if !h.once {
		if ok, said := h.works(); !ok {
			s.t.Fatalf("%s doesn't work before the event: %s", name, said)
		}
	}
	return h
}

// compare uses the right until the result matches the row, for up to Seconds.
func (h *holder) compare(t *testing.T, ctx context.Context, want Outcome) {
	stays := want == Stays
	if h.once { // it can't be retried
		if ok, said := h.works(); ok != stays {
			t.Errorf("%s; the table says that it %s", said, want)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, world.Patience(Seconds*time.Second))
	defer cancel()
	var said string
	if err := world.Until(ctx, 100*time.Millisecond, func() (ok bool, err error) {
		ok, said = h.works()
		return ok == stays, nil
	}); err != nil {
		t.Errorf("after %d s: %s; the table says that it %s", Seconds, said, want)
		return
	}
	if ok, said := h.works(); ok != stays {
		t.Errorf("the right changed later: %s; the table says that it %s", said, want)
	}
}

// open submits a form of the dashboard, and reports whether it was accepted.
func (s *stage) open(p *world.Person, path string, form url.Values) (bool, string) {
	page, err := p.Open("http://"+s.Listen+path, form)
	if err != nil {
		return false, err.Error()
	}
	said := fmt.Sprintf("%d at %s", page.Status, page.URL.Path)
	return page.Status == http.StatusOK && !strings.HasPrefix(page.URL.Path, "/sign-in"), said
}
