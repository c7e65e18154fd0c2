package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"slipway/internal/client/imports"
	"slipway/internal/client/rest"
)

type importCommand struct {
	target
	From       string            `arg:"" enum:"netlify,vercel,wordpress" help:"Where your sites are: netlify or vercel; or wordpress for a WordPress: its archive, or by SSH."`
	Only       []string          `arg:"" optional:"" help:"Names or ids of sites there, default: all. With wordpress: the archive's file, the files of an UpdraftPlus backup, or ssh://user@host/folder." name:"what"`
	Site       string            `env:"-" help:"With wordpress: the site whose content is replaced, by its slug or id." short:"s" placeholder:"SITE"`
	Account    string            `env:"-" help:"Only of this team, owner or account there, by its id." placeholder:"ID"`
	Plan       bool              `env:"-" help:"Show what would be imported, and change nothing."`
	Yes        bool              `env:"-" help:"Import without asking."`
	Domains    bool              `env:"-" help:"Also add the domains. They go on at the old place until their DNS records change." default:"true" negatable:""`
	Repository map[string]string `env:"-" help:"Repository of a site where the platform does not tell it." placeholder:"SITE=HOST/OWNER/REPO"`
	API        string            `env:"-" hidden:"" help:"Address of the platform's API."`
}

// Run shows what the sites of another platform become, and creates them.
func (i importCommand) Run(ctx context.Context, e *Env) error {
	if i.From == "wordpress" {
		return i.wordpress(ctx, e)
	}
	if i.Site != "" {
		return &Failure{exitUsage, errors.New("--site is for slipway import wordpress")}
	}
	all := imports.Platforms()
	p := all[slices.IndexFunc(all, func(p imports.Platform) bool { return p.ID == i.From })]
	if i.API != "" {
		p.Base = strings.TrimSuffix(i.API, "/")
	}
	c, err := i.client(e)
	if err != nil {
		return failure(err)
	}
	token := os.Getenv(p.Token)
	if token == "" {
		if token, err = e.secret(ctx, fmt.Sprintf("Token of %s (%s): ", p.Name, p.Help)); err != nil {
			return err
		}
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return needed("a token of %s is needed: set %s or write it to standard input. Make one under %s", p.Name, p.Token, p.Help)
	}
	e.say("Reading your sites at %s …", p.Name)
	plan, err := imports.Read(ctx, p, token, i.Account, i.Only)
	if err != nil {
		return failure(err)
	}
	done := imports.OpenRecord(e.Store.Path(), c.Server(), p.ID)
	for name, r := range i.Repository {
		n := slices.IndexFunc(plan.Sites, func(x *imports.Site) bool { return x.ID == name || x.Proposal.Name == name })
		if n < 0 {
			return fmt.Errorf("--repository: there is no site %s to import", name)
		}
		if err := plan.Sites[n].SetRepository(r); err != nil {
			return fmt.Errorf("--repository: %w", err)
		}
	}
	for _, x := range plan.Sites {
		if x.Done, err = done.Site(x.ID); err != nil {
			return err
		}
	}
	if i.Plan && i.JSON {
		return e.plan(plan)
	}
	to := e.Err
	if i.Plan {
		to = e.Out
	}
	e.showPlan(to, plan)
	if i.Plan || len(plan.Sites) == 0 {
		return nil
	}
	if !i.Yes {
		if !e.Ask {
			return needed("nothing was imported: give --yes to import, or --plan to look only")
		}
		yes, err := e.yes(ctx, fmt.Sprintf("Import %s to %s?", count(len(plan.Sites), "site"), c.Server()))
		if err != nil {
			return err
		}
		if !yes {
			return needed("nothing was imported")
		}
	}
	return i.apply(ctx, e, c, plan, done)
}

func (e *Env) plan(plan imports.Plan) error {
	for _, x := range plan.Sites {
		for n := range x.Proposal.Env {
			x.Proposal.Env[n].Value = ""
		}
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return e.json(b)
}

func (e *Env) showPlan(to io.Writer, plan imports.Plan) {
	for _, x := range plan.Sites {
		state := "new"
		if x.Done != "" {
			state = "imported as " + x.Done + "; what is missing there is added"
		}
		fmt.Fprintf(to, "%s (%s)\n", printable(x.Proposal.Name), state)
		for _, line := range x.Carried {
			fmt.Fprintf(to, "  + %s\n", printable(line))
		}
		for _, line := range x.Left {
			fmt.Fprintf(to, "  - not carried: %s\n", printable(line))
		}
	}
	if len(plan.Sites) == 0 {
		e.say("There are no sites that this token can read.")
	}
	for _, line := range plan.Partial {
		e.say("Not read: %s", printable(line))
	}
}

// apply creates the sites. A failure doesn't affect the others, and a second run continues.
func (i importCommand) apply(ctx context.Context, e *Env, c *rest.Client, plan imports.Plan, done *imports.Record) error {
	hosts, err := connections(ctx, c)
	if err != nil {
		return failure(err)
	}
	var rows [][]string
	var made []json.RawMessage
	failed := 0
	for n, x := range plan.Sites {
		e.say("%d of %d: %s", n+1, len(plan.Sites), printable(x.Proposal.Name))
		s, err := i.one(ctx, e, c, x, done, hosts)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, rest.ErrUnreachable) {
				return failure(err)
			}
			failed++
			e.say("  %s", printable(err.Error()))
		}
		if s.ID != "" {
			rows = append(rows, []string{x.Proposal.Name, s.Slug, s.URL})
			row, err := json.Marshal(map[string]string{"sourceId": x.ID, "siteId": s.ID, "url": s.URL})
			if err != nil {
				return err
			}
			made = append(made, row)
		}
	}
	if i.JSON {
		if err := e.list(made); err != nil {
			return err
		}
	} else {
		e.table([]string{"there", "here", "url"}, rows)
	}
	if failed > 0 {
		return fmt.Errorf("%s of %d not imported whole: run the same command again once the cause is mended", count(failed, "site"),
			len(plan.Sites))
	}
	e.say("Done. The deployments are on their way: slipway deployments list -s SITE. See slipway domains list -s SITE for DNS records.")
	return nil
}

