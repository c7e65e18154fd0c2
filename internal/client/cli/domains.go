package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"slipway/internal/client/rest"
)

type domainsCommand struct {
	List   listDomains  `cmd:"" help:"List the site's domains."`
	Add    addDomain    `cmd:"" help:"Add a domain, and print the DNS records that it needs."`
	Check  checkDomain  `cmd:"" help:"Ask whether a domain can still be registered."`
	Verify verifyDomain `cmd:"" help:"Check a domain's DNS records now."`
	Plan   planDomain   `cmd:"" help:"Show how a domain moves here without a gap: what to solve, which records to change, and which pages differ."`
	Remove removeDomain `cmd:"" help:"Remove a domain."`
}

// record is a DNS record that a domain needs.
type record struct{ Type, Name, Value, Status string }

// domain is a domain in API responses, as far as commands need it.
type domain struct {
	ID           string
	Name         string
	Status       string
	SSLStatus    string
	Verification []record
	DNS          []record
}

type checkDomain struct {
	target
	Name string `arg:"" help:"The domain, such as example.com."`
}

// Run says whether a domain can be registered.
func (x checkDomain) Run(ctx context.Context, e *Env) error {
	c, err := x.client(e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/domains/check", map[string]string{"domain": x.Name})
	if err != nil {
		return failure(err)
	}
	if x.JSON {
		return e.json(answer)
	}
	var a struct {
		Domain, Currency string
		Available        bool
		Price            int
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return err
	}
	row := []string{a.Domain, "no", ""}
	if a.Available {
		row = []string{a.Domain, "yes", fmt.Sprintf("%d %s a year", a.Price, a.Currency)}
	}
	e.table([]string{"domain", "available", "price"}, [][]string{row})
	return nil
}

type listDomains struct{ ofSite }

// Run lists domains.
func (l listDomains) Run(ctx context.Context, e *Env) error {
	c, s, err := l.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/domains")
	if err != nil {
		return failure(err)
	}
	return show(e, l.JSON, all, []string{"name", "status", "certificate", "id"}, func(d domain) []string {
		return []string{d.Name, d.Status, d.SSLStatus, d.ID}
	})
}

type addDomain struct {
	ofSite
	Name string `arg:"" help:"The domain, such as www.example.com."`
}

// Run adds a domain.
func (a addDomain) Run(ctx context.Context, e *Env) error {
	c, s, err := a.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/domains", map[string]string{"name": a.Name})
	if err != nil {
		return failure(err)
	}
	return showDomain(e, answer, a.JSON)
}

func showDomain(e *Env, answer json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.json(answer)
	}
	var d domain
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	var rows [][]string
	var listed []record // one record may both verify ownership and send visitors here
	for _, r := range append(d.Verification, d.DNS...) {
		if slices.Contains(listed, r) {
			continue
		}
		listed = append(listed, r)
		rows = append(rows, []string{r.Type, r.Name, r.Value, r.Status})
	}
	e.say("%s is %s. DNS records:", printable(d.Name), printable(d.Status))
	e.table([]string{"type", "name", "value", "status"}, rows)
	return nil
}

// named holds the flags of commands about one domain.
type named struct {
	ofSite
	Name string `arg:"" help:"The domain, or its id."`
}

func (n named) domain(ctx context.Context, e *Env) (*rest.Client, domain, error) {
	c, s, err := n.find(ctx, e)
	if err != nil {
		return nil, domain{}, err
	}
	all, err := c.List(ctx, "/sites/"+s.ID+"/domains")
	if err != nil {
		return nil, domain{}, err
	}
	list, err := decoded[domain](all)
	if err != nil {
		return nil, domain{}, err
	}
	for _, d := range list {
		if d.Name == n.Name || d.ID == n.Name {
			return c, d, nil
		}
	}
	return nil, domain{}, &Failure{exitMissing, fmt.Errorf("%s has no domain %s", printable(s.Name), n.Name)}
}

type verifyDomain struct{ named }

// Run checks a domain.
func (v verifyDomain) Run(ctx context.Context, e *Env) error {
	c, d, err := v.domain(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/domains/"+url.PathEscape(d.ID)+"/verify", nil)
	if err != nil {
		return failure(err)
	}
	return showDomain(e, answer, v.JSON)
}

type removeDomain struct {
	named
	Yes string `env:"-" help:"Confirm by the domain's name instead of typing it." placeholder:"NAME"`
}

// Run removes a domain.
func (r removeDomain) Run(ctx context.Context, e *Env) error {
	c, d, err := r.domain(ctx, e)
	if err != nil {
		return failure(err)
	}
	if err := e.confirm(ctx, "Removing "+d.Name+" takes it off the site.", d.Name, r.Yes); err != nil {
		return err
	}
	answer, err := c.Do(ctx, http.MethodDelete, "/domains/"+url.PathEscape(d.ID), nil)
	if err != nil {
		return failure(err)
	}
	if r.JSON {
		return e.json(answer)
	}
	e.say("Removed %s", printable(d.Name))
	return nil
}
