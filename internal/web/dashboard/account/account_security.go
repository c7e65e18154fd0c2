package account

import (
	"context"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"

	"rsc.io/qr"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/dashboard/shell"
)

type securityData struct {
	Factor   account.Factor
	Passkeys []account.Passkey
	Allowed  bool   // whether passkeys are available
	Main     string // host of passkeys if it isn't this one

	Providers  []sso.Provider // whose accounts can be linked
	Identities []sso.Identity
	Link       *sso.Provider // provider selected by the URL
}

func (d *Pages) securityPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	f, err := d.Accounts.SecondFactor(ctx, q.User.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	data := securityData{Factor: f, Allowed: d.Accounts.Passkeys(), Main: d.Elsewhere(q)}
	if data.Passkeys, err = d.Accounts.ListPasskeys(ctx, q.User.ID); err != nil {
		return shell.Answer{}, err
	}
	if d.SSO != nil {
		if data.Providers, err = d.SSO.Linkable(ctx, q.User); err != nil {
			return shell.Answer{}, err
		}
		if data.Identities, err = d.SSO.Identities(ctx, q.User.ID); err != nil {
			return shell.Answer{}, err
		}
	}
	if id := sso.ProviderID(q.Query("link")); id != "" && err == nil {
		i := slices.IndexFunc(data.Providers, func(p sso.Provider) bool { return p.ID == id })
		if i < 0 {
			return shell.Answer{}, fault.Missing("sign-in provider")
		}
		data.Link = &data.Providers[i]
	}
	return shell.Page("account_security", "Sign-in and security", data), err
}

func (d *Pages) changePassword(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.ThrottlePassword(ctx, q, q.User.Email); err != nil {
		return shell.Answer{}, err
	}
	_, token, err := d.Accounts.ChangePassword(ctx, q.Session, q.Value("old"), q.Value("password"), q.Device())
	if err != nil {
		if fault.Is(err, fault.Unauthorized) {
			return shell.Answer{}, shell.At("old", shell.Rightly(err))
		}
		return shell.Answer{}, err
	}
	a := shell.GoTo("/account/security", "Password changed. All your other sessions are signed out")
	a.Cookies = []*http.Cookie{d.SignedIn(token)}
	return a, nil
}

// At returns the name of an identity's provider.
func (s securityData) At(i sso.Identity) string {
	for _, p := range s.Providers {
		if p.Issuer == i.Issuer && p.Owner == i.Owner {
			return p.Name
		}
	}
	return i.Issuer
}

type factorData struct {
	Offer account.Offer // zero: ask for the password first
	Image template.URL  // QR code as a data: URL
	Codes []string      // shown once
}

// factorPage offers a second factor: a new one on each visit, or the form's previous one after a wrong code.
func (d *Pages) factorPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	f, err := d.Accounts.SecondFactor(ctx, q.User.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	if f.On {
		return shell.GoTo("/account/security", "Two-factor authentication is already enabled"), nil
	}
	if !q.Session.Fresh() {
		return shell.Page("account_factor", "Two-factor authentication", factorData{}), nil
	}
	var offer account.Offer
	if token := q.Value("offer"); token != "" {
		offer, err = d.Accounts.OfferedTOTP(ctx, q.Session, token)
	}
	if offer.Token == "" && (err == nil || fault.Is(err, fault.Conflict)) {
		offer, err = d.Accounts.OfferTOTP(ctx, q.Session)
	}
	if err != nil {
		return shell.Answer{}, err
	}
	code, err := qr.Encode(offer.URI, qr.M)
	if err != nil {
		return shell.Answer{}, err
	}
	code.Scale = 5
	image := template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(code.PNG())) // generated here
	return shell.Page("account_factor", "Two-factor authentication", factorData{Offer: offer, Image: image}), nil
}

// beginFactor checks the password required before a secret is shown.
func (d *Pages) beginFactor(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	return shell.GoTo("/account/second-factor", ""), nil
}

func (d *Pages) turnFactorOn(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "login-code:" + string(q.User.ID), Limit: shell.PerFactor}); err != nil {
		return shell.Answer{}, err
	}
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	codes, err := d.Accounts.ConfirmTOTP(ctx, q.Actor(), q.Value("offer"), q.Value("code"))
	if fault.Is(err, fault.Unauthorized) {
		f := *fault.As(err)
		f.Kind = fault.Invalid
		return shell.Answer{}, shell.At("code", &f)
	}
	return shell.Page("account_codes", "Recovery codes", factorData{Codes: codes}), err
}

func (d *Pages) turnFactorOff(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	err := d.Act(ctx, q, "second_factor.disabled", func(tx *db.Tx) (string, error) {
		if err := d.Accounts.MayChangeFactors(ctx, tx, q.Actor()); err != nil {
			return "", err
		}
		return string(q.User.ID), d.Accounts.DropTOTPTx(ctx, tx, q.User.ID, q.Session.ID)
	})
	return shell.GoTo("/account/security", "Two-factor authentication disabled"), err
}

func (d *Pages) renewCodes(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	codes, err := d.Accounts.RenewCodes(ctx, q.Actor())
	return shell.Page("account_codes", "Recovery codes", factorData{Codes: codes}), err
}
