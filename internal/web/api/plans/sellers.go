package plans

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/web/api/contract"
)

// SellerBody is a reseller.
type SellerBody struct {
	ID        string  `json:"id" example:"harbor"`
	Name      string  `json:"name" example:"Harbor"`
	Series    string  `json:"series" doc:"First part of its invoices' numbers." example:"HB"`
	Sender    string  `json:"sender" doc:"Sender of emails to its customers. Empty: the installation's." example:"Harbor <hello@harbor.example>"`
	ReplyTo   string  `json:"replyTo" doc:"Empty: none."`
	LogoURL   *string `json:"logoUrl" doc:"Null: none."`
	Host      *string `json:"host" doc:"Host at which its customers reach the dashboard. Null: the installation's." example:"panel.harbor.example"`
	Customers int64   `json:"customers" doc:"Number of accounts that are assigned to it."`
}

// SellerSettings are a reseller's name, address and terms. Omitted fields have their default.
type SellerSettings struct {
	Seller struct {
		Name    string `json:"name" example:"Harbor Hosting GmbH"`
		Address string `json:"address,omitempty"`
		Country string `json:"country" example:"DE"`
		VATID   string `json:"vatId,omitempty"`
		Email   string `json:"email,omitempty"`
	} `json:"seller"`
	Payment       string           `json:"payment,omitempty" doc:"How to pay by bank transfer. Printed on invoices."`
	Note          string           `json:"note,omitempty" doc:"Printed on invoices."`
	Taxes         map[string]int64 `json:"taxes,omitempty" doc:"Tax rates in basis points, by country."`
	OSS           bool             `json:"oss,omitempty" doc:"Whether consumers of other EU countries pay their country's tax."`
	DueDays       *int64           `json:"dueDays,omitempty" doc:"Default: 14."`
	GraceDays     *int64           `json:"graceDays,omitempty" doc:"Default: 14."`
	PausedDays    *int64           `json:"pausedDays,omitempty" doc:"Default: 30."`
	FinalizeHours *int64           `json:"finalizeHours,omitempty" doc:"Default: 1."`
	Cards         string           `json:"cards,omitempty" enum:",required,optional"`
}

// SellerIn identifies a reseller.
type SellerIn struct {
	ID string `path:"id" doc:"The seller's id."`
}

type createSellerIn struct {
	Body struct {
		ID      string `json:"id" doc:"Short name, which can't be changed." example:"harbor"`
		Name    string `json:"name" example:"Harbor"`
		Series  string `json:"series" doc:"First part of its invoices' numbers, which can't be changed." example:"HB"`
		Sender  string `json:"sender,omitempty" doc:"Sender of emails to its customers. Default: the installation's."`
		ReplyTo string `json:"replyTo,omitempty"`
		Host    string `json:"host,omitempty" doc:"Host at which its customers reach the dashboard. Its DNS records lead to the installation. Default: the installation's." example:"panel.harbor.example"`
		Logo    string `json:"logo,omitempty" maxLength:"360000" doc:"PNG or JPEG in base64, of at most 512 by 512 pixels and 256 KiB."`
	}
}

type updateSellerIn struct {
	SellerIn
	Body struct {
		Name    *string `json:"name,omitempty"`
		Sender  *string `json:"sender,omitempty" doc:"Empty: the installation's."`
		ReplyTo *string `json:"replyTo,omitempty" doc:"Empty: none."`
		Host    *string `json:"host,omitempty" doc:"Host at which its customers reach the dashboard. Empty: the installation's." example:"panel.harbor.example"`
		Logo    *string `json:"logo,omitempty" maxLength:"360000" doc:"PNG or JPEG in base64, of at most 512 by 512 pixels and 256 KiB. Empty: none."`
	}
}

type sellerSettingsIn struct {
	SellerIn
	Body SellerSettings
}

type assignIn struct {
	CustomerIn
	Body struct {
		Seller string `json:"seller" maxLength:"32" doc:"Id of a seller. Empty: the account belongs to the installation." example:"harbor"`
	}
}

// registerSellers registers the operations with which operators manage resellers.
func (a *API) registerSellers(r func(path, id, summary, doc, noun string) contract.Route) {
	create := r("/sellers", "createSeller", "Add a seller", "A reseller, with a name and a series of invoices of its own.", "seller")
	create.Status = 201
	contract.Get(a.API, r("/sellers", "listSellers", "List sellers", "All sellers by id.", "seller"), a.listSellers)
	contract.Post(a.API, create, a.createSeller)
	contract.Get(a.API, r("/sellers/{id}", "getSeller", "Get a seller", "A seller with the number of its customers.", "seller"), a.getSeller)
	contract.Change(a.API, "PATCH", r("/sellers/{id}", "updateSeller", "Update a seller",
		"Its customers see the new name and logo at once. Invoices that exist stay as they are.", "seller"), a.updateSeller)
	contract.Get(a.API, r("/sellers/{id}/settings", "getSellerSettings", "Get a seller's settings",
		"Who invoices, and on which terms. The installation's settings if the seller has none.", "seller"), a.getSellerSettings)
	contract.Change(a.API, "PUT", r("/sellers/{id}/settings", "setSellerSettings", "Set a seller's settings",
		"Replaces all of them. Invoices that exist stay as they are.", "seller"), a.setSellerSettings)
	contract.Change(a.API, "PUT", r("/owners/{id}/seller", "setCustomerSeller", "Assign a customer to a seller",
		"The seller's plans, name and next invoices are the account's. Invoices that exist stay as they are.", "customer"), a.assign)
}

