package contract

import (
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/web/api/clients"
)

// client is the generated client for one language, made at the first request.
type client struct {
	id, file, language string

	once sync.Once
	text []byte
}

// clientRoutes registers the downloads of clients.
func (a *API) clientRoutes(doc *huma.OpenAPI) {
	for _, c := range []*client{
		{id: "getTypeScriptClient", file: "slipway.ts", language: "TypeScript"},
		{id: "getGoClient", file: "slipway.go", language: "Go"},
	} {
		r := Route{
			Method: http.MethodGet, Path: "/clients/" + c.file, ID: c.id, Tag: "Reference", Status: 200, Open: true,
			Summary: "Get the " + c.language + " client",
			Doc:     "One file without dependencies, made from this installation's OpenAPI document. Needs no key.",
		}
		op := &huma.Operation{
			OperationID: r.ID, Method: r.Method, Path: "/api/v1" + r.Path, Tags: []string{r.Tag}, Summary: r.Summary, Description: r.Doc,
			Responses: map[string]*huma.Response{"200": {
				Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
			}},
		}
		doc.AddOperation(op)
		a.mux.HandleFunc("GET "+op.Path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Write(c.source(a.spec()))
		})
		a.ops = append(a.ops, r)
		a.complete(r, op)
	}
}

func (c *client) source(openAPI []byte) []byte {
	c.once.Do(func() {
		write := clients.Go
		if c.language == "TypeScript" {
			write = clients.TypeScript
		}
		var err error
		if c.text, err = write(openAPI); err != nil {
			panic(err) // the document is made from our own types, and tests cover it
		}
	})
	return c.text
}
