package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type apiCommand struct {
	target
	Method string   `arg:"" help:"GET, POST, PUT, PATCH or DELETE." enum:"GET,POST,PUT,PATCH,DELETE"`
	Path   string   `arg:"" help:"Path below /api/v1, such as /sites."`
	Field  []string `env:"-" short:"f" sep:"none" help:"A field of the body, NAME=VALUE: true, false, null, numbers and JSON are taken as such." placeholder:"NAME=VALUE"`
	Input  string   `env:"-" help:"File with the body as JSON; - is standard input." placeholder:"FILE"`
}

// maxBody is the server's limit for a body.
const maxBody = 1 << 20

// Run makes the call and prints its answer.
func (a apiCommand) Run(ctx context.Context, e *Env) error {
	c, err := a.client(e)
	if err != nil {
		return failure(err)
	}
	body, err := a.body(e)
	if err != nil {
		return err
	}
	path := "/" + strings.TrimPrefix(strings.TrimPrefix(a.Path, "/api/v1"), "/")
	answer, err := c.Send(ctx, a.Method, path, body)
	if err != nil {
		return failure(err)
	}
	if len(answer) == 0 {
		return nil
	}
	if !json.Valid(answer) {
		_, err = e.Out.Write(answer)
		return err
	}
	return e.json(answer)
}

func (a apiCommand) body(e *Env) ([]byte, error) {
	switch {
	case a.Input != "" && len(a.Field) > 0:
		return nil, errors.New("give either --field or --input")
	case a.Input != "":
		in := e.In
		if a.Input != "-" {
			f, err := os.Open(a.Input)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		b, err := io.ReadAll(io.LimitReader(in, maxBody+1))
		if err == nil && (len(b) > maxBody || !json.Valid(b)) {
			err = errors.New("the body must be JSON of at most 1 MiB")
		}
		return b, err
	case len(a.Field) == 0:
		if a.Method == http.MethodGet || a.Method == http.MethodDelete {
			return nil, nil
		}
		return []byte("{}"), nil
	}
	fields := map[string]any{}
	for _, f := range a.Field {
		name, value, ok := strings.Cut(f, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--field %q must be NAME=VALUE", f)
		}
		if json.Valid([]byte(value)) {
			fields[name] = json.RawMessage(value)
		} else {
			fields[name] = value
		}
	}
	return json.Marshal(fields)
}
