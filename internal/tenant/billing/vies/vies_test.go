package vies

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/billing/party"
)

// register is a fake VIES that returns the answer that a test sets.
type register struct {
	mu     sync.Mutex // guards the rest
	status int
	answer string
	asked  []map[string]string
}

func (r *register) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var question map[string]string
	if err := json.NewDecoder(request.Body).Decode(&question); err != nil || request.URL.Path != "/check-vat-number" {
		http.Error(w, "no question", http.StatusBadRequest)
		return
	}
	r.asked = append(r.asked, question)
	w.WriteHeader(r.status)
	fmt.Fprint(w, r.answer)
}

func (r *register) says(status int, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.answer, r.asked = status, answer, nil
}

// setClock is a clock that the test sets.
type setClock struct{ at db.Time }

func (c *setClock) Now() db.Time { return c.at }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// If VIES fails, a VAT number stays unchecked and is retried. A result is stored with its consultation number. A
// confirmed number is checked again every month and loses its confirmation after two months without an answer.
func TestVIES(t *testing.T) {
	t.Parallel()
	r := &register{}
	server := httptest.NewServer(r)
	defer server.Close()
	d, clock := dbtest.New(t), &setClock{db.Now()}
	parties := party.New(clock)
	v := New(Config{DB: d, Parties: parties, Out: server.Client(), API: server.URL, Clock: clock})
	write := func(fn func(tx *db.Tx) error) { t.Helper(); ok(t, d.Write(t.Context(), fn)) }
	settings := party.DefaultSettings()
	settings.Seller = party.Party{Name: "Acme", Country: "DE", VATID: "DE123456789"}
	save := func() {
		write(func(tx *db.Tx) error { return parties.SaveSettingsTx(t.Context(), tx, "", settings) })
	}
	profile := func(number string) {
		write(func(tx *db.Tx) error {
			_, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", party.Party{
				Name: "Château Ada S.A.R.L.", Address: "1 rue de la Paix\n75002 Paris\nFrance", Country: "FR", VATID: number,
			})
			return err
		})
	}
	state := func() party.Profile {
		p, err := parties.Profile(t.Context(), d, "own_ada")
		ok(t, err)
		return p
	}
	check := func() []map[string]string {
		ok(t, v.CheckAll(t.Context()))
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.asked
	}
	save()
	profile("FR12345678901")
	r.says(200, `{"valid":false}`)
	if len(check()) != 0 {
		t.Error("VIES is asked although the seller doesn't want that")
	}
	settings.VIES = true
	save()
	for name, x := range map[string]struct {
		status int
		answer string
	}{
		"a country is away":    {200, `{"actionSucceed":false,"errorWrappers":[{"error":"MS_UNAVAILABLE"}]}`},
		"the address is known": {200, `{"countryCode":"FR","vatNumber":"12345678901","valid":false,"userError":"IP_BLOCKED"}`},
		"too many ask":         {200, `{"actionSucceed":false,"errorWrappers":[{"error":"MS_MAX_CONCURRENT_REQ"}]}`},
		"an error":             {500, `{"countryCode":"FR","vatNumber":"12345678901","valid":false}`},
		"a page":               {200, `<html>Maintenance</html>`},
		"nothing":              {200, ``},
		"no verdict":           {200, `{"countryCode":"FR","vatNumber":"12345678901"}`},
		"another number":       {200, `{"countryCode":"FR","vatNumber":"99999999999","valid":false}`},
	} {
		clock.at = clock.at.Add(time.Hour)
		r.says(x.status, x.answer)
		if n := len(check()); n != 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
		if p := state(); p.VAT != party.VATUnchecked {
			t.Errorf("%s: the number is %s", name, p.VAT)
		}
		if n := len(check()); n != 1 {
			t.Errorf("%s: asked again at once", name)
		}
	}
	clock.at = clock.at.Add(time.Hour)
	const yes = `{"countryCode":"FR","vatNumber":"12345678901","valid":true,"requestIdentifier":"WAPIAAAAXk2","name":"SARL CHATEAU ADA","address":"1 RUE DE LA PAIX\n75002 PARIS"}`
	r.says(200, yes)
	if q := check(); len(q) != 1 || q[0]["countryCode"] != "FR" || q[0]["vatNumber"] != "12345678901" ||
		q[0]["requesterMemberStateCode"] != "DE" || q[0]["requesterNumber"] != "123456789" {
		t.Errorf("asked %v", q)
	}
	if p := state(); p.VAT != party.VATValid || p.Consultation != "WAPIAAAAXk2" || p.CheckedAt != clock.at {
		t.Errorf("%+v", p)
	}
	profile("FR12345678901") // unchanged
	r.says(200, yes)
	if len(check()) != 0 {
		t.Error("a verdict is asked for again at once")
	}
	const away = `{"actionSucceed":false,"errorWrappers":[{"error":"MS_UNAVAILABLE"}]}`
	clock.at = clock.at.Add(31 * 24 * time.Hour)
	r.says(200, away)
	if len(check()) != 1 || state().VAT != party.VATValid {
		t.Errorf("a month later: %+v", state())
	}
	clock.at = clock.at.Add(31 * 24 * time.Hour)
	if len(check()) != 2 || state().VAT != party.VATUnchecked {
		t.Errorf("two months without an answer: %+v", state())
	}
	clock.at = clock.at.Add(time.Hour)
	r.says(200, yes)
	if len(check()) != 1 || state().VAT != party.VATValid {
		t.Errorf("an answer again: %+v", state())
	}
	clock.at = clock.at.Add(31 * 24 * time.Hour)
	r.says(200, `{"countryCode":"FR","vatNumber":"12345678901","valid":false}`)
	if len(check()) != 1 || state().VAT != party.VATInvalid {
		t.Errorf("the business has ended: %+v", state())
	}
	profile("FR22222222222")
	if p := state(); p.VAT != party.VATUnchecked || p.Consultation != "" {
		t.Errorf("another number: %+v", p)
	}
	r.says(200, `{"countryCode":"FR","vatNumber":"22222222222","valid":false,"requestIdentifier":""}`)
	check()
	if state().VAT != party.VATInvalid {
		t.Errorf("%+v", state())
	}
	profile("FR33333333333")
	write(func(tx *db.Tx) error {
		_, err := parties.VerifyVATTx(t.Context(), tx, "own_ada", true)
		return err
	})
	clock.at = clock.at.Add(400 * 24 * time.Hour)
	r.says(200, `{"countryCode":"FR","vatNumber":"33333333333","valid":false}`)
	if len(check()) != 0 || state().VAT != party.VATValid {
		t.Error("what the operator decided is asked for")
	}
}