// one creates a site, or adds what an earlier import lacks.
func (i importCommand) one(
	ctx context.Context, e *Env, c *rest.Client, x *imports.Site, done *imports.Record, hosts map[string]string,
) (s site, err error) {
	if x.Done != "" {
		err = c.Get(ctx, "/sites/"+url.PathEscape(x.Done), &s)
		var no *rest.Error
		if errors.As(err, &no) && no.Status == http.StatusNotFound { // deleted since
			x.Done, err = "", nil
		}
		if err != nil {
			return s, err
		}
	}
	if x.Done == "" {
		if s, err = create(ctx, c, x, hosts); err != nil {
			return s, err
		}
		if err := done.Note(x.ID, s.ID); err != nil {
			return s, err
		}
	}
	if err := addVars(ctx, c, s, x.Proposal.Env); err != nil {
		return s, err
	}
	if !i.Domains {
		return s, nil
	}
	return s, addDomains(ctx, e, c, s, x.Domains)
}

// firstVars caps how many variables are sent with a new site; the others follow.
const firstVars = 100

// first returns how many variables to send with a new site. It doesn't separate the values of one key.
func first(vars []imports.Var) int {
	n := min(len(vars), firstVars)
	for n < len(vars) && n > 0 && vars[n-1].Key == vars[n].Key {
		n--
	}
	return n
}

func create(ctx context.Context, c *rest.Client, x *imports.Site, hosts map[string]string) (s site, err error) {
	type proposal imports.Proposal
	in := struct {
		proposal
		Connection string `json:"connectionId,omitempty"`
	}{proposal: proposal(x.Proposal)}
	host, _, _ := strings.Cut(x.Proposal.Repository, "/")
	in.Connection = hosts[host]
	in.Env = in.Env[:first(in.Env)]
	body, err := json.Marshal(in)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(append([]byte(x.ID+"\n"), body...))
	// A key of its own, then a fresh one: two imports at once, or a crash, create one site.
	for _, key := range []string{"import-" + hex.EncodeToString(sum[:16]), ""} {
		answer, err := c.SendOnce(ctx, http.MethodPost, "/sites", key, body)
		if err != nil {
			return s, err
		}
		var made struct{ Data site }
		if err := json.Unmarshal(answer, &made); err != nil || made.Data.ID == "" {
			return s, errors.New("the server's answer names no site")
		}
		err = c.Get(ctx, "/sites/"+made.Data.ID, &s)
		var no *rest.Error
		if errors.As(err, &no) && no.Status == http.StatusNotFound { // the cached response names a site that was deleted since
			continue
		}
		return s, err
	}
	return s, errors.New("the site was deleted while it was imported")
}

// addVars sets the variables that a site lacks. Existing ones keep their values.
func addVars(ctx context.Context, c *rest.Client, s site, vars []imports.Var) error {
	var have struct {
		Data []struct{ Key string }
	}
	if len(vars) == 0 {
		return nil
	}
	if err := c.Get(ctx, "/sites/"+s.ID+"/env", &have); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, v := range have.Data {
		there[v.Key] = true
	}
	left := slices.DeleteFunc(slices.Clone(vars), func(v imports.Var) bool { return there[v.Key] })
	if len(left) == 0 {
		return nil
	}
	_, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/env", left)
	return err
}

func addDomains(ctx context.Context, e *Env, c *rest.Client, s site, names []string) error {
	if len(names) == 0 {
		return nil
	}
	rows, err := c.List(ctx, "/sites/"+s.ID+"/domains")
	if err != nil {
		return err
	}
	have, err := decoded[domain](rows)
	if err != nil {
		return err
	}
	var failed []string
	for _, name := range names {
		if slices.ContainsFunc(have, func(d domain) bool { return strings.EqualFold(d.Name, name) }) {
			continue
		}
		_, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/domains", map[string]string{"name": name})
		var no *rest.Error
		if errors.As(err, &no) {
			failed = append(failed, name)
			e.say("  %s was not added: %s", printable(name), printable(err.Error()))
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s not added", count(len(failed), "domain"))
	}
	return nil
}

// connections returns the connected account of each Git host that has exactly one. It reads private repositories.
func connections(ctx context.Context, c *rest.Client) (map[string]string, error) {
	var list struct {
		Data []struct{ ID, Host string }
	}
	err := c.Get(ctx, "/git/accounts", &list)
	var no *rest.Error
	if errors.As(err, &no) && (no.Status == http.StatusForbidden || no.Status == http.StatusNotFound) {
		return nil, nil // public repositories need no account
	}
	out, twice := map[string]string{}, map[string]bool{}
	for _, x := range list.Data {
		twice[x.Host] = out[x.Host] != ""
		out[x.Host] = x.ID
	}
	for host, is := range twice {
		if is {
			delete(out, host)
		}
	}
	return out, err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
