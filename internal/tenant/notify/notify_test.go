package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/mail/mailtest"
)

const (
	anna = account.OwnerID("usr_anna")
	bert = account.OwnerID("usr_bert")
)

type world struct {
	*Notifications
	t     *testing.T
	db    *db.DB
	srv   *httptest.Server
	inbox *mailtest.Server
	mu    sync.Mutex // guards all below
	got   []map[string]any
	down  int
	mails []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), inbox: mailtest.New(t, mailtest.Config{Refuse: func(to string) error {
		if strings.HasPrefix(to, "nobody@") {
			return mailtest.Permanent("no such mailbox")
		}
		return nil
	}})}
	m, err := mail.New(mail.Config{Addr: w.inbox.Addr, From: "noreply@slipway.test"})
	must(t, err)
	w.srv = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var v map[string]any
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down != 0 {
			http.Error(rw, "no_service", w.down)
			return
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(b, &v) != nil {
			http.Error(rw, "invalid_payload", 400)
			return
		}
		w.got = append(w.got, v)
	}))
	t.Cleanup(w.srv.Close)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w.Notifications = New(Config{DB: w.db, Seal: key, Out: w.srv.Client(), Base: "https://slipway.test", Mail: m, Owners: owners{w}})
	return w
}

// owners implements account.Mailer.
type owners struct{ w *world }

// TellOwnerTx implements account.Mailer.
func (o owners) TellOwnerTx(_ context.Context, _ *db.Tx, owner account.OwnerID, subject, text, path string) error {
	o.w.mails = append(o.w.mails, string(owner)+": "+subject+" "+path)
	return nil
}

// Mails implements account.Mailer.
func (o owners) Mails() bool { return true }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), fn))
}

func (w *world) channel(n NewChannel) (c Channel) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) { c, err = w.CreateTx(w.t.Context(), tx, anna, n); return err })
	return c
}

// drain runs the workers until nothing is due and returns the messages received.
func (w *world) drain() []map[string]any {
	w.t.Helper()
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{QueueName: 2},
		Poll:   10 * time.Millisecond,
		Drain:  time.Second,
	})
	w.Work(jobs)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); jobs.Run(ctx) }()
	wait.Until(w.t, "no messages are left", func() bool {
		var n int
		due := `SELECT count(*) FROM jobs WHERE state IN ('ready', 'running') AND run_at <= $1`
		must(w.t, w.db.QueryRow(w.t.Context(), due, db.Now()).Scan(&n))
		return n == 0
	})
	stop()
	<-done
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.got
	w.got = nil
	return out
}

func (w *world) tell(site id.Site, m Message) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error { return w.TellTx(w.t.Context(), tx, anna, site, m) })
}

// Each service gets the format that its documentation requires. User-written text can't add formatting, mentions or
// links.
func TestFormats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := Message{
		Event: DeploymentFailed,
		Title: "Shop: <!channel> *failed* @everyone",
		Text:  "npm [x](https://evil.test) `rm` <b>\nsecond line",
		Path:  "/sites/site_1/deployments/dep_1",
	}
	text := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	for kind, want := range map[Kind][]string{
		Slack: {
			`"text":"Shop: \u0026lt;!channel\u0026gt;`,
			`"type":"mrkdwn"`,
			`"url":"https://slipway.test/sites/site_1/deployments/dep_1"`,
			`"type":"plain_text"`,
		},
		Discord: {
			`"allowed_mentions":{"parse":[]}`, `"embeds":[{`, `"color":14233637`,
			`"url":"https://slipway.test/sites/site_1/deployments/dep_1"`, `\\[x\\]`,
		},
		Teams: {
			`"contentType":"application/vnd.microsoft.card.adaptive"`, `"type":"AdaptiveCard"`, `"version":"1.4"`,
			`"type":"Action.OpenUrl"`, `\\[x\\]`,
		},
	} {
		c := w.channel(NewChannel{Kind: kind, URL: w.srv.URL + "/hook/" + string(kind)})
		w.tell("site_1", m)
		got := w.drain()
		if len(got) != 1 {
			t.Fatalf("%s got %d messages", kind, len(got))
		}
		for _, part := range want {
			if !strings.Contains(text(got[0]), part) {
				t.Errorf("%s got no %s in %s", kind, part, text(got[0]))
			}
		}
		if strings.Contains(text(got[0]), "second line") {
			t.Errorf("%s got two lines: %s", kind, text(got[0]))
		}
		w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
	}
	c := w.channel(NewChannel{Kind: Mail})
	w.tell("site_1", m)
	if len(w.mails) != 1 || !strings.HasPrefix(w.mails[0], "usr_anna: Shop: ") || !strings.HasSuffix(w.mails[0], m.Path) {
		t.Errorf("mails: %q", w.mails)
	}
	w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
}

