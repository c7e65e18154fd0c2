package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"slipway/internal/client/rest"
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

// variable is a variable in API responses.
type variable struct {
	ID     string
	Key    string
	Value  *string
	Secret bool
	Target []string
	Branch string
	raw    json.RawMessage
}

type listEnv struct{ ofSite }

// Run lists variables. Values of secrets aren't readable.
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

// covers reports whether a value is for production, or for previews of any branch.
func (v variable) covers(target string) bool {
	other := map[string]string{"production": "preview", "preview": "production"}[target]
	return v.Branch == "" && !slices.Contains(v.Target, other)
}

// where describes the deployments that get this value.
func (v variable) where() string {
	switch {
	case v.Branch != "":
		return "previews of " + v.Branch
	case !v.covers("preview"):
		return "production"
	case !v.covers("production"):
		return "previews"
	}
	return "production and previews"
}

// values returns the site's variables by key. A key has one value for all deployments, or one each for production and
// previews, and more for branch patterns.
func (o ofSite) values(ctx context.Context, e *Env) (*rest.Client, site, map[string][]variable, error) {
	c, s, err := o.find(ctx, e)
	if err != nil {
		return nil, s, nil, err
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/env")
	if err != nil {
		return nil, s, nil, err
	}
	byKey := map[string][]variable{}
	for _, raw := range all {
		v := variable{raw: raw}
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, s, nil, err
		}
		byKey[v.Key] = append(byKey[v.Key], v)
	}
	return c, s, byKey, nil
}

// pick returns the values of a key for targets, or for previews of a branch.
func pick(key string, list []variable, targets []string, branch string) (picked []variable, err error) {
	for _, v := range list {
		if branch != "" && v.Branch == branch || branch == "" && slices.ContainsFunc(targets, v.covers) {
			picked = append(picked, v)
		}
	}
	if len(picked) > 0 {
		return picked, nil
	}
	if len(list) == 0 {
		return nil, &Failure{exitMissing, fmt.Errorf("there is no variable %s", key)}
	}
	wanted := strings.Join(targets, " or ")
	if branch != "" {
		wanted = "previews of " + branch
	}
	return nil, &Failure{exitMissing, fmt.Errorf("%s has no value for %s, but for %s: choose with --target or --branch",
		key, wanted, places(list))}
}

// places describes the deployments that get the values.
func places(list []variable) string {
	var all []string
	for _, v := range list {
		all = append(all, v.where())
	}
	return strings.Join(all, ", ")
}

type getEnv struct {
	ofSite
	Key    string `arg:"" help:"Name of the variable."`
	Target string `env:"-" help:"Print the value of deployments for production or preview. Default: production." enum:",production,preview" default:"" placeholder:"TARGET"`
	Branch string `env:"-" help:"Print the value that was set for previews of this branch or pattern." placeholder:"NAME"`
}

// Run prints a value.
func (g getEnv) Run(ctx context.Context, e *Env) error {
	if g.Branch != "" && g.Target == "production" {
		return &Failure{exitUsage, errBranch}
	}
	_, _, byKey, err := g.values(ctx, e)
	if err != nil {
		return failure(err)
	}
	list, err := pick(g.Key, byKey[g.Key], []string{cmp.Or(g.Target, "production")}, g.Branch)
	if err != nil {
		return err
	}
	v := list[0]
	switch {
	case g.JSON:
		return e.json(v.raw)
	case v.Value == nil:
		return fmt.Errorf("%s is secret: its value is never shown", g.Key)
	}
	_, err = fmt.Fprintln(e.Out, *v.Value)
	return err
}

// errBranch is returned for --branch with production, which has one branch.
var errBranch = errors.New("--branch is for previews: leave out --target=production")

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
	Keys   []string `arg:"" help:"Names of variables." name:"key"`
	Target []string `env:"-" help:"Delete the values for production, preview or both, separated by commas. Default: production; a value for both is deleted for both." enum:"production,preview" placeholder:"TARGET"`
	Branch string   `env:"-" help:"Delete the value that was set for previews of this branch or pattern." placeholder:"NAME"`
	Yes    bool     `env:"-" help:"Delete several values of a variable without asking."`
}

// Run deletes values once all of them were found. If a value is for production and previews and only one of them is
// named, the other keeps it.
func (u unsetEnv) Run(ctx context.Context, e *Env) error {
	if u.Branch != "" && slices.Contains(u.Target, "production") {
		return &Failure{exitUsage, errBranch}
	}
	c, s, byKey, err := u.values(ctx, e)
	if err != nil {
		return failure(err)
	}
	targets := u.Target
	if len(targets) == 0 {
		targets = []string{"production"}
	}
	slices.Sort(u.Keys)
	keys := slices.Compact(u.Keys)
	chosen := map[string][]variable{}
	var several []string
	for _, key := range keys {
		if chosen[key], err = pick(key, byKey[key], targets, u.Branch); err != nil {
			return err
		}
		if n := len(chosen[key]); n > 1 {
			several = append(several, fmt.Sprintf("%d values of %s (%s)", n, key, places(chosen[key])))
		}
	}
	if len(several) > 0 && !u.Yes {
		what := "This deletes " + strings.Join(several, " and ") + "."
		if !e.Ask {
			return needed("%s Add --yes to continue", what)
		}
		if yes, err := e.yes(ctx, what+" Continue?"); err != nil || !yes {
			return cmp.Or(err, needed("nothing was deleted"))
		}
	}
	for _, key := range keys {
		left := slices.Clone(byKey[key])
		for _, v := range chosen[key] {
			at := slices.IndexFunc(left, func(x variable) bool { return x.ID == v.ID })
			path := "/sites/" + s.ID + "/env/" + url.PathEscape(v.ID)
			kept := u.kept(v)
			if kept == "" {
				left = slices.Delete(left, at, at+1)
				_, err = c.Do(ctx, http.MethodDelete, path, nil)
			} else {
				left[at].Target = append(slices.Clone(v.Target), kept)
				_, err = c.Do(ctx, http.MethodPatch, path, map[string]any{"target": left[at].Target})
			}
			if err != nil {
				return failure(err)
			}
		}
		if len(left) == 0 {
			e.say("Deleted %s", printable(key))
		} else {
			e.say("Deleted a value of %s. It still has a value for %s", printable(key), printable(places(left)))
		}
	}
	return nil
}

// kept returns the target that keeps a value for both when the other one is named; "" if the value is deleted.
func (u unsetEnv) kept(v variable) string {
	if len(u.Target) == 0 || !v.covers("production") || !v.covers("preview") {
		return ""
	}
	for _, t := range []string{"production", "preview"} {
		if !slices.Contains(u.Target, t) {
			return t
		}
	}
	return ""
}
