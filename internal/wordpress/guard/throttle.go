package guard

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fair"
)

// Attempts to log in, or to be sent a new password, within five minutes; requests of XML-RPC, each of which may hold one; and passwords of
// protected posts.
const (
	loginWindow     = 5 * time.Minute
	loginsOfVisitor = 10
	loginsOfNetwork = 50
	loginsOfSite    = 1000
	loginsOfName    = 20 // of a user name, from devices that it has not logged in from
	loginsOfDevice  = 10 // of a device that a user has logged in from
	remoteMore      = 5  // times as many requests of XML-RPC, which apps make for other things too
	postsMore       = 30 // times as many passwords of posts: an office opens the same page
	remoteOfSite    = 1000
	maxLogin        = 16 << 10 // bytes of a form that is read, and maxFields of its fields. In a larger one the name isn't known.
	maxFields       = 100
)

// throttle bounds how often passwords are tried.
type throttle struct{ logins, remote, posts, names, devices *fair.Attempts }

func newThrottle() throttle {
	times := func(n, ofSite int) *fair.Attempts {
		// share: total every site with sign-ins in the last window; owner of each site 1,000 tries, one network 50, one visitor 10; five times as many of a visitor for XML-RPC, 30 times for posts; edge 429 with Retry-After
		return fair.NewAttempts(fair.Limit{Window: loginWindow, Visitor: n * loginsOfVisitor, Network: n * loginsOfNetwork, Site: ofSite})
	}
	// share: total every site with sign-ins in the last window; owner of each site 20 tries of a user name, 10 of a known device; edge 429 with Retry-After
	of := func(n int) *fair.Attempts { return fair.NewAttempts(fair.Limit{Window: loginWindow, Visitor: n}) }
	return throttle{
		logins: times(1, loginsOfSite), remote: times(remoteMore, remoteOfSite), posts: times(postsMore, 0),
		names: of(loginsOfName), devices: of(loginsOfDevice),
	}
}

// take counts a request that may try a password, and returns how long to wait where it is one too many. It reads the form of a login, and
// leaves it to be read again. path is the request's, without the folder of a network's blog.
func (t throttle) take(site id.Site, device, path string, r *http.Request) time.Duration {
	if r.Method != http.MethodPost {
		return 0
	}
	visitor, now := fair.Visitor(r.RemoteAddr), time.Now()
	switch script(path) {
	case "/wp-login.php", "/wp-signup.php", "/wp-activate.php":
	case "/xmlrpc.php":
		return t.remote.Try(string(site), visitor, now)
	default:
		return 0
	}
	form := loginForm(r)
	if form.action == "postpass" {
		return t.posts.Try(string(site), visitor, now)
	}
	if form.name == "" && form.read { // of nobody: nothing can be tried
		return t.logins.Try(string(site), visitor, now)
	}
	name := nameDigest(device, form.name)
	for _, c := range r.CookiesNamed(DeviceCookie) {
		if form.name != "" && knows(device, c.Value, name, now) {
			return t.devices.Try(string(site), c.Value, now)
		}
	}
	if wait := t.names.Wait(string(site), name, now); wait > 0 {
		return wait
	}
	if wait := t.logins.Try(string(site), visitor, now); wait > 0 {
		return wait
	}
	return t.names.Try(string(site), name, now)
}

// login is what a form of wp-login.php says.
type login struct {
	action, name string
	read         bool // it was understood
}

// loginForm reads the form of a login as PHP does: the last value of a name counts, and the body goes before the query. One that can't be
// read has no name.
func loginForm(r *http.Request) (l login) {
	l.action = field(r.URL.RawQuery, "action")
	if l.read = true; r.Body == nil || r.Body == http.NoBody {
		return l
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxLogin+1))
	r.Body = read{io.MultiReader(bytes.NewReader(text), failing{err}, r.Body), r.Body}
	kind, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	if err != nil || len(text) > maxLogin || bytes.Count(text, []byte("&")) > maxFields ||
		strings.TrimSpace(kind) != "application/x-www-form-urlencoded" {
		return login{}
	}
	if action := field(string(text), "action"); action != "" {
		l.action = action
	}
	l.name = field(string(text), "log")
	if l.name == "" {
		l.name = field(string(text), "user_login")
	}
	return l
}

// field returns the last value of a name in a form, as PHP names it.
func field(form, name string) (value string) {
	for part := range strings.SplitSeq(form, "&") {
		key, text, _ := strings.Cut(part, "=")
		key, err := url.QueryUnescape(key)
		if err != nil {
			continue
		}
		key, _, _ = strings.Cut(strings.TrimLeft(key, " "), "\x00")
		if of, _, _ := strings.Cut(key, "["); of != name {
			continue
		}
		if text, err = url.QueryUnescape(text); err == nil {
			value = text
		}
	}
	return value
}

// read is a body of which some was read before.
type read struct {
	io.Reader
	io.Closer
}

// failing is a reader that has failed; without an error it has ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// DeviceCookie is the cookie of a device that a user has logged in from. WordPress sets it: until when it holds, digests of the user's
// names, and a digest of both with a key of the site.
const DeviceCookie = "known_device"

// Device returns the key of a WordPress with that key by which it knows devices.
func Device(key []byte) string { return digest(string(key), "device") }

func digest(key, text string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil))
}

func nameDigest(key, name string) string {
	return digest(key, "name "+strings.ToLower(strings.TrimSpace(name)))[:32]
}

// knows reports whether a cookie says that a user has logged in with it.
func knows(key, cookie, name string, now time.Time) bool {
	text, sum, ok := strings.Cut(cookie, "-")
	if key == "" || !ok || len(cookie) > 300 || !hmac.Equal([]byte(sum), []byte(digest(key, text))) {
		return false
	}
	parts := strings.Split(text, ".")
	until, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || now.Unix() > until {
		return false
	}
	for _, p := range parts[1:] {
		if hmac.Equal([]byte(p), []byte(name)) {
			return true
		}
	}
	return false
}
