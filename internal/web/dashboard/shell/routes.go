package shell

import (
	"context"
	"net/http"
)

// access says whom a route lets in.
type access int

const (
	Open      access = iota // anybody
	SignedOut               // who is not signed in; others are sent home
	Halfway                 // who owes the second factor
	User                    // who is signed in
	Operator                // who runs the installation; for others the page does not exist
)

// handler does one thing of one page.
type handler func(ctx context.Context, q *Request) (Answer, error)

// Route is one line of the list.
type Route struct {
	Method, Path string
	Access       access
	do           handler
	form         handler // the page that holds the form: it is shown again when do fails. Optional.
}

func Get(path string, who access, do handler) Route {
	return Route{http.MethodGet, path, who, do, nil}
}

func Post(path string, who access, do, form handler) Route {
	return Route{http.MethodPost, path, who, do, form}
}