func (a *API) showSeller(s seller.Seller) SellerBody {
	out := SellerBody{s.ID, s.Name, s.Series, s.Sender, s.ReplyTo, nil, contract.Some(s.Host), s.Customers}
	if s.Digest != "" {
		out.LogoURL = contract.Some(a.BaseURL + "/brand/" + s.Digest + ".png")
	}
	return out
}

func (a *API) listSellers(ctx context.Context, _ account.Caller, in *contract.PartIn) (contract.Data[SellerBody], error) {
	list, err := seller.List(ctx, a.DB)
	return contract.Part(*in, contract.Each(list, a.showSeller), err)
}

func (a *API) getSeller(ctx context.Context, _ account.Caller, in *SellerIn) (SellerBody, error) {
	s, err := seller.Get(ctx, a.DB, in.ID)
	return a.showSeller(s), err
}

// readLogo decodes a logo in base64; an empty text removes the current one.
func readLogo(text string) ([]byte, error) {
	if text == "" {
		return []byte{}, nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fault.InvalidField("logo", "logo must be a PNG or JPEG file in base64", nil)
	}
	return seller.ReadLogo(bytes.NewReader(raw))
}

// saveSeller saves a reseller, and its host unless host is nil, and returns it.
func (a *API) saveSeller(
	ctx context.Context, tx *db.Tx, s seller.Seller, host *string, did string,
) (out SellerBody, _ audit.Event, err error) {
	if err := seller.SaveTx(ctx, tx, s); err != nil {
		return out, audit.Event{}, err
	}
	if host != nil {
		if err := a.Sellers.SetTx(ctx, tx, s.ID, *host); err != nil {
			return out, audit.Event{}, err
		}
	}
	s, err = seller.Get(ctx, tx, s.ID)
	return a.showSeller(s), audit.Event{Action: did, Subject: s.ID, Detail: s.Name}, err
}

func (a *API) createSeller(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *createSellerIn,
) (out SellerBody, did audit.Event, err error) {
	b := in.Body
	s := seller.Seller{ID: b.ID, Name: b.Name, Series: b.Series, Sender: b.Sender, ReplyTo: b.ReplyTo}
	if s.Logo, err = readLogo(b.Logo); err != nil {
		return out, did, err
	}
	if _, err := seller.Get(ctx, tx, s.ID); err == nil {
		return out, did, fault.New(fault.Conflict, "seller_exists", "A seller has this id", "update it, or choose another id")
	} else if !fault.Is(err, fault.NotFound) {
		return out, did, err
	}
	return a.saveSeller(ctx, tx, s, &b.Host, "billing.seller_added")
}

func (a *API) updateSeller(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *updateSellerIn,
) (out SellerBody, did audit.Event, err error) {
	s, err := seller.Get(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	if err := contract.CheckPatch(ctx, "seller", []string{"name", "sender", "replyTo", "host", "logo"}, a.showSeller(s), nil); err != nil {
		return out, did, err
	}
	for to, from := range map[*string]*string{&s.Name: in.Body.Name, &s.Sender: in.Body.Sender, &s.ReplyTo: in.Body.ReplyTo} {
		if from != nil {
			*to = *from
		}
	}
	if in.Body.Logo != nil {
		if s.Logo, err = readLogo(*in.Body.Logo); err != nil {
			return out, did, err
		}
	}
	return a.saveSeller(ctx, tx, s, in.Body.Host, "billing.seller_updated")
}

func showSettings(s party.Settings) (out SellerSettings) {
	p := s.Seller
	out.Seller.Name, out.Seller.Address, out.Seller.Country = p.Name, p.Address, p.Country
	out.Seller.VATID, out.Seller.Email = p.VATID, p.Email
	out.Payment, out.Note, out.Taxes, out.OSS, out.Cards = s.Payment, s.Note, s.Taxes, s.OSS, s.Cards
	out.DueDays, out.GraceDays, out.PausedDays, out.FinalizeHours = &s.DueDays, &s.GraceDays, &s.PausedDays, &s.FinalizeHours
	return out
}

func (a *API) getSellerSettings(ctx context.Context, _ account.Caller, in *SellerIn) (out SellerSettings, err error) {
	if _, err := seller.Get(ctx, a.DB, in.ID); err != nil {
		return out, err
	}
	s, err := a.Billing.Settings(ctx, a.DB, in.ID)
	return showSettings(s), err
}

func (a *API) setSellerSettings(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *sellerSettingsIn,
) (out SellerSettings, did audit.Event, err error) {
	who, err := seller.Get(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	file, err := json.Marshal(in.Body) // in the form that the command reads from a file
	if err != nil {
		return out, did, err
	}
	s, err := party.ReadSettings(bytes.NewReader(file))
	if err != nil {
		if fault.As(err) == nil { // too large
			err = fault.InvalidField("settings", err.Error(), nil)
		}
		return out, did, err
	}
	return showSettings(s), audit.Event{Action: "billing.seller_updated", Subject: who.ID, Detail: who.Name},
		a.Billing.SaveSettingsTx(ctx, tx, in.ID, s)
}

func (a *API) assign(ctx context.Context, tx *db.Tx, _ account.Caller, in *assignIn) (out CustomerBody, did audit.Event, err error) {
	c, err := a.Billing.Customer(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	if err := seller.AssignTx(ctx, tx, c.Owner, in.Body.Seller); err != nil {
		return out, did, err
	}
	out, err = a.customer(ctx, tx, in.ID)
	return out, audit.Event{Action: "billing.seller_changed", Subject: in.Body.Seller, Detail: c.Name + ": " + in.Body.Seller}, err
}
