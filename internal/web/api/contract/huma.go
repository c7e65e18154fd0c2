package contract

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// newHuma configures huma for decoding, validation and the document. Errors and pages are ours.
func newHuma(mux *http.ServeMux, c Config) huma.API {
	cfg := huma.DefaultConfig("Slipway", c.Version)
	cfg.CreateHooks = nil // no "$schema" in bodies
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	cfg.AllowAdditionalPropertiesByDefault = true // unknown fields are ignored
	cfg.Formats = map[string]huma.Format{"application/json": {
		Marshal: func(w io.Writer, v any) error {
			b, err := Encode(v)
			if err == nil {
				_, err = w.Write(b)
			}
			return err
		},
		Unmarshal: json.Unmarshal,
	}}
	return humago.New(mux, cfg)
}

// huma creates errors through process-wide variables. Ours takes the API from the context, so that several APIs in one
// process (tests) don't interfere.
func init() {
	huma.DefaultArrayNullable = false // lists are never null
	huma.NewError = func(status int, msg string, _ ...error) huma.StatusError {
		return &problem{status: status, Message: msg}
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := &problem{
			status:    http.StatusInternalServerError,
			Message:   internalError,
			Code:      "internal_error",
			RequestID: From(ctx.Context()).id,
		}
		if status >= 500 {
			return p
		}
		registry, _ := ctx.Operation().Metadata["registry"].(huma.Registry)
		f := Invalid(ctx.Operation(), registry, errs)
		if msg == "request body is required" {
			f.Message, f.Details, f.Code = "The request body is missing", "send a JSON object", "missing_body"
		}
		return &problem{
			status:    http.StatusBadRequest,
			Message:   f.Message,
			Details:   f.Details,
			Received:  f.Received,
			Code:      f.Code,
			RequestID: p.RequestID,
		}
	}
}

// schemaName returns the name of a type in the document.
func schemaName(t reflect.Type, hint string) string {
	if t == reflect.TypeFor[problem]() {
		return "Error"
	}
	name := strings.ReplaceAll(huma.DefaultSchemaNamer(t, hint), "Body", "")
	if rest, ok := strings.CutPrefix(name, "Data"); ok && rest != "" {
		return rest + "List"
	}
	if rest, ok := strings.CutPrefix(name, "Page"); ok && rest != "" {
		return rest + "Page"
	}
	return name
}

// Encode encodes every body.
func Encode(v any) ([]byte, error) {
	if p, ok := v.(interface{ quick() ([]byte, error) }); ok {
		if b, err := p.quick(); b != nil || err != nil {
			return b, err
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