// A VAT number known to VIES counts as the customer's only if the name and address match too, because businesses
// publish their numbers.
func TestOthersNumbers(t *testing.T) {
	t.Parallel()
	r := &register{}
	server := httptest.NewServer(r)
	defer server.Close()
	d, clock := dbtest.New(t), &setClock{db.Now()}
	parties := party.New(clock)
	v := New(Config{DB: d, Parties: parties, Out: server.Client(), API: server.URL, Clock: clock})
	write := func(fn func(tx *db.Tx) error) { t.Helper(); ok(t, d.Write(t.Context(), fn)) }
	settings := party.DefaultSettings()
	settings.Seller, settings.VIES = party.Party{Name: "Acme", Country: "DE", VATID: "DE123456789"}, true
	settings.Taxes = map[string]int64{"DE": 1900}
	write(func(tx *db.Tx) error { return parties.SaveSettingsTx(t.Context(), tx, "", settings) })
	for name, x := range map[string]struct {
		name, address   string // of the profile
		says, saysThere string // according to VIES
		want            party.VATState
	}{
		"is theirs":         {"Dupont & Fils SARL", "12 rue d'Orléans\n75002 Paris", "SARL DUPONT FILS", "12 RUE D ORLEANS\n75002 PARIS", party.VATUnconfirmed},
		"same words":        {"Dupont & Fils SARL", "12, rue de Orléans\n75002 Paris", "SARL DUPONT FILS", "12 RUE DE ORLEANS\n75002 PARIS", party.VATValid},
		"another name":      {"Eve", "12 rue de Orléans\n75002 Paris", "SARL DUPONT FILS", "12 RUE DE ORLEANS\n75002 PARIS", party.VATUnconfirmed},
		"a part of it":      {"Dupont", "12 rue de Orléans\n75002 Paris", "SARL DUPONT FILS", "12 RUE DE ORLEANS\n75002 PARIS", party.VATUnconfirmed},
		"another address":   {"SARL Dupont Fils", "3 High Street\nParis", "SARL DUPONT FILS", "12 RUE DE ORLEANS\n75002 PARIS", party.VATUnconfirmed},
		"no address":        {"SARL Dupont Fils", "", "SARL DUPONT FILS", "12 RUE DE ORLEANS\n75002 PARIS", party.VATUnconfirmed},
		"VIES tells none":   {"SARL Dupont Fils", "12 rue de Orléans", "---", "---", party.VATUnconfirmed},
		"VIES tells no one": {"---", "---", "---", "---", party.VATUnconfirmed},
		"not a text":        {"Eve", "x", "a\x00b", "x", party.VATUnconfirmed},
	} {
		buyer := party.Party{Name: x.name, Address: x.address, Country: "FR", VATID: "FR12345678901"}
		write(func(tx *db.Tx) error {
			if _, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", party.Party{Name: "Nobody", Country: "FR"}); err != nil {
				return err
			}
			_, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", buyer)
			return err
		})
		said, err := json.Marshal(map[string]any{
			"countryCode": "FR", "vatNumber": "12345678901", "valid": true, "name": x.says, "address": x.saysThere,
		})
		ok(t, err)
		r.says(200, string(said))
		ok(t, v.CheckAll(t.Context()))
		p, err := parties.Profile(t.Context(), d, "own_ada")
		ok(t, err)
		if tax := party.TaxFor(settings, p); p.VAT != x.want || (tax.BasisPoints == 0) != (x.want == party.VATValid) {
			t.Errorf("%s: %s, taxed %+v, VIES says %+v", name, p.VAT, tax, p.Found)
		}
	}
	// A Northern Ireland number applies to goods only and isn't valid for a business elsewhere in the EU.
	write(func(tx *db.Tx) error {
		_, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", party.Party{Name: "Eve", Country: "FR", VATID: "XI123456789"})
		return err
	})
	r.says(200, `{"countryCode":"XI","vatNumber":"123456789","valid":true,"name":"EVE","address":"X"}`)
	ok(t, v.CheckAll(t.Context()))
	if len(r.asked) != 0 {
		t.Errorf("VIES is asked for a number of another country: %v", r.asked)
	}
}

// The result of a VIES check isn't applied to a number or name that changed during the check.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	d, clock := dbtest.New(t), &setClock{db.Now()}
	parties := party.New(clock)
	ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
		is := party.Party{Name: "Ada", Address: "Paris", Country: "FR", VATID: "FR22222222222"}
		if _, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", is); err != nil {
			return err
		}
		number, name := is, is
		number.VATID, name.Name = "FR12345678901", "Eve"
		for _, was := range []party.Party{number, name} {
			if err := parties.CheckedTx(t.Context(), tx, party.Number{Owner: "own_ada", Party: was, VATID: was.VATID}, party.Verdict{
				Known: true, Valid: true, Found: party.Found{Name: is.Name, Address: is.Address},
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	if p, err := parties.Profile(t.Context(), d, "own_ada"); err != nil || p.VAT != party.VATUnchecked {
		t.Errorf("%+v %v", p, err)
	}
}
