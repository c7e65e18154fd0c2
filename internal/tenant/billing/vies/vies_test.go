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

// register plays VIES: it answers with what a test says.
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

// setClock shows what a test sets.
type setClock struct{ at db.Time }

func (c *setClock) Now() db.Time { return c.at }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Failure 34: whatever goes wrong with VIES, a number stays unchecked and is asked for again; a verdict is kept with its consultation number,
// and is not asked for again until the number changes.
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
			_, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", party.Party{Name: "Ada", Country: "FR", VATID: number})
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
	if r.says(200, `{"valid":false}`); len(check()) != 0 {
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
	r.says(200, `{"countryCode":"FR","vatNumber":"12345678901","valid":true,"requestIdentifier":"WAPIAAAAXk2"}`)
	if q := check(); len(q) != 1 || q[0]["countryCode"] != "FR" || q[0]["vatNumber"] != "12345678901" ||
		q[0]["requesterMemberStateCode"] != "DE" || q[0]["requesterNumber"] != "123456789" {
		t.Errorf("asked %v", q)
	}
	if p := state(); p.VAT != party.VATValid || p.Consultation != "WAPIAAAAXk2" || p.CheckedAt != clock.at {
		t.Errorf("%+v", p)
	}
	profile("FR12345678901") // the same
	clock.at = clock.at.Add(365 * 24 * time.Hour)
	if r.says(200, `{"actionSucceed":false,"errorWrappers":[{"error":"MS_UNAVAILABLE"}]}`); len(check()) != 0 || state().VAT != party.VATValid {
		t.Error("a verdict is asked for again")
	}
	profile("FR22222222222")
	if p := state(); p.VAT != party.VATUnchecked || p.Consultation != "" {
		t.Errorf("another number: %+v", p)
	}
	r.says(200, `{"countryCode":"FR","vatNumber":"22222222222","valid":false,"requestIdentifier":""}`)
	if check(); state().VAT != party.VATInvalid {
		t.Errorf("%+v", state())
	}
	profile("FR33333333333")
	write(func(tx *db.Tx) error {
		_, err := parties.VerifyVATTx(t.Context(), tx, "own_ada", true)
		return err
	})
	if r.says(200, `{"countryCode":"FR","vatNumber":"33333333333","valid":false}`); len(check()) != 0 || state().VAT != party.VATValid {
		t.Error("what the operator decided is asked for")
	}
}

// A number that changes while VIES is asked for it isn't given the verdict of the one before.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	d, clock := dbtest.New(t), &setClock{db.Now()}
	parties := party.New(clock)
	ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := parties.SaveProfileTx(t.Context(), tx, "own_ada", party.Party{Name: "Ada", Country: "FR", VATID: "FR22222222222"})
		if err != nil {
			return err
		}
		return parties.CheckedTx(t.Context(), tx, party.Number{Owner: "own_ada", VATID: "FR12345678901"}, party.Verdict{Known: true, Valid: true})
	}))
	if p, err := parties.Profile(t.Context(), d, "own_ada"); err != nil || p.VAT != party.VATUnchecked {
		t.Errorf("%+v %v", p, err)
	}
}
