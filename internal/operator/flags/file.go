package flags

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// File is a flag that names a file of settings.
type File string

// BeforeResolve reads the file before kong looks for the values of other flags.
func (File) BeforeResolve(k *kong.Kong, ctx *kong.Context, trace *kong.Path) error {
	resolver, err := k.LoadConfig(string(ctx.FlagValue(trace.Flag).(File)))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	ctx.AddResolver(resolver)
	return nil
}

// TOML makes a file's keys stand in for flags that neither the command line nor the
// environment sets. A key that no flag has is an error: it is a typing mistake that
// would otherwise go unnoticed.
func TOML(r io.Reader) (kong.Resolver, error) {
	values := map[string]any{}
	if _, err := toml.NewDecoder(r).Decode(&values); err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	return fileResolver(values), nil
}

type fileResolver map[string]any

// Validate refuses keys that are no flag of any command.
func (f fileResolver) Validate(app *kong.Application) error {
	known := map[string]bool{}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, flag := range n.Flags {
			known[flag.Name] = true
		}
		for _, c := range n.Children {
			visit(c)
		}
	}
	visit(app.Node)
	for key := range f {
		if !known[key] {
			return fmt.Errorf("configuration file: unknown setting %q", key)
		}
	}
	return nil
}

// Resolve returns the file's value for a flag, unless the environment has one.
func (f fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	switch v := f[flag.Name].(type) {
	case nil:
		return nil, nil
	case string, bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			s, ok := x.(string)
			if !ok || strings.Contains(s, ",") {
				return nil, fmt.Errorf("configuration file: %s contains a value that is not a plain string", flag.Name)
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), nil
	default:
		return nil, fmt.Errorf("configuration file: %s must be a string, a number, true or false, or an array of strings", flag.Name)
	}
}
