package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// policy is the Content Security Policy of every answer: nothing from another host,
// nothing inline.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// maxForm is the most bytes of a form: a large .env file fits.
const maxForm = 4 << 20

// shell sets what every answer carries.
func (d *Dashboard) shell(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // not no-referrer: forms would then carry Origin: null
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// dispatch finds the route; where there is none it answers with a page.
func (d *Dashboard) dispatch(w http.ResponseWriter, r *http.Request) {
	if path.Clean(r.URL.Path) == r.URL.Path { // else the mux would redirect
		if _, pattern := d.mux.Handler(r); pattern != "" {
			d.mux.ServeHTTP(w, r)
			return
		}
	}
	d.handle(route{access: open, do: func(ctx context.Context, q *request) (answer, error) {
		return answer{}, fault.Missing("page")
	}}).ServeHTTP(w, r)
}

func (d *Dashboard) refuseForeign(w http.ResponseWriter, r *http.Request) {
	d.handle(route{access: open, do: func(ctx context.Context, q *request) (answer, error) {
		return answer{}, &fault.Error{
			Kind: fault.Forbidden, Message: "Cross-origin request blocked",
			Details: "open the page and submit the form again", Code: "cross_origin",
		}
	}}).ServeHTTP(w, r)
}

// handle is the way every request goes: who is it, may they, what was typed, do it, and
// answer.
func (d *Dashboard) handle(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{Request: r, id: requestinfo.RequestID(r), addr: requestinfo.Addr(r, d.TrustedProxies)}
		w.Header().Set("X-Request-Id", q.id)
		begun := time.Now()
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				d.Log.ErrorContext(r.Context(), "handler panicked", "request", q.id, "panic", v, "stack", string(debug.Stack()))
				d.finish(w, q, rt, answer{}, errors.New("panic"))
			} else if v != nil {
				panic(v)
			}
		}()
		a, err := d.run(w, rt, q)
		d.finish(w, q, rt, a, err)
		d.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request", q.id), slog.String("method", r.Method),
			slog.String("route", r.Pattern), slog.Duration("took", time.Since(begun)), slog.String("user", string(q.user.ID)))
	})
}

func (d *Dashboard) run(w http.ResponseWriter, rt route, q *request) (answer, error) {
	ctx := q.Context()
	if !d.Ready.Load() {
		return answer{}, &fault.Error{
			Kind:       fault.Unavailable,
			Message:    "Slipway is starting or stopping",
			Details:    "try again in a moment",
			RetryAfter: 2 * time.Second,
		}
	}
	q.flash = d.readFlash(q.Request)
	ctx = db.WithShare(ctx, "net:"+requestinfo.Network(q.addr))
	if err := d.identify(ctx, q); err != nil {
		return answer{}, err
	}
	if q.user.ID != "" {
		ctx = db.WithShare(ctx, string(q.caller.Owner))
	}
	if to, err := d.admit(ctx, rt, q); err != nil || to != "" {
		return answer{to: to}, err
	}
	if q.Method == http.MethodPost {
		q.Body = http.MaxBytesReader(w, q.Body, maxForm)
		if err := readForm(q.Request); err != nil {
			return answer{}, err
		}
		if q.user.ID != "" { // a form may take a minute to come: whoever is signed out by then does nothing
			if err := d.identify(ctx, q); err != nil {
				return answer{}, err
			}
			if to, err := d.admit(ctx, rt, q); err != nil || to != "" {
				return answer{to: to}, err
			}
		}
	}
	return rt.do(ctx, q)
}

// identify finds out who is asking.
func (d *Dashboard) identify(ctx context.Context, q *request) (err error) {
	token := d.readCookie(q.Request, sessionCookie)
	if token == "" {
		return nil
	}
	q.session, q.user, err = d.Accounts.Session(ctx, token, q.device())
	if fault.Is(err, fault.Unauthorized) {
		q.clear, q.caller = append(q.clear, sessionCookie), account.Caller{}
		return nil
	}
	if err != nil {
		return err
	}
	q.caller = q.user.Caller()
	return nil
}

