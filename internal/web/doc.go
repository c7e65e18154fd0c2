// Package web owns no code. It is the district of what people and programs reach at the control
// plane: the REST interface, deploy hooks, the pages, and the developer's end of a webhook listener.
//
// Its rule: a handler holds no rule: it reads a request, calls a service once, and writes what came
// of it.
//
// Begin with api/api.go: it puts the nouns of the interface together, each a package beside it over
// api/contract; dashboard/dashboard.go does so for pages.
package web
