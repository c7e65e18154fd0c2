package dashboard

import (
	"context"
	"encoding/base64"
	"html/template"
	"net/http"

	"rsc.io/qr"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

type securityData struct {
	Factor   account.Factor
	Passkeys []account.Passkey
	Allowed  bool // there can be passkeys
}

func (d *Dashboard) securityPage(ctx context.Context, q *request) (answer, error) {
	f, err := d.Accounts.SecondFactor(ctx, q.user.ID)
	if err != nil {
		return answer{}, err
	}
	keys, err := d.Accounts.ListPasskeys(ctx, q.user.ID)
	return page("account_security", "Sign-in and security", securityData{f, keys, d.Accounts.Passkeys()}), err
}

// prove makes sure that it is the user, not somebody at their unlocked machine: who signed
// in a while ago types the password again, into the field "current".
func (d *Dashboard) prove(ctx context.Context, q *request) error {
	if q.session.Fresh() {
		return nil
	}
	if err := d.throttlePassword(ctx, q, q.user.Email); err != nil {
		return err
	}
	return at("current", rightly(d.Accounts.Prove(ctx, q.session, q.value("current"))))
}

// rightly says of a wrong password what concerns somebody who is signed in.
func rightly(err error) error {
	if fault.Is(err, fault.Unauthorized) {
		return &fault.Error{Kind: fault.Forbidden, Message: "Wrong password", Code: "wrong_password"}
	}
	return err
}

func (d *Dashboard) changePassword(ctx context.Context, q *request) (answer, error) {
	if err := d.throttlePassword(ctx, q, q.user.Email); err != nil {
		return answer{}, err
	}
	_, token, err := d.Accounts.ChangePassword(ctx, q.session, q.value("old"), q.value("password"), q.device())
	if err != nil {
		if fault.Is(err, fault.Unauthorized) {
			return answer{}, at("old", rightly(err))
		}
		return answer{}, err
	}
	a := goTo("/account/security", "Password changed. All your other sessions are signed out")
	a.cookies = []*http.Cookie{d.signedIn(token)}
	return a, nil
}

type factorData struct {
	Offer account.Offer // zero: the password is asked for first
	Image template.URL  // a QR code as a data: URL
	Codes []string      // shown once
}

// factorPage offers a second factor: a new one for every visit, and again the one that
// the form was about when its code was wrong.
func (d *Dashboard) factorPage(ctx context.Context, q *request) (answer, error) {
	f, err := d.Accounts.SecondFactor(ctx, q.user.ID)
	if err != nil {
		return answer{}, err
	}
	if f.On {
		return goTo("/account/security", "Two-factor authentication is already enabled"), nil
	}
	if !q.session.Fresh() {
		return page("account_factor", "Two-factor authentication", factorData{}), nil
	}
	var offer account.Offer
	if token := q.value("offer"); token != "" {
		offer, err = d.Accounts.OfferedTOTP(ctx, q.session, token)
	}
	if offer.Token == "" && (err == nil || fault.Is(err, fault.Conflict)) {
		offer, err = d.Accounts.OfferTOTP(ctx, q.session)
	}
	if err != nil {
		return answer{}, err
	}
	code, err := qr.Encode(offer.URI, qr.M)
	if err != nil {
		return answer{}, err
	}
	code.Scale = 5
	image := template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(code.PNG())) // our own bytes
	return page("account_factor", "Two-factor authentication", factorData{Offer: offer, Image: image}), nil
}

// beginFactor takes the password that the page asks for before it shows a secret.
func (d *Dashboard) beginFactor(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	return goTo("/account/second-factor", ""), nil
}

func (d *Dashboard) turnFactorOn(ctx context.Context, q *request) (answer, error) {
	if err := d.throttle(ctx, guesses{"login-code:" + string(q.user.ID), perFactor}); err != nil {
		return answer{}, err
	}
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	codes, err := d.Accounts.ConfirmTOTP(ctx, q.actor(), q.value("offer"), q.value("code"))
	if fault.Is(err, fault.Unauthorized) {
		f := *fault.As(err)
		f.Kind = fault.Invalid
		return answer{}, at("code", &f)
	}
	return page("account_codes", "Recovery codes", factorData{Codes: codes}), err
}

func (d *Dashboard) turnFactorOff(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	err := d.act(ctx, q, "second_factor.disabled", func(tx *db.Tx) (string, error) {
		return string(q.user.ID), d.Accounts.DropTOTPTx(ctx, tx, q.user.ID)
	})
	return goTo("/account/security", "Two-factor authentication disabled"), err
}

func (d *Dashboard) renewCodes(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	codes, err := d.Accounts.RenewCodes(ctx, q.actor())
	return page("account_codes", "Recovery codes", factorData{Codes: codes}), err
}
