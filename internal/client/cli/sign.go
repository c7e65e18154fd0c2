package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"slipway/internal/client/login"
	"slipway/internal/client/rest"
)

type loginCommand struct {
	Server string   `arg:"" optional:"" env:"SLIPWAY_SERVER" help:"URL of the server, such as https://slipway.example."`
	Token  bool     `env:"-" help:"Read an API key from standard input instead of using a browser."`
	Scope  []string `env:"-" help:"Scopes to ask for, separated by commas. Default: everything that developers need." placeholder:"SCOPE"`
	CAFile string   `name:"ca-file" env:"SLIPWAY_CA_FILE" help:"PEM file of further certificate authorities to trust." type:"path" placeholder:"FILE"`
}

// scopes lists the scopes that the commands need.
var scopes = []string{
	"account:read", "sites:read", "sites:write", "deployments:read", "deployments:write", "domains:read", "domains:write",
	"env:read", "env:write", "backups:read", "backups:write", "webhooks:read",
}

// maxKey caps a key on standard input, in bytes.
const maxKey = 4096

// Run signs in.
func (l loginCommand) Run(ctx context.Context, e *Env) error {
	if l.Server == "" {
		var err error
		if l.Server, err = e.Store.Default(); err != nil {
			return err
		}
		if l.Server == "" {
			return needed("which server? Name it: slipway login https://slipway.example")
		}
	}
	server, err := rest.Origin(l.Server)
	if err != nil {
		return err
	}
	h, err := rest.HTTP(l.CAFile)
	if err != nil {
		return err
	}
	a := login.Account{CAFile: l.CAFile}
	if l.Token {
		text, err := io.ReadAll(io.LimitReader(e.In, maxKey))
		if err != nil {
			return err
		}
		a.Key = strings.TrimSpace(string(text))
		if a.Key == "" {
			return needed("no key came on standard input: slipway login --token < key.txt")
		}
	} else {
		ask := scopes
		if len(l.Scope) > 0 {
			ask = l.Scope
		}
		a.Token, err = login.Device(ctx, h, server, ask, func(address, code string) {
			e.say("Open %s\nand enter the code %s.", printable(address), e.color("1", printable(code)))
		})
		if err != nil {
			return failure(err)
		}
	}
	token := a.Key
	if a.Token != nil {
		token = a.Token.AccessToken
	}
	c, err := rest.New(rest.Config{Server: server, CAFile: l.CAFile, Token: func(context.Context) (string, error) { return token, nil }})
	if err != nil {
		return err
	}
	var me struct{ Email string }
	if err := c.Get(ctx, "/account", &me); err != nil {
		return failure(err)
	}
	if err := e.Store.Put(server, a); err != nil {
		return err
	}
	e.say("Signed in at %s as %s", server, printable(me.Email))
	return nil
}

type logoutCommand struct{ target }

// Run signs out. It revokes a grant but only forgets a key.
func (l logoutCommand) Run(ctx context.Context, e *Env) error {
	c, err := l.client(e)
	if err != nil {
		return failure(err)
	}
	a, err := e.Store.Account(c.Server())
	if err != nil {
		return failure(err)
	}
	if a.Token != nil {
		h, err := rest.HTTP(a.CAFile)
		if err != nil {
			return err
		}
		if err := login.Revoke(ctx, h, c.Server(), a.Token); err != nil {
			e.say("The access was not revoked (%v): revoke it under Account, Apps.", err)
		}
	}
	if err := e.Store.Remove(c.Server()); err != nil {
		return err
	}
	e.say("Signed out of %s", c.Server())
	return nil
}

type whoamiCommand struct{ target }

// Run shows the account.
func (w whoamiCommand) Run(ctx context.Context, e *Env) error {
	c, err := w.client(e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodGet, "/account", nil)
	if err != nil {
		return failure(err)
	}
	if w.JSON {
		return e.json(answer)
	}
	var me struct{ Email string }
	if err := json.Unmarshal(answer, &me); err != nil {
		return errors.New("the server's answer is no account")
	}
	fmt.Fprintf(e.Out, "%s\n", printable(me.Email))
	e.say("at %s", c.Server())
	return nil
}
