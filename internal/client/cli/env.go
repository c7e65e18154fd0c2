package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

type envCommand struct {
	List  listEnv  `cmd:"" help:"List variables."`
	Get   getEnv   `cmd:"" help:"Print a variable's value."`
	Set   setEnv   `cmd:"" help:"Set a variable: KEY=VALUE, or KEY with its value on standard input."`
	Unset unsetEnv `cmd:"" help:"Delete variables."`
	Pull  pullEnv  `cmd:"" help:"Write the variables to a .env file. Secret ones are only named."`
	Push  pushEnv  `cmd:"" help:"Set all variables of a .env file."`
	Run   runEnv   `cmd:"" help:"Run a command with the variables. Nothing is written to disk."`
}

// variable is one, as the API answers.
type variable struct {
	Key    string
	Value  *string
	Secret bool
	Target []string
	Branch string
}

type listEnv struct{ ofSite }

// Run lists variables; of secret ones nobody gets the value.
func (l listEnv) Run(ctx context.Context, e *Env) error {
	c, s, err := l.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/env")
	if err != nil {
		return failure(err)
	}
	return show(e, l.JSON, all, []string{"key", "value", "target", "branch"}, func(v variable) []string {
		value := "(secret)"
		if v.Value != nil {
			value = *v.Value
		}
		return []string{v.Key, value, strings.Join(v.Target, ","), v.Branch}
	})
}

type getEnv struct {
	ofSite
	Key string `arg:"" help:"Name of the variable."`
}

// Run prints a value.
func (g getEnv) Run(ctx context.Context, e *Env) error {
	c, s, err := g.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/env")
	if err != nil {
		return failure(err)
	}
	for _, raw := range all {
		var v variable
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		switch {
		case v.Key != g.Key:
			continue
		case g.JSON:
			return e.json(raw)
		case v.Value == nil:
			return &Failure{exitSignedOut, fmt.Errorf("%s is secret: its value is never shown", g.Key)}
		}
		fmt.Fprintln(e.Out, *v.Value)
		return nil
	}
	return &Failure{exitMissing, fmt.Errorf("there is no variable %s", g.Key)}
}

type setEnv struct {
	ofSite
	Pair   string   `arg:"" help:"KEY=VALUE, or KEY." name:"key[=value]"`
	Secret bool     `env:"-" help:"Never show the value again."`
	Target []string `env:"-" help:"Where it is available: build, runtime, production, preview, separated by commas. Default: build and runtime." placeholder:"TARGET"`
	Branch string   `env:"-" help:"Only for previews of this branch, or of those that match." placeholder:"NAME"`
}

// Run sets a variable.
func (s setEnv) Run(ctx context.Context, e *Env) error {
	key, value, given := strings.Cut(s.Pair, "=")
	if !given {
		var err error
		if value, err = e.secret(ctx, "Value of "+key+": "); err != nil {
			return err
		}
	}
	c, of, err := s.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	in := map[string]any{"key": key, "value": value, "secret": s.Secret}
	if len(s.Target) > 0 {
		in["target"] = s.Target
	}
	if s.Branch != "" {
		in["branch"] = s.Branch
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+of.ID+"/env", in)
	if err != nil {
		return failure(err)
	}
	if s.JSON {
		return e.json(answer)
	}
	e.say("Set %s. It takes effect on the next deployment: slipway deploy", printable(key))
	return nil
}

type unsetEnv struct {
	ofSite
	Keys []string `arg:"" help:"Names of variables." name:"key"`
}

// Run deletes variables.
func (u unsetEnv) Run(ctx context.Context, e *Env) error {
	c, s, err := u.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	for _, key := range u.Keys {
		if _, err := c.Do(ctx, http.MethodDelete, "/sites/"+s.ID+"/env/"+url.PathEscape(key), nil); err != nil {
			return failure(err)
		}
		e.say("Deleted %s", printable(key))
	}
	return nil
}
