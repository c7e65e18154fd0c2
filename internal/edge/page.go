package edge

import (
	"bytes"
	"html/template"
	"net/http"
	"strconv"
)

// notice is a page of ours, for a visitor who knows nothing of sites and deployments.
type notice struct {
	status int
	title  string
	text   string
	retry  int  // seconds, 0 for none
	form   bool // asks for the site's password
	signIn bool // offers to sign in at the control plane
	html   []byte
}

var (
	pageUnknown = &notice{status: 404, title: "Site not found",
		text: "Nothing is published at this address. Check it for typing mistakes, or ask whoever gave it to you."}
	pageMissing = &notice{status: 404, title: "Page not found",
		text: "This site has no page at this address."}
	pageLogin = &notice{status: 401, title: "Password required",
		text: "This page requires a user name and a password. Reload it to enter them."}
	pageAccess = &notice{status: 401, title: "This site is protected", form: true,
		text: "Enter the password to continue."}
	pageDenied = &notice{status: 401, title: "This site is protected", form: true,
		text: "Wrong password. Try again."}
	pageEither = &notice{status: 401, title: "This site is protected", form: true, signIn: true,
		text: "Enter the password, or sign in as a member."}
	pageEitherDenied = &notice{status: 401, title: "This site is protected", form: true, signIn: true,
		text: "Wrong password. Try again, or sign in as a member."}
	pageMembers = &notice{status: 401, title: "Sign in to continue", signIn: true,
		text: "Only members of this site can see this page."}
	pageNoGrant = &notice{status: 401, title: "Sign in again", signIn: true,
		text: "This sign-in has expired or was begun in another browser."}
	pageStopped = &notice{status: 503, title: "This site is offline",
		text: "Its owner has stopped it. Try again later."}
	pagePaused = &notice{status: 503, title: "This site is paused", retry: 3600,
		text: "It has used up its bandwidth for this month. Its owner can find out more."}
	pageEmpty = &notice{status: 503, title: "This site is being deployed", retry: 5,
		text: "Its first deployment is in progress. Try again in a moment."}
	pageError = &notice{status: 503, title: "This site isn't available yet", retry: 60,
		text: "Nothing has been published yet. The owner can see why in the dashboard."}
	pageStarting = &notice{status: 503, title: "One moment, please", retry: 1,
		text: "This server has just started. Try again in a few seconds."}
	pageBusy = &notice{status: 503, title: "One moment, please", retry: 5,
		text: "This address can't be looked up right now. Try again in a few seconds."}
	pageWaking = &notice{status: 503, title: "This site can't be reached right now",
		text: "Its application could not be started. Try again in a moment. The owner can see why in the site's log."}
	pageCrashed = &notice{status: 502, title: "This site didn't answer",
		text: "Its application stopped while responding. Try again in a moment."}
	pageTimeout = &notice{status: 504, title: "This site took too long to respond",
		text: "Its application didn't respond in time. Try again later."}
	pageAway = &notice{status: 503, title: "This page can't be shown right now", retry: 5,
		text: "The files of this site can't be read at the moment. Try again in a few seconds."}
	pageBroken = &notice{status: 500, title: "This page can't be shown right now",
		text: "An internal error occurred and was logged. Try again later."}
)

var notices = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>html{color-scheme:light dark;font:17px/1.5 system-ui,sans-serif}body{margin:18vh auto;max-width:32rem;padding:0 1.5rem}h1{font-size:1.5rem;line-height:1.2}p{opacity:.8}</style>
</head><body><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Form}}<form method="post"><p><label>Password <input type="password" name="slipway_password" required maxlength="200" autocomplete="current-password" autofocus></label> <button>Continue</button></p></form>{{end}}{{if .SignIn}}<p><a href="/.slipway/sign-in">Sign in</a></p>{{end}}</body></html>
`))

// The pages are made once, at start: nothing of a request is in them.
func init() {
	for _, n := range []*notice{pageUnknown, pageMissing, pageLogin, pageAccess, pageDenied, pageEither, pageEitherDenied, pageMembers, pageNoGrant, pageStopped, pagePaused, pageEmpty, pageError, pageStarting, pageBusy, pageWaking, pageCrashed, pageTimeout, pageBroken} {
		var b bytes.Buffer
		if err := notices.Execute(&b, struct {
			Title, Text  string
			Form, SignIn bool
		}{n.title, n.text, n.form, n.signIn}); err != nil {
			panic(err)
		}
		n.html = b.Bytes()
	}
}

// page answers with a page of ours.
func page(w http.ResponseWriter, r *http.Request, n *notice) {
	h := w.Header()
	for _, name := range []string{"Etag", "Content-Encoding", "Accept-Ranges", "Vary", "Content-Range"} {
		h.Del(name)
	}
	if n.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(n.retry))
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'self'")
	h.Set("X-Robots-Tag", "noindex")
	short(w, r, n.status, "text/html; charset=utf-8", n.html)
}

// fail answers what only programs see.
func fail(w http.ResponseWriter, r *http.Request, status int) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, HEAD")
	}
	short(w, r, status, "text/plain; charset=utf-8", []byte(http.StatusText(status)+"\n"))
}

func short(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	h := w.Header()
	h["X-Content-Type-Options"] = nosniff
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) // an error is the visitor's leaving
	}
}
