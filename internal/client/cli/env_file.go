package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"slipway/internal/client/folder"
	"slipway/internal/client/inside"
	"slipway/internal/client/rest"
	"slipway/internal/platform/dotenv"
)

// maxEnvFile caps a .env file, in bytes.
const maxEnvFile = 4 << 20

// envHead marks files written by env pull. Other files are only overwritten after a confirmation.
const envHead = "# Written by slipway env pull\n"

// variables returns the values for programs on this machine; if a key has separate values, that for previews. withheld
// lists the secret keys.
func variables(ctx context.Context, c *rest.Client, s site) (vars []dotenv.Var, withheld []string, err error) {
	all, err := c.List(ctx, "/sites/"+s.ID+"/env")
	if err != nil {
		return nil, nil, err
	}
	list, err := decoded[variable](all)
	if err != nil {
		return nil, nil, err
	}
	at := map[string]int{}
	for _, v := range list {
		if v.Branch != "" {
			continue // for certain branches only
		}
		x := dotenv.Var{Key: v.Key, Secret: v.Value == nil}
		if v.Value != nil {
			x.Value = *v.Value
		}
		i, there := at[v.Key]
		switch {
		case !there:
			at[v.Key] = len(vars)
			vars = append(vars, x)
		case !slices.Contains(v.Target, "production"):
			vars[i] = x
		}
	}
	for _, v := range vars {
		if v.Secret {
			withheld = append(withheld, v.Key)
		}
	}
	return vars, withheld, nil
}

type pullEnv struct {
	ofSite
	File  string `arg:"" optional:"" default:".env" help:"File to write. Default: .env."`
	Force bool   `env:"-" help:"Overwrite a file that slipway env pull did not write."`
}

// Run writes a file that only this user can read, and adds it to .gitignore.
func (p pullEnv) Run(ctx context.Context, e *Env) error {
	old, _, err := inside.Read(e.Dir, p.File, maxEnvFile)
	if !p.Force && (err == nil && !bytes.HasPrefix(old, []byte(envHead)) || err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return needed("%s exists, and slipway env pull did not write it: give --force to replace it", printable(p.File))
	}
	c, s, err := p.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	vars, withheld, err := variables(ctx, c, s)
	if err != nil {
		return failure(err)
	}
	if err := e.ignored(ctx, p.File); err != nil {
		return err
	}
	if err := inside.Write(e.Dir, p.File, []byte(envHead+dotenv.Format(vars)), 0o600); err != nil {
		return err
	}
	e.say("Wrote %d variables to %s", len(vars)-len(withheld), printable(p.File))
	e.withheld(withheld)
	return nil
}

// withheld says which variables are secret and have no value in the file.
func (e *Env) withheld(keys []string) {
	if len(keys) > 0 {
		e.say("Secret, so without a value: %s", printable(strings.Join(keys, ", ")))
	}
}

// maxIgnore caps a .gitignore file, in bytes.
const maxIgnore = 1 << 20

// ignored adds a file to the .gitignore next to it, unless Git already ignores it or there is no work tree.
func (e *Env) ignored(ctx context.Context, file string) error {
	name := file
	if !filepath.IsAbs(name) {
		name = filepath.Join(e.Dir, name)
	}
	dir, base := filepath.Dir(name), filepath.Base(name)
	if folder.Git(ctx, dir, "rev-parse", "--is-inside-work-tree") != "true" || folder.Git(ctx, dir, "check-ignore", "--", base) != "" {
		return nil
	}
	ignore := filepath.Join(filepath.Dir(file), ".gitignore")
	text, mode, err := inside.Read(e.Dir, ignore, maxIgnore)
	if errors.Is(err, fs.ErrNotExist) {
		mode, err = 0o644, nil
	}
	if err != nil {
		return fmt.Errorf("keep %s out of commits: %w", printable(file), err)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return inside.Write(e.Dir, ignore, append(text, "/"+base+"\n"...), mode)
}

type pushEnv struct {
	ofSite
	File   string   `arg:"" optional:"" default:".env" help:"File to read. Default: .env."`
	Secret bool     `env:"-" help:"Make all of them secret. Otherwise those whose names look like it are."`
	Target []string `env:"-" help:"Where they are available: build, runtime, production, preview, separated by commas. Default: build and runtime." placeholder:"TARGET"`
}

// Run sets the variables of a file with one request.
func (p pushEnv) Run(ctx context.Context, e *Env) error {
	text, err := p.read(e)
	if err != nil {
		return err
	}
	pairs, err := dotenv.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	if len(pairs) == 0 {
		return fmt.Errorf("%s has no variables", p.File)
	}
	c, s, err := p.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	var list []map[string]any
	secret := 0
	for _, x := range pairs {
		v := map[string]any{"key": x.Key, "value": x.Value, "secret": p.Secret || dotenv.Secret(x.Key, x.Value)}
		if v["secret"] == true {
			secret++
		}
		if len(p.Target) > 0 {
			v["target"] = p.Target
		}
		list = append(list, v)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/env", list)
	if err != nil {
		return failure(err)
	}
	if p.JSON {
		return e.json(answer)
	}
	e.say("Set %d variables, %d of them secret. They take effect on the next deployment: slipway deploy", len(list), secret)
	return nil
}

// read returns the file's text. Below the working directory the file must not be a link, which may have come with a
// repository. A path elsewhere, such as /dev/stdin, is the user's choice.
func (p pushEnv) read(e *Env) ([]byte, error) {
	if filepath.IsLocal(p.File) {
		text, _, err := inside.Read(e.Dir, p.File, maxEnvFile)
		return text, err
	}
	name := p.File
	if !filepath.IsAbs(name) {
		name = filepath.Join(e.Dir, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(text) > maxEnvFile {
		err = fmt.Errorf("%s is larger than 4 MiB", p.File)
	}
	return text, errors.Join(err, f.Close())
}

type runEnv struct {
	ofSite
	Command []string `arg:"" passthrough:"" help:"Command and its arguments."`
}

// Run runs a command with the site's variables.
func (r runEnv) Run(ctx context.Context, e *Env) error {
	c, s, err := r.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	return e.with(ctx, c, s, strip(r.Command))
}

// strip removes a leading --.
func strip(command []string) []string {
	if len(command) > 0 && command[0] == "--" {
		return command[1:]
	}
	return command
}

// with runs a command in the working directory with a site's variables and exits with its status. Variables of this
// environment take precedence.
func (e *Env) with(ctx context.Context, c *rest.Client, s site, command []string) error {
	if len(command) == 0 {
		return errors.New("there is no command")
	}
	vars, withheld, err := variables(ctx, c, s)
	if err != nil {
		return failure(err)
	}
	e.withheld(slices.DeleteFunc(withheld, func(key string) bool { _, set := os.LookupEnv(key); return set }))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = e.Dir, e.In, raw(e.Out), raw(e.Err)
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil { // unsupported on Windows
			return cmd.Process.Kill()
		}
		return nil
	}
	for _, v := range vars {
		if !v.Secret {
			cmd.Env = append(cmd.Env, v.Key+"="+v.Value)
		}
	}
	for _, pair := range os.Environ() { // the last value of a name counts
		if key, _, _ := strings.Cut(pair, "="); key != "SLIPWAY_TOKEN" {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return failure(context.Canceled)
	case errors.As(err, &ended):
		return &Failure{max(1, ended.ExitCode()), fmt.Errorf("%s ended with status %d", command[0], ended.ExitCode())}
	}
	return err
}
