package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"slipway/internal/client/manual"
)

// completionCommand prints a shell's completion script.
type completionCommand struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Run prints the script.
func (c completionCommand) Run(e *Env) error {
	_, err := fmt.Fprint(e.Out, manual.Completion[c.Shell])
	return err
}

// completeCommand prints the possible next words, each with a tab and a description, for completion scripts.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"all" help:"The words so far; the last one may be a part of one, or empty."`
}

// Run prints them. It reports no errors, since the shell can't show them.
func (c completeCommand) Run(ctx context.Context, e *Env, k *kong.Context) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	list, isSite := manual.Next(k.Model.Node, words)
	if isSite {
		list = append(list, e.siteNames(ctx)...)
	}
	_, last, _ := manual.CutValue(words[len(words)-1])
	for _, w := range list {
		if strings.HasPrefix(w.Text, last) {
			fmt.Fprintf(e.Out, "%s\t%s\n", w.Text, strings.Join(strings.Fields(w.About), " "))
		}
	}
	return nil
}

// Time limit for querying site names while the user types, and how long they are cached.
const (
	namesWithin = 300 * time.Millisecond
	namesFor    = time.Minute
)

// siteNames returns the user's sites, or nothing if it can't.
func (e *Env) siteNames(ctx context.Context) (list []manual.Word) {
	file := ""
	if dir, err := os.UserCacheDir(); err == nil {
		file = filepath.Join(dir, "slipway", "sites.json")
	}
	var known struct {
		Server string
		Sites  []site
	}
	c, err := target{Server: os.Getenv("SLIPWAY_SERVER"), Token: os.Getenv("SLIPWAY_TOKEN"), CAFile: os.Getenv("SLIPWAY_CA_FILE")}.client(e)
	if err != nil {
		return nil
	}
	fresh := false
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) < namesFor {
		b, err := os.ReadFile(file)
		fresh = err == nil && json.Unmarshal(b, &known) == nil && known.Server == c.Server() && os.Getenv("SLIPWAY_TOKEN") == ""
	}
	if !fresh {
		known.Server, known.Sites = c.Server(), nil
		ctx, cancel := context.WithTimeout(ctx, namesWithin)
		defer cancel()
		all, err := c.List(ctx, "/sites")
		if err != nil {
			return nil
		}
		for _, raw := range all {
			var s site
			if json.Unmarshal(raw, &s) == nil {
				known.Sites = append(known.Sites, site{Slug: s.Slug, Name: s.Name})
			}
		}
		if b, err := json.Marshal(known); err == nil && file != "" && os.Getenv("SLIPWAY_TOKEN") == "" &&
			os.MkdirAll(filepath.Dir(file), 0o700) == nil {
			_ = os.WriteFile(file, b, 0o600) // on failure the next call queries again
		}
	}
	for _, s := range known.Sites {
		if quoted(s.Slug) != s.Slug || s.Slug[0] == '-' { // the shell or slipway would misread it
			continue
		}
		list = append(list, manual.Word{Text: s.Slug, About: printable(s.Name)})
	}
	return list
}

// manCommand prints the manual page slipway(1) as roff.
type manCommand struct{}

// Run prints it.
func (manCommand) Run(e *Env, k *kong.Context) error {
	return manual.Page(e.Out, k.Model, []manual.Status{
		{Code: 0, Means: "It worked."},
		{Code: 1, Means: "It did not."},
		{Code: exitUsage, Means: "The command line is wrong."},
		{Code: exitDeployment, Means: "A deployment failed or was canceled."},
		{Code: exitAnswer, Means: "An answer is needed and nobody can be asked; the message names the flag."},
		{Code: exitSignedOut, Means: "Not signed in, or not allowed."},
		{Code: exitMissing, Means: "Not found."},
		{Code: exitLimit, Means: "A limit is reached."},
		{Code: exitUnreachable, Means: "The server does not answer."},
		{Code: exitInterrupted, Means: "Interrupted."},
	})
}
