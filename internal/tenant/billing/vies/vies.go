// Package vies owns the validation of VAT numbers by VIES, the service of the European Commission.
//
// If the seller's settings enable it, it checks the unchecked numbers of billing profiles, a few at a time, and
// rechecks confirmed ones every month. An inconclusive answer, such as an unavailable national register, never makes a
// number invalid; the check is repeated. Numbers decided by the operator are skipped.
package vies

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/billing/party"
)

type Config struct {
	DB      *db.DB
	Parties *party.Parties
	Out     *http.Client // from egress
	API     string       // Optional: defaults to the Commission's.
	Log     *slog.Logger // Optional.
	Clock   db.Clock     // Optional: defaults to the system clock.
}

// Vies is the service. It is safe for concurrent use.
type Vies struct{ c Config }

// New returns the service. It starts nothing: Work registers its job.
func New(c Config) *Vies {
	c.API = cmp.Or(c.API, "https://ec.europa.eu/taxation_customs/vies/rest-api")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Clock == nil {
		c.Clock = db.Machine{}
	}
	return &Vies{c}
}

// Check is the job that checks unchecked numbers. There is one.
type Check struct{}

// Kind implements [job.Args].
func (Check) Kind() string { return "billing.vat" }

const (
	checkEvery = time.Minute
	maxPerRun  = 20               // numbers per run
	askAgain   = 30 * time.Minute // after an inconclusive answer
	maxAnswer  = 64 << 10
)

// Work registers the job.
func (v *Vies) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 10 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Check, _ int64) error {
		if err := v.CheckAll(ctx); err != nil {
			return err
		}
		return job.Later(checkEvery)
	})
}

// Schedule enqueues the job unless it exists.
func (v *Vies) Schedule(ctx context.Context) error {
	return v.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Check{}, job.Options{Unique: "billing.vat"})
		return err
	})
}

// CheckAll checks the due numbers if the seller's settings enable it.
func (v *Vies) CheckAll(ctx context.Context) error {
	settings, err := v.c.Parties.Settings(ctx, v.c.DB, "")
	if err != nil || !settings.VIES {
		return err
	}
	list, err := v.c.Parties.Unchecked(ctx, v.c.DB, maxPerRun)
	if err != nil {
		return err
	}
	for _, n := range list {
		var verdict party.Verdict
		if n.VATID != "" {
			verdict, err = v.ask(ctx, n.VATID, settings.Seller.VATID)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			v.c.Log.WarnContext(ctx, "VAT number not checked, will be retried", "owner", n.Owner, "err", err)
			verdict = party.Verdict{}
		}
		verdict.Again = v.c.Clock.Now().Add(askAgain)
		if err := v.c.DB.Write(ctx, func(tx *db.Tx) error { return v.c.Parties.CheckedTx(ctx, tx, n, verdict) }); err != nil {
			return err
		}
	}
	return nil
}

// ask checks one number. An error means that the answer is inconclusive.
func (v *Vies) ask(ctx context.Context, number, seller string) (verdict party.Verdict, err error) {
	body, err := json.Marshal(map[string]string{
		"countryCode": number[:2], "vatNumber": number[2:],
		"requesterMemberStateCode": seller[:2], "requesterNumber": seller[2:], // required for a consultation number
	})
	if err != nil {
		return verdict, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.c.API+"/check-vat-number", bytes.NewReader(body))
	if err != nil {
		return verdict, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := v.c.Out.Do(request)
	if err != nil {
		return verdict, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return verdict, err
	}
	var answer struct {
		CountryCode       string
		VATNumber         string
		Valid             *bool
		UserError         string
		RequestIdentifier string
		Name, Address     string // "---" if the country doesn't disclose it
		ErrorWrappers     []struct{ Error string }
	}
	if err := json.Unmarshal(said, &answer); err != nil {
		return verdict, fmt.Errorf("VIES answered with status %d and no JSON", response.StatusCode)
	}
	wrong := answer.UserError
	if len(answer.ErrorWrappers) > 0 {
		wrong = answer.ErrorWrappers[0].Error
	}
	switch {
	case wrong != "" && wrong != "VALID" && wrong != "INVALID": // such as MS_UNAVAILABLE
		if !text.Fits(wrong, 1, 60) {
			wrong = "an error"
		}
		return verdict, fmt.Errorf("VIES says %s", wrong)
	case response.StatusCode != http.StatusOK || answer.Valid == nil:
		return verdict, fmt.Errorf("VIES answered with status %d and no verdict", response.StatusCode)
	case answer.CountryCode != number[:2] || answer.VATNumber != number[2:]:
		return verdict, fmt.Errorf("VIES answered for another number")
	}
	if text.Fits(answer.RequestIdentifier, 1, 60) {
		verdict.Consultation = answer.RequestIdentifier
	}
	if text.Fits(answer.Name, 1, 200) {
		verdict.Found.Name = strings.Trim(answer.Name, "- ")
	}
	if text.Fits(answer.Address, 6, 600) {
		verdict.Found.Address = strings.Trim(answer.Address, "- \n")
	}
	verdict.Known, verdict.Valid = true, *answer.Valid
	return verdict, nil
}
