package dashboard

import (
	"context"
	"net/http"
)

// access says whom a route lets in.
type access int

const (
	open      access = iota // anybody
	signedOut               // who is not signed in; others are sent home
	halfway                 // who owes the second factor
	user                    // who is signed in
	operator                // who runs the installation; for others the page does not exist
)

// handler does one thing of one page.
type handler func(ctx context.Context, q *request) (answer, error)

// route is one line of the list.
type route struct {
	method, path string
	access       access
	do           handler
	form         handler // the page that holds the form: it is shown again when do fails. Optional.
}

func get(path string, who access, do handler) route {
	return route{http.MethodGet, path, who, do, nil}
}

func post(path string, who access, do, form handler) route {
	return route{http.MethodPost, path, who, do, form}
}

// listRoutes is every route there is.
func (d *Dashboard) listRoutes() []route {
	rs := []route{
		get("/assets/{name}", open, d.asset),
		post("/theme", open, d.setTheme, nil),

		get("/setup/{token}", open, d.setupPage),
		post("/setup/{token}", open, d.setUp, d.setupPage),
		get("/sign-in", signedOut, d.signInPage),
		post("/sign-in", signedOut, d.signIn, d.signInPage),
		post("/sign-in/passkey/begin", signedOut, d.askPasskey, nil),
		post("/sign-in/passkey", signedOut, d.signInPasskey, d.signInPage),
		get("/forgot", signedOut, d.forgotPage),
		post("/forgot", signedOut, d.askReset, d.forgotPage),
		get("/sign-in/code", halfway, d.codePage),
		post("/sign-in/code", halfway, d.passCode, d.codePage),
		post("/sign-out", open, d.signOut, nil),

		get("/notifications/confirm/{token}", open, d.confirmPage),
		post("/notifications/confirm/{token}", open, d.confirm, d.confirmPage),
		get("/notifications/stop/{token}", open, d.stopPage),
		post("/notifications/stop/{token}", open, d.stop, d.stopPage),

		get("/access", user, d.answerAccess),
		get("/{$}", user, d.home),
		get("/sites", user, d.homeAlias),
		get("/live/home", user, d.homeLive),
	}
	rs = append(rs, d.accountRoutes()...)
	rs = append(rs, d.connectionRoutes()...)
	rs = append(rs, d.notifyRoutes()...)
	rs = append(rs, d.operatorRoutes()...)
	rs = append(rs, d.siteRoutes()...)
	return rs
}