// admit says where to go instead when the route does not let the asker in. The last line
// is a refusal.
func (d *Dashboard) admit(ctx context.Context, rt route, q *request) (to string, err error) {
	pending := q.user.ID != "" && q.session.Pending
	switch {
	case rt.access == open:
		return "", nil
	case rt.access == signedOut && !q.signedIn():
		return "", nil
	case rt.access == signedOut:
		return local(q.query("next")), nil
	case rt.access == halfway && pending, rt.access == user && q.signedIn(), rt.access == operator && q.signedIn() && q.user.Admin:
		return "", nil
	case rt.access == operator && q.signedIn():
		return "", fault.Missing("page")
	case rt.access == halfway && q.signedIn():
		return "/", nil
	case wantsEvents(q.Request) || wantsJSON(q.Request):
		return "", &fault.Error{Kind: fault.Unauthorized, Message: "Signed out", Details: "sign in again", Code: "signed_out"}
	case pending && rt.access != halfway:
		return "/sign-in/code" + nextOf(q), nil
	}
	return "/sign-in" + nextOf(q), nil
}

// nextOf is the query by which the sign-in page comes back here.
func nextOf(q *request) string {
	if q.Method != http.MethodGet || q.URL.Path == "/" || strings.HasPrefix(q.URL.Path, "/sign-in") {
		if n := q.query("next"); n != "" && local(n) != "/" {
			return "?next=" + url.QueryEscape(n)
		}
		return ""
	}
	return "?next=" + url.QueryEscape(q.URL.RequestURI())
}

func readForm(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if kind = strings.TrimSpace(strings.ToLower(kind)); kind != "" && kind != "application/x-www-form-urlencoded" {
		return &fault.Error{
			Kind:    fault.Media,
			Message: "Unsupported content type",
			Details: "forms must be sent as application/x-www-form-urlencoded",
		}
	}
	err := r.ParseForm()
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return &fault.Error{Kind: fault.TooLarge, Message: "The form is too large", Details: "the limit is 4 MiB"}
	}
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Message: "Invalid form data"}
	}
	for name, values := range r.PostForm {
		for i, v := range values {
			values[i] = strings.ReplaceAll(v, "\r\n", "\n") // as browsers send line breaks
		}
		r.PostForm[name] = values
	}
	return nil
}

func wantsEvents(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

func wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}

// finish answers: it is the one place where errors become pages.
func (d *Dashboard) finish(w http.ResponseWriter, q *request, rt route, a answer, err error) {
	for _, name := range q.clear {
		http.SetCookie(w, d.noCookie(name))
	}
	if err != nil {
		a = d.failed(q, rt, err)
		if f := fault.As(err); f != nil && f.RetryAfter > 0 {
			setRetry(w.Header(), f.RetryAfter)
		}
	}
	for _, c := range a.cookies {
		http.SetCookie(w, c)
	}
	switch {
	case a.to != "":
		if a.flash != "" {
			http.SetCookie(w, d.flashCookie(a.flash))
		}
		w.Header().Set("Location", a.to)
		w.WriteHeader(http.StatusSeeOther)
	case a.raw != nil:
		a.raw(w)
	case a.json != nil:
		w.Header().Set("Content-Type", "application/json")
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		json.NewEncoder(w).Encode(a.json) // a client that is gone is no error of ours
	case a.live.render != nil:
		d.serveLive(w, q, a.live)
	case a.stream != nil:
		d.serveStream(w, q, a.stream)
	default:
		if a.onward != "" {
			w.Header().Set("Refresh", "0; url="+a.onward)
		}
		if a.formTo != "" {
			w.Header().Set("Content-Security-Policy", policyFor(a.formTo))
		}
		d.render(w, q, a)
	}
}
