package shell

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
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// policy is the Content Security Policy of every response: nothing from other hosts, and nothing inline.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// maxForm caps a form in bytes. It allows a large .env file.
const maxForm = 4 << 20

// headers sets the common response headers.
func (d *Shell) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms would have Origin: null
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// dispatch calls the route's handler, or responds with a "not found" page.
func (d *Shell) dispatch(w http.ResponseWriter, r *http.Request) {
	if path.Clean(r.URL.Path) == r.URL.Path { // otherwise the mux would redirect
		if _, pattern := d.mux.Handler(r); pattern != "" {
			d.mux.ServeHTTP(w, r)
			return
		}
	}
	d.handle(Route{Access: Open, do: func(ctx context.Context, q *Request) (Answer, error) {
		return Answer{}, fault.Missing("page")
	}}).ServeHTTP(w, r)
}

func (d *Shell) refuseForeign(w http.ResponseWriter, r *http.Request) {
	d.handle(Route{Access: Open, do: func(ctx context.Context, q *Request) (Answer, error) {
		return Answer{}, fault.New(fault.Forbidden, "cross_origin", "Cross-origin request blocked",
			"open the page and submit the form again")
	}}).ServeHTTP(w, r)
}

// handle processes a request: it identifies the user, checks access, reads the form, calls the route's handler and
// responds.
func (d *Shell) handle(rt Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &Request{Request: r, ID: requestinfo.RequestID(r), Addr: d.TrustedProxies.Addr(r)}
		w.Header().Set("X-Request-Id", q.ID)
		begun := time.Now()
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				_ = panics.Caught(v)
				d.Log.ErrorContext(r.Context(), "handler panicked", "request", q.ID, "panic", v, "stack", string(debug.Stack()))
				d.finish(w, q, rt, Answer{}, errors.New("panic"))
			} else if v != nil {
				panic(v)
			}
		}()
		a, err := d.run(w, rt, q)
		if f := fault.As(err); f != nil && f.Code == account.StepUpCode && !wantsEvents(r) && !wantsJSON(r) {
			a, err = Answer{To: "/step-up" + NextOf(q)}, nil
		}
		d.finish(w, q, rt, a, err)
		d.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request", q.ID), slog.String("method", r.Method),
			slog.String("route", r.Pattern), slog.Duration("took", time.Since(begun)), slog.String("user", string(q.User.ID)))
	})
}

func (d *Shell) run(w http.ResponseWriter, rt Route, q *Request) (Answer, error) {
	ctx := q.Context()
	if !d.Ready.Load() {
		return Answer{}, &fault.Error{
			Kind:       fault.Unavailable,
			Message:    "Slipway is starting or stopping",
			Details:    "try again in a moment",
			RetryAfter: 2 * time.Second,
		}
	}
	if main := d.Elsewhere(q); main != "" && rt.main != "" {
		to := main + rt.main
		if q.Method == http.MethodGet {
			to = main + q.URL.RequestURI()
		}
		return Onward(OnwardData{To: to, Back: true}), nil
	}
	q.Flash = d.readFlash(q.Request)
	ctx = db.WithShare(ctx, "net:"+requestinfo.Network(q.Addr))
	if err := d.identify(ctx, q, rt); err != nil {
		return Answer{}, err
	}
	if q.User.ID != "" {
		ctx = db.WithShare(ctx, string(q.Caller.Owner))
	}
	if to, err := d.admit(ctx, rt, q); err != nil || to != "" {
		return Answer{To: to}, err
	}
	drop := func() {}
	if q.Method == http.MethodPost {
		if boundary := boundaryOf(q.Request); rt.receive != nil && boundary != "" {
			dropped, err := d.receiveForm(ctx, w, rt, q, boundary)
			if err != nil {
				return Answer{}, err
			}
			if dropped != nil {
				drop = dropped
			}
		} else {
			q.Body = http.MaxBytesReader(w, q.Body, maxForm)
			if err := readForm(q.Request); err != nil {
				return Answer{}, err
			}
		}
		if q.User.ID != "" { // check again, since the session may have ended while the form arrived
			if err := d.identify(ctx, q, rt); err != nil {
				drop()
				return Answer{}, err
			}
			if to, err := d.admit(ctx, rt, q); err != nil || to != "" {
				drop()
				return Answer{To: to}, err
			}
		}
	}
	a, err := rt.do(ctx, q)
	if err != nil {
		drop()
	}
	return a, err
}