// A channel gets only the events it selected, of its sites and its owner.
func TestWhoHears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.channel(NewChannel{Kind: Slack, URL: w.srv.URL + "/all"})
	one := w.channel(NewChannel{Kind: Slack, URL: w.srv.URL + "/one", Sites: []string{"site_1"}, Events: []string{DomainFailed}})
	count := func(what string, site id.Site, event string, want int) {
		t.Helper()
		w.tell(site, Message{Event: event, Title: "x"})
		if got := w.drain(); len(got) != want {
			t.Errorf("%s: %d messages, want %d", what, len(got), want)
		}
	}
	count("both", "site_1", DomainFailed, 2)
	count("another event", "site_1", DeploymentFailed, 1)
	count("another site", "site_2", DomainFailed, 1)
	several := w.channel(NewChannel{Kind: Slack, URL: w.srv.URL + "/several", Sites: []string{"site_3", "site_2", "site_3"}})
	count("one of several sites", "site_2", DomainFailed, 2)
	count("none of them", "site_4", DomainFailed, 1)
	forget := func(site id.Site) error {
		w.write(func(tx *db.Tx) error { return w.ForgetSiteTx(t.Context(), tx, site) })
		_, err := w.Get(t.Context(), w.db, anna, several.ID)
		return err
	}
	if err := forget("site_3"); err != nil {
		t.Error("a channel ended with one of its sites:", err)
	}
	count("the site that is left", "site_2", DomainFailed, 2)
	if err := forget("site_2"); !fault.Is(err, fault.NotFound) {
		t.Error("a channel outlived all its sites:", err)
	}
	count("a site that no channel is for", "site_2", DomainFailed, 1)
	off := false
	w.write(func(tx *db.Tx) error {
		_, err := w.UpdateTx(t.Context(), tx, anna, one.ID, Patch{Active: &off})
		return err
	})
	count("a disabled one", "site_1", DomainFailed, 1)
	w.write(func(tx *db.Tx) error {
		return w.TellTx(t.Context(), tx, bert, "site_1", Message{Event: DomainFailed, Title: "x"})
	})
	if got := w.drain(); len(got) != 0 {
		t.Errorf("another owner's event reached %d channels", len(got))
	}
	var again bool
	w.write(func(tx *db.Tx) (err error) {
		if err := w.FailedTx(t.Context(), tx, "site_1", "production"); err != nil {
			return err
		}
		again, err = w.RecoveredTx(t.Context(), tx, "site_1", "production")
		return err
	})
	if !again {
		t.Error("what failed has not recovered")
	}
	w.write(func(tx *db.Tx) (err error) {
		again, err = w.RecoveredTx(t.Context(), tx, "site_1", "production")
		return err
	})
	if again {
		t.Error("what had not failed has recovered")
	}
}

// A message to a service that is down is retried. One that is refused isn't, and the channel shows the reason without
// the address.
func TestServiceIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.channel(NewChannel{Kind: Slack, URL: w.srv.URL + "/services/T0/B0/secret"})
	set := func(down int) { w.mu.Lock(); w.down = down; w.mu.Unlock() }
	waiting := func() (n int) {
		must(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE state = 'ready'`).Scan(&n))
		return n
	}
	set(503)
	w.tell("site_1", Message{Event: DomainFailed, Title: "x"})
	w.drain()
	got, err := w.Get(t.Context(), w.db, anna, c.ID)
	if err != nil || !strings.Contains(got.Error, "503") || strings.Contains(got.Error, "secret") || waiting() != 1 {
		t.Errorf("down: %+v, %v, %d wait", got, err, waiting())
	}
	set(0)
	w.write(func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = 0`); return err })
	if n := len(w.drain()); n != 1 {
		t.Errorf("once it works it gets %d messages", n)
	}
	set(404)
	w.tell("site_1", Message{Event: DomainFailed, Title: "x"})
	w.drain()
	if got, err = w.Get(t.Context(), w.db, anna, c.ID); err != nil || !strings.Contains(got.Error, "404") || waiting() != 0 {
		t.Errorf("refused: %+v, %v, %d wait", got, err, waiting())
	}
	var stored string
	must(t, w.db.QueryRow(t.Context(), `SELECT url FROM notify_channels`).Scan(&stored))
	if strings.Contains(stored, "secret") {
		t.Error("the address isn't encrypted in the table")
	}
}

func TestChannelsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, bad := range map[string]NewChannel{
		"kind":            {Kind: "pager", URL: "https://x.test/"},
		"no url":          {Kind: Slack},
		"http":            {Kind: Slack, URL: "http://x.test/"},
		"user info":       {Kind: Slack, URL: "https://a:b@x.test/"},
		"file":            {Kind: Teams, URL: "file:///etc/passwd"},
		"a space":         {Kind: Slack, URL: "https://x.test/ y"},
		"long":            {Kind: Slack, URL: "https://x.test/" + strings.Repeat("x", 3000)},
		"event":           {Kind: Slack, URL: "https://x.test/", Events: []string{"x"}},
		"mail with a url": {Kind: Mail, URL: "https://x.test/"},
		"two recipients":  {Kind: Mail, URL: "a@x.test, b@x.test"},
		"a header":        {Kind: Mail, URL: "a@x.test\r\nBcc: b@x.test"},
		"name":            {Kind: Mail, Name: "a\x00b"},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CreateTx(t.Context(), tx, anna, bad); return err })
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := w.channel(NewChannel{Kind: Mail})
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		return w.DeleteTx(t.Context(), tx, bert, c.ID)
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's channel: %v", err)
	}
}

// An address gets each event once, even through several channels. Messages per minute are limited per host and per
// account; the rest is dropped, and the channel says so.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.now = func() time.Time { return now }
	first := w.channel(NewChannel{Kind: Slack, URL: w.srv.URL + "/same"})
	second := w.channel(NewChannel{Kind: Discord, URL: w.srv.URL + "/same", Sites: []string{"site_1"}})
	for _, n := range []NewChannel{
		{Kind: Slack, URL: w.srv.URL + "/same"},
		{Kind: Teams, URL: w.srv.URL + "/same", Name: "x"},
		{Kind: Slack, URL: w.srv.URL + "/same", Sites: []string{"site_1"}},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CreateTx(t.Context(), tx, anna, n); return err })
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	w.channel(NewChannel{Kind: Mail})
	w.channel(NewChannel{Kind: Mail, Sites: []string{"site_1"}})
	m := Message{Event: DomainFailed, Title: "x"}
	w.tell("site_1", m)
	if got := w.drain(); len(got) != 1 || len(w.mails) != 1 {
		t.Errorf("%d messages and %d mails, want one of each", len(got), len(w.mails))
	}
	for range maxPerMinute + 5 {
		w.tell("site_1", m)
	}
	for name, c := range map[string]Channel{"first": first, "second": second} {
		got, err := w.Get(t.Context(), w.db, anna, c.ID)
		if said := strings.Contains(got.Error, "some were not sent"); err != nil || said != (name == "first") {
			t.Errorf("%s: %q, %v", name, got.Error, err)
		}
	}
	if got := w.drain(); len(got) != maxPerMinute-1 || len(w.mails) != maxPerMinute {
		t.Errorf("%d more messages and %d mails, want %d and %d", len(got), len(w.mails), maxPerMinute-1, maxPerMinute)
	}
	err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.TestTx(t.Context(), tx, anna, second.ID); return err })
	if !fault.Is(err, fault.Limited) {
		t.Errorf("a test beyond the limit: %v", err)
	}
	for i := range maxInAll {
		if err := w.count(place{anna, fmt.Sprint("host-", i)}, now); (err == nil) != (i < maxInAll-2*maxPerMinute) {
			t.Fatalf("host %d: %v", i, err)
		}
	}
	now = now.Add(time.Minute)
	w.tell("site_1", m)
	if got := w.drain(); len(got) != 1 {
		t.Errorf("a minute later: %d messages", len(got))
	}
}

// An update without a change leaves the channel as it is, and a name needs a visible character.
func TestChannelChangesAreReal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.channel(NewChannel{Kind: Slack, URL: w.srv.URL})
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE notify_channels SET updated_at = 1`)
		return err
	})
	on, blank := true, "\u200b\u2800"
	change := func(p Patch) (got Channel, err error) {
		err = w.db.Write(t.Context(), func(tx *db.Tx) error { got, err = w.UpdateTx(t.Context(), tx, anna, c.ID, p); return err })
		return got, err
	}
	for _, p := range []Patch{{}, {Name: &c.Name}, {Active: &on}, {Events: c.Events}} {
		if got, err := change(p); err != nil || got.UpdatedAt != 1 {
			t.Errorf("%+v: changed at %v, %v", p, got.UpdatedAt, err)
		}
	}
	if _, err := change(Patch{Name: &blank}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an invisible name: %v", err)
	}
	other := "Other"
	if got, err := change(Patch{Name: &other}); err != nil || got.UpdatedAt == 1 || got.Name != other {
		t.Errorf("a real change: %+v, %v", got, err)
	}
}
