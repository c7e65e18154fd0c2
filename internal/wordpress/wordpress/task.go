package wordpress

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// outdated is the code of what a site's core can't do, because an earlier version of Slipway deployed it.
const outdated = "core_outdated"

// maxAnswer bounds what a task answers.
const maxAnswer = 4 << 20

// visit asks a deployment's program as a visitor does, past the page cache.
func (w *WordPress) visit(ctx context.Context, deployment id.Deployment, r *http.Request) (*http.Response, error) {
	e, err := w.c.Programs.Acquire(ctx, deployment)
	if err != nil {
		return nil, err
	}
	return roundTrip(e, e.Transport, r)
}

// run asks a deployment's program to run the script of core/tasks that the path names.
func (w *WordPress) run(ctx context.Context, deployment id.Deployment, r *http.Request) (*http.Response, error) {
	e, err := w.c.Programs.Acquire(ctx, deployment)
	if err != nil {
		return nil, err
	}
	if e.Tasks == nil {
		e.Release()
		return nil, errors.New("the program runs no tasks")
	}
	return roundTrip(e, e.Tasks, r)
}

// roundTrip asks a program, which is held until the answer has been read.
func roundTrip(e *endpoint.Endpoint, way http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := way.RoundTrip(r)
	if err != nil {
		e.Release()
		return nil, err
	}
	resp.Body = released{resp.Body, e.Release}
	return resp, nil
}

// released releases a program when its answer has been read.
type released struct {
	io.ReadCloser
	release func()
}

func (r released) Close() error {
	err := r.ReadCloser.Close()
	r.release()
	return err
}

// task runs one of our scripts in a site's WordPress. Plugins run with it, so its answer
// is as hostile as they are.
func (w *WordPress) task(ctx context.Context, s site.Site, deployment id.Deployment, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://task/"+name+".php", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Host = strings.TrimPrefix(w.c.Sites.URL(s.Slug), "https://")
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.run(ctx, deployment, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	if p := resp.Header.Get("X-Slipway-Purge"); p != "" {
		w.purge(ctx, s.ID, strings.Fields(p))
	}
	if at := resp.Header.Get("X-Slipway-Cron"); at != "" {
		w.scheduled(ctx, s.ID, at)
	}
	if resp.StatusCode == http.StatusNotFound && !json.Valid(b) {
		return fault.New(fault.Conflict, outdated, "This site's WordPress doesn't have this function yet",
			"redeploy the site: its core was deployed by an earlier version of Slipway")
	}
	var failed struct{ Error string }
	if json.Unmarshal(b, &failed) == nil && failed.Error != "" || resp.StatusCode != http.StatusOK {
		return fault.New(fault.Conflict, "wordpress_failed", "WordPress reports an error",
			fmt.Sprintf("%s (status %d)", cmp.Or(reason(b), "it gives no reason"), resp.StatusCode))
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fault.New(fault.Conflict, "wordpress_failed", "WordPress does not respond", "a plugin may have ended the request")
	}
	return nil
}

// reason returns an error's words. Beside our tasks, WordPress itself ends requests, with JSON of its own or with a page.
func reason(b []byte) string {
	var told struct {
		Error, Message string
		Data           struct{ Error struct{ Message string } }
	}
	why := string(b)
	if _ = json.Unmarshal(b, &told); told.Error+told.Message != "" {
		why = cmp.Or(told.Error, told.Data.Error.Message, told.Message)
	}
	why = html.UnescapeString(tags.ReplaceAllString(why[:min(len(why), 64<<10)], " "))
	return text.Line(strings.Join(strings.Fields(why), " "), 500) // it is stored
}

// tags are those of HTML, with all that isn't shown.
var tags = lazyregexp.New(`(?is)<(?:style|script|head)\b.*?</(?:style|script|head)>|</?[a-z!][^<>]*>`)

// Login is a link that logs its holder in once.
type Login struct {
	URL       string
	ExpiresAt time.Time
}

const loginLife = 5 * time.Minute

// Login makes a link that logs into the owner's wp-admin, once, for five minutes. It is a
// secret: WordPress stores its digest alone.
func (w *WordPress) Login(ctx context.Context, owner account.OwnerID, id site.ID) (Login, error) {
	s, err := w.c.Sites.Get(ctx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err != nil {
		return Login{}, err
	}
	x, err := w.get(ctx, w.c.DB, id)
	if err != nil {
		return Login{}, err
	}
	token := rand.Text() + rand.Text()
	digest := sha256.Sum256([]byte(token))
	until := time.Now().Add(loginLife)
	err = w.task(ctx, s, s.LiveDeployment, "login", map[string]any{
		"user":    x.AdminUser,
		"digest":  hex.EncodeToString(digest[:]),
		"seconds": int(loginLife.Seconds()),
	}, &struct{}{})
	if err != nil {
		return Login{}, err
	}
	address, err := w.Address(ctx, s) // where its cookies are valid
	if err != nil {
		return Login{}, err
	}
	return Login{address + "/wp-login.php?slipway-login=" + token, until}, nil
}

// Extension is a plugin or a theme.
type Extension struct {
	Slug, Name, Version, UpdateVersion string
	Active                             bool
	AutoUpdate                         bool // to any newer version, once a day
}

// ObjectCache is how the object cache of a site is: whether its owner wants one, and what it is
// doing.
type ObjectCache struct {
	On                        bool
	Status                    string // one of those below
	Hits, Misses, Keys, Bytes int64  // since its start, where it is active
	Shared                    bool   // it is the operator's server, which doesn't count for each site
}

// What an object cache is doing.
const (
	ObjectsOff         = "off"
	ObjectsActive      = "active"
	ObjectsPending     = "pending"     // it starts with the site's PHP, and one of the site's next deployment knows of it
	ObjectsReplaced    = "replaced"    // the site has an object-cache.php of its own
	ObjectsPaused      = "paused"      // another program of the site, such as a command, may change the database
	ObjectsDown        = "down"        // Redis does not answer
	ObjectsUnavailable = "unavailable" // the server has none
)

// told holds what a site's WordPress says of its object cache; nil where its PHP has none.
type told struct {
	Own     bool
	Paused  bool
	Shared  bool // the values are on the operator's server
	Figures *struct{ Hits, Misses, Keys, Bytes int64 }
}

func (w *WordPress) objectCache(on bool, t *told) ObjectCache {
	switch {
	case !on:
		return ObjectCache{Status: ObjectsOff}
	case w.NoObjectCache() != "":
		return ObjectCache{On: true, Status: ObjectsUnavailable}
	case t == nil:
		return ObjectCache{On: true, Status: ObjectsPending}
	case t.Own:
		return ObjectCache{On: true, Status: ObjectsReplaced}
	case t.Paused:
		return ObjectCache{On: true, Status: ObjectsPaused}
	case t.Figures == nil:
		return ObjectCache{On: true, Status: ObjectsDown}
	}
	f := t.Figures
	return ObjectCache{true, ObjectsActive, f.Hits, f.Misses, f.Keys, f.Bytes, t.Shared}
}