// identify determines the user and the owner that the route acts for.
func (d *Shell) identify(ctx context.Context, q *Request, rt Route) (err error) {
	token := d.ReadCookie(q.Request, SessionCookie)
	if token == "" {
		return nil
	}
	q.Session, q.User, err = d.Accounts.Session(ctx, token, q.Device())
	if fault.Is(err, fault.Unauthorized) {
		q.clear, q.Caller = append(q.clear, SessionCookie), account.Caller{}
		return nil
	}
	if err != nil {
		return err
	}
	q.Caller, err = d.Accounts.CallerIn(ctx, q.User, q.Session, q.User.Owner)
	if q.Session.Only != "" { // admit refuses everything outside the team
		q.Caller, err = account.Caller{User: q.User.ID, Owner: q.Session.Only, Email: q.User.Email}, nil
	}
	if err != nil {
		return err
	}
	return d.actForTeam(ctx, q, rt)
}

// admit returns where to redirect if the route doesn't allow the user. The last line is a refusal.
func (d *Shell) admit(ctx context.Context, rt Route, q *Request) (to string, err error) {
	pending := q.User.ID != "" && q.Session.Pending
	switch {
	case rt.Access == Open:
		return "", nil
	case rt.Access == SignedOut && !q.signedIn():
		return "", nil
	case rt.Access == SignedOut:
		return Local(q.Query("next")), nil
	case rt.Access != Halfway && q.signedIn() && q.Session.Only != "" && q.member.Owner != q.Session.Only && !rt.anyTeam:
		return "", account.ErrTeamSession
	case rt.Access == Halfway && pending, rt.Access == User && q.signedIn(), rt.Access == Operator && q.signedIn() && q.User.Admin:
		return "", nil
	case rt.Access == Operator && q.signedIn():
		return "", fault.Missing("page")
	case rt.Access == Halfway && q.signedIn():
		return "/", nil
	case wantsEvents(q.Request) || wantsJSON(q.Request):
		return "", fault.New(fault.Unauthorized, "signed_out", "Signed out", "sign in again")
	case pending && rt.Access != Halfway:
		return "/sign-in/code" + NextOf(q), nil
	}
	return "/sign-in" + NextOf(q), nil
}

// NextOf returns the query with which the sign-in page returns here.
func NextOf(q *Request) string {
	if q.Method != http.MethodGet || q.URL.Path == "/" || strings.HasPrefix(q.URL.Path, "/sign-in") {
		if n := q.Query("next"); n != "" && Local(n) != "/" {
			return "?next=" + url.QueryEscape(n)
		}
		return ""
	}
	return "?next=" + url.QueryEscape(q.URL.RequestURI())
}

func readForm(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind = strings.TrimSpace(strings.ToLower(kind))
	if kind != "" && kind != "application/x-www-form-urlencoded" {
		return fault.New(fault.Media, "", "Unsupported content type",
			"forms must be sent as application/x-www-form-urlencoded")
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
			values[i] = strings.ReplaceAll(v, "\r\n", "\n") // browsers send CRLF
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

// finish responds. It is the only place that turns errors into pages.
func (d *Shell) finish(w http.ResponseWriter, q *Request, rt Route, a Answer, err error) {
	for _, name := range q.clear {
		http.SetCookie(w, d.NoCookie(name))
	}
	if err != nil {
		a = d.failed(q, rt, err)
		if f := fault.As(err); f != nil && f.RetryAfter > 0 {
			setRetry(w.Header(), f.RetryAfter)
		} else if a.status == http.StatusServiceUnavailable {
			setRetry(w.Header(), 2*time.Second)
		}
	}
	for _, c := range a.Cookies {
		http.SetCookie(w, c)
	}
	switch {
	case a.To != "":
		if a.Flash != "" {
			http.SetCookie(w, d.flashCookie(a.Flash))
		}
		w.Header().Set("Location", d.teamLink(q, a.To))
		w.WriteHeader(http.StatusSeeOther)
	case a.raw != nil:
		a.raw(w)
	case a.Json != nil:
		w.Header().Set("Content-Type", "application/json")
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		json.NewEncoder(w).Encode(a.Json) // errors mean that the client is gone
	case a.live.render != nil:
		d.serveLive(w, q, a.live)
	case a.stream != nil:
		d.serveStream(w, q, a.stream)
	default:
		if a.popup {
			w.Header().Set("Cross-Origin-Opener-Policy", "unsafe-none")
		}
		if a.onward != "" {
			w.Header().Set("Refresh", "0; url="+a.onward)
		}
		if a.formTo != "" {
			w.Header().Set("Content-Security-Policy", policyFor(a.formTo))
		}
		d.render(w, q, a)
	}
}
