package response

import (
	"bytes"
	"crypto/rand"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Notice is one of our own pages, for visitors who know nothing about sites and deployments.
type Notice struct {
	Status int
	Retry  int // seconds for Retry-After; 0: none
	title  string
	text   string
	again  bool // offers to try again
	form   bool // asks for the site's password
	wrong  bool // says that the password was wrong
	signIn bool // offers to sign in at the control plane
	alone  bool // belongs to no site, so no log has its request
	before []byte
	after  []byte // the page around the status and the request's id
}

// As returns a copy of the page with another status.
func (n *Notice) As(status int) *Notice {
	other := *n
	other.Status = status
	return &other
}

func made(n Notice) *Notice {
	var b bytes.Buffer
	if err := layout.Execute(&b, struct {
		Title, Text, Mark          string
		Form, SignIn, Again, Wrong bool
	}{n.title, n.text, mark, n.form, n.signIn, n.again, n.wrong}); err != nil {
		panic(err)
	}
	n.before, n.after, _ = bytes.Cut(b.Bytes(), []byte(mark))
	return &n
}

// mark is replaced by the status and the request's id.
const mark = "{mark}"

// RequestField is the header with the request's id, which also appears in the site's logs.
const RequestField = "X-Request-Id"

// NewID returns a new id of a request.
func NewID() string { return "req_" + strings.ToLower(rand.Text()) }

// body returns the page with its status and, if not empty, the request's id.
func (n *Notice) body(request string) []byte {
	known := "Error " + strconv.Itoa(n.Status)
	if request != "" {
		known += " · Request ID <code>" + request + "</code>"
	}
	return slices.Concat(n.before, []byte(known), n.after)
}

// The pages are rendered at start, since they contain nothing of a request.
var (
	PageUnknown = made(Notice{
		Status: 404, title: "Site not found", alone: true,
		text: "Nothing is published at this address. Check the address for typos.",
	})
	PageMissing = made(Notice{
		Status: 404, title: "Page not found",
		text: "This site has no page at this address. Check the address for typos.",
	})
	PageLogin = made(Notice{
		Status: 401, title: "Password required", again: true,
		text: "This page requires a user name and a password. Try again to enter them.",
	})
	PageAccess = made(Notice{
		Status: 401, title: "This site is protected", form: true,
		text: "Enter the password to continue.",
	})
	PageDenied = made(Notice{
		Status: 401, title: "This site is protected", wrong: true, form: true,
		text: "Wrong password. Try again.",
	})
	PageEither = made(Notice{
		Status: 401, title: "This site is protected", form: true, signIn: true,
		text: "Enter the password, or sign in as a member.",
	})
	PageEitherDenied = made(Notice{
		Status: 401, title: "This site is protected", wrong: true, form: true, signIn: true,
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
		Status: 503, title: "This site is offline", again: true,
		text: "Its owner has stopped it. Try again later.",
	})
	PagePaused = made(Notice{
		Status: 503, title: "This site is paused", again: true, Retry: 3600,
		text: "It has used up its bandwidth for this month. Its owner can see more in the dashboard.",
	})
	PageThrottled = made(Notice{
		Status: 503, title: "This site is busy", again: true, Retry: 10,
		text: "It has used up its bandwidth for this month and answers slowly. Try again in a few seconds.",
	})
	PageEmpty = made(Notice{
		Status: 503, title: "This site is being deployed", again: true, Retry: 5,
		text: "Its first deployment is in progress. Try again in a few seconds.",
	})
	PageError = made(Notice{
		Status: 503, title: "This site isn't available yet", again: true, Retry: 60,
		text: "Nothing has been published yet. Its owner can see why in the dashboard.",
	})
	PageStarting = made(Notice{
		Status: 503, title: "One moment, please", again: true, alone: true, Retry: 1,
		text: "This server has just started. Try again in a few seconds.",
	})
	PageBusy = made(Notice{
		Status: 503, title: "One moment, please", again: true, Retry: 5,
		text: "This address couldn't be looked up. Try again in a few seconds.",
	})
	PageOverloaded = made(Notice{
		Status: 503, title: "This site is busy", again: true, Retry: 5,
		text: "It is handling too many requests. Try again in a few seconds.",
	})
	PageWaking = made(Notice{
		Status: 503, title: "This site can't be reached right now", again: true,
		text: "Its application couldn't be started. Try again in a moment. Its owner can see why in the site's log.",
	})
	PageCrashed = made(Notice{
		Status: 502, title: "This site didn't answer", again: true,
		text: "Its application stopped while responding. Try again in a moment. Its owner can find the request in the site's log.",
	})
	PageTimeout = made(Notice{
		Status: 504, title: "This site took too long to respond", again: true,
		text: "Its application didn't respond in time. Try again in a moment.",
	})
	PageAway = made(Notice{
		Status: 503, title: "This page can't be shown right now", again: true, Retry: 5,
		text: "The files of this site can't be read. Try again in a few seconds.",
	})
	PageBroken = made(Notice{
		Status: 500, title: "This page can't be shown right now", again: true,
		text: "An internal error occurred and was logged. Try again later.",
	})
)

// Colors and shapes match the dashboard (assets/app.css).
var layout = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>html{color-scheme:light dark;font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
--c:light-dark(#fff,#151a1d);--i:light-dark(#16191c,#eceef0);--s:light-dark(#545c65,#a3acb5);--l:light-dark(#e4e5e2,#262d32);
--e:light-dark(#c8cbce,#3b444b);--a:light-dark(#0b6577,#57c2d4);--o:light-dark(#fff,#04191e);--b:light-dark(#b3261e,#ff8a80)}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;min-height:100dvh;display:grid;grid-template-columns:minmax(0,27rem);place-content:center;padding:1.5rem;background:light-dark(#f5f5f3,#0a0c0e);color:var(--i)}
main{background:var(--c);border:1px solid var(--l);border-radius:12px;padding:2rem;box-shadow:0 12px 40px light-dark(rgb(20 24 32/.07),rgb(0 0 0/.4))}
h1{margin:0 0 .5rem;font-size:1.25rem;line-height:1.4;font-weight:600;letter-spacing:-.015em;text-wrap:balance}
p{margin:0;color:var(--s);text-wrap:pretty}p.wrong{color:var(--b)}form,.do{margin-top:1.5rem}
label{display:block;margin-bottom:.375rem;font-size:.875rem;font-weight:600}
input,button,.do a{font:inherit;height:2.5rem;border-radius:8px;padding:0 .875rem;width:100%}
input{background:var(--c);color:var(--i);border:1px solid var(--e);margin-bottom:.75rem}
button,.do a{display:inline-flex;align-items:center;justify-content:center;border:0;background:var(--a);color:var(--o);font-weight:600;text-decoration:none;cursor:pointer}
.do a{width:auto}form+.do{margin-top:.75rem}form+.do a{width:100%;background:none;color:var(--a);border:1px solid var(--e)}
:focus-visible{outline:2px solid var(--a);outline-offset:2px}
footer{margin-top:1.5rem;padding-top:1rem;border-top:1px solid var(--l);font-size:.8125rem;color:var(--s);overflow-wrap:anywhere}
code{font:.9em ui-monospace,Menlo,Consolas,monospace}</style>
</head><body><main><h1>{{.Title}}</h1><p{{if .Wrong}} class="wrong" role="alert"{{end}}>{{.Text}}</p>
{{if .Form}}<form method="post"><label for="p">Password</label><input id="p" type="password" name="slipway_password" required maxlength="200" autocomplete="current-password" autofocus><button>Continue</button></form>{{end}}
{{if .SignIn}}<p class="do"><a href="/.slipway/sign-in">Sign in</a></p>{{end}}{{if .Again}}<p class="do"><a href="">Try again</a></p>{{end}}
<footer>{{.Mark}}</footer></main></body></html>
`))

// Page answers with one of our pages.
func Page(w http.ResponseWriter, r *http.Request, n *Notice) {
	h := w.Header()
	for _, name := range []string{"Etag", "Content-Encoding", "Accept-Ranges", "Vary", "Content-Range"} {
		h.Del(name)
	}
	if n.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(n.Retry))
	}
	id := ""
	if !n.alone {
		if known, ok := w.(interface{ RequestID() string }); ok {
			id = known.RequestID()
		} else {
			id = NewID()
		}
		h.Set(RequestField, id)
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'self'")
	h.Set("X-Robots-Tag", "noindex")
	short(w, r, n.Status, "text/html; charset=utf-8", n.body(id))
}

// Allow lists the methods that files support.
const Allow = "GET, HEAD, OPTIONS"

// Fail answers with a status and one line of text, for clients that aren't browsers.
func Fail(w http.ResponseWriter, r *http.Request, status int) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", Allow)
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
		w.Write(body) // an error means that the visitor has left
	}
}
