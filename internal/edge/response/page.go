package response

import (
	"bytes"
	"html/template"
	"net/http"
	"strconv"
)

// Notice is a page of ours, for a visitor who knows nothing of sites and deployments.
type Notice struct {
	Status int
	Retry  int // seconds until a visitor should ask again; 0 for none
	title  string
	text   string
	form   bool // asks for the site's password
	signIn bool // offers to sign in at the control plane
	html   []byte
}

// As returns the same page with another status.
func (n *Notice) As(status int) *Notice {
	other := *n
	other.Status = status
	return &other
}

func made(n Notice) *Notice {
	var b bytes.Buffer
	if err := layout.Execute(&b, struct {
		Title, Text  string
		Form, SignIn bool
	}{n.title, n.text, n.form, n.signIn}); err != nil {
		panic(err)
	}
	n.html = b.Bytes()
	return &n
}

// The pages. Nothing of a request is in them: they are made once, at start.
var (
	PageUnknown = made(Notice{
		Status: 404, title: "Site not found",
		text: "Nothing is published at this address. Check it for typing mistakes, or ask whoever gave it to you.",
	})
	PageMissing = made(Notice{
		Status: 404, title: "Page not found",
		text: "This site has no page at this address.",
	})
	PageLogin = made(Notice{
		Status: 401, title: "Password required",
		text: "This page requires a user name and a password. Reload it to enter them.",
	})
	PageAccess = made(Notice{
		Status: 401, title: "This site is protected", form: true,
		text: "Enter the password to continue.",
	})
	PageDenied = made(Notice{
		Status: 401, title: "This site is protected", form: true,
		text: "Wrong password. Try again.",
	})
	PageEither = made(Notice{
		Status: 401, title: "This site is protected", form: true, signIn: true,
		text: "Enter the password, or sign in as a member.",
	})
	PageEitherDenied = made(Notice{
		Status: 401, title: "This site is protected", form: true, signIn: true,
		text: "Wrong password. Try again, or sign in as a member.",
	})
	PageMembers = made(Notice{
		Status: 401, title: "Sign in to continue", signIn: true,
		text: "Only members of this site can see this page.",
	})
	PageNoGrant = made(Notice{
		Status: 401, title: "Sign in again", signIn: true,
		text: "This sign-in has expired or was begun in another browser.",
	})
	PageStopped = made(Notice{
		Status: 503, title: "This site is offline",
		text: "Its owner has stopped it. Try again later.",
	})
	PagePaused = made(Notice{
		Status: 503, title: "This site is paused", Retry: 3600,
		text: "It has used up its bandwidth for this month. Its owner can find out more.",
	})
	PageEmpty = made(Notice{
		Status: 503, title: "This site is being deployed", Retry: 5,
		text: "Its first deployment is in progress. Try again in a moment.",
	})
	PageError = made(Notice{
		Status: 503, title: "This site isn't available yet", Retry: 60,
		text: "Nothing has been published yet. The owner can see why in the dashboard.",
	})
	PageStarting = made(Notice{
		Status: 503, title: "One moment, please", Retry: 1,
		text: "This server has just started. Try again in a few seconds.",
	})
	PageBusy = made(Notice{
		Status: 503, title: "One moment, please", Retry: 5,
		text: "This address can't be looked up right now. Try again in a few seconds.",
	})
	PageOverloaded = made(Notice{
		Status: 503, title: "This site is busy", Retry: 5,
		text: "Too many of its answers are under way. Try again in a few seconds.",
	})
	PageWaking = made(Notice{
		Status: 503, title: "This site can't be reached right now",
		text: "Its application could not be started. Try again in a moment. The owner can see why in the site's log.",
	})
	PageCrashed = made(Notice{
		Status: 502, title: "This site didn't answer",
		text: "Its application stopped while responding. Try again in a moment.",
	})
	PageTimeout = made(Notice{
		Status: 504, title: "This site took too long to respond",
		text: "Its application didn't respond in time. Try again later.",
	})
	PageAway = made(Notice{
		Status: 503, title: "This page can't be shown right now", Retry: 5,
		text: "The files of this site can't be read at the moment. Try again in a few seconds.",
	})
	PageBroken = made(Notice{
		Status: 500, title: "This page can't be shown right now",
		text: "An internal error occurred and was logged. Try again later.",
	})
)

var layout = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>html{color-scheme:light dark;font:17px/1.5 system-ui,sans-serif}body{margin:18vh auto;max-width:32rem;padding:0 1.5rem}h1{font-size:1.5rem;line-height:1.2}p{opacity:.8}</style>
</head><body><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Form}}<form method="post"><p><label>Password <input type="password" name="slipway_password" required maxlength="200" autocomplete="current-password" autofocus></label> <button>Continue</button></p></form>{{end}}{{if .SignIn}}<p><a href="/.slipway/sign-in">Sign in</a></p>{{end}}</body></html>
`))

// Page answers with a page of ours.
func Page(w http.ResponseWriter, r *http.Request, n *Notice) {
	h := w.Header()
	for _, name := range []string{"Etag", "Content-Encoding", "Accept-Ranges", "Vary", "Content-Range"} {
		h.Del(name)
	}
	if n.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(n.Retry))
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'self'")
	h.Set("X-Robots-Tag", "noindex")
	short(w, r, n.Status, "text/html; charset=utf-8", n.html)
}

// Fail answers with a status and a line of text, for what only programs see.
func Fail(w http.ResponseWriter, r *http.Request, status int) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, HEAD")
	}
	short(w, r, status, "text/plain; charset=utf-8", []byte(http.StatusText(status)+"\n"))
}

func short(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	h := w.Header()
	h["X-Content-Type-Options"] = Nosniff
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) // an error is the visitor's leaving
	}
}
