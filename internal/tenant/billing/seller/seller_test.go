package seller

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

const (
	ada = id.Owner("own_ada")
	eve = id.Owner("own_eve")
)

var harbor = Seller{ID: "harbor", Name: "Harbor", Series: "HB", Sender: "Harbor <hello@harbor.test>"}

func picture(width, height int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	m.Set(0, 0, color.NRGBA{R: 200, A: 255})
	return m
}

func pngOf(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A logo is re-encoded, which drops other data in the file. Files that aren't images, or are too large, are refused.
func TestLogo(t *testing.T) {
	t.Parallel()
	small := pngOf(t, picture(16, 16))
	got, err := ReadLogo(bytes.NewReader(append(bytes.Clone(small), "<script>alert(1)</script>"...)))
	if err != nil || bytes.Contains(got, []byte("script")) {
		t.Errorf("%q %v", got, err)
	}
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, picture(16, 16), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadLogo(&photo); err != nil || !bytes.HasPrefix(got, []byte("\x89PNG")) {
		t.Errorf("a JPEG becomes %.8q, %v", got, err)
	}
	for name, file := range map[string][]byte{
		"SVG":      []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`),
		"wide":     pngOf(t, picture(logoSide+1, 1)),
		"large":    bytes.Repeat([]byte{0}, logoBytes+1),
		"half":     small[:len(small)/2],
		"empty":    nil,
		"no image": []byte("GIF89a"),
	} {
		if _, err := ReadLogo(bytes.NewReader(file)); fault.As(err) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A seller's fields are limited in length, series are unique, and a seller's series never changes.
func TestSave(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	save := func(s Seller) error {
		return d.Write(t.Context(), func(tx *db.Tx) error { return SaveTx(t.Context(), tx, s) })
	}
	logo := pngOf(t, picture(8, 8))
	with := harbor
	with.Logo = logo
	if err := save(with); err != nil {
		t.Fatal(err)
	}
	renamed := harbor
	renamed.Name = "Harbor & Sons"
	if err := save(renamed); err != nil {
		t.Fatal(err)
	}
	list, err := List(t.Context(), d)
	if err != nil || len(list) != 1 || list[0].Name != "Harbor & Sons" || list[0].Digest == "" {
		t.Fatalf("%+v %v", list, err)
	}
	if got, err := Logo(t.Context(), d, list[0].Digest); err != nil || !bytes.Equal(got, logo) {
		t.Errorf("the logo is another: %v", err)
	}
	if _, err := Logo(t.Context(), d, ""); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	for code, s := range map[string]Seller{
		"series_fixed":     {ID: "harbor", Name: "Harbor", Series: "HX"},
		"series_taken":     {ID: "other", Name: "Other", Series: "HB"},
		"invalid_series":   {ID: "other", Name: "Other", Series: "CN"},
		"invalid_id":       {ID: "Other", Name: "Other", Series: "O"},
		"invalid_name":     {ID: "other", Name: "a\nb", Series: "O"},
		"invalid_sender":   {ID: "other", Name: "Other", Series: "O", Sender: "nobody"},
		"invalid_reply_to": {ID: "other", Name: "Other", Series: "O", ReplyTo: "a@b.test\r\nBcc: c@d.test"},
	} {
		if f := fault.As(save(s)); f == nil || f.Code != code {
			t.Errorf("%+v: %v, want %s", s, f, code)
		}
	}
}

// A seller's customer is offered the seller's plans and invoiced in the seller's name and series. The installation's
// plans and series stay unaffected. Later changes of terms or seller don't change issued invoices.
func TestInvoices(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	b := billing.New(billing.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Billing: true}), Usage: usage.New(usage.Config{DB: d})})
	write := func(fn func(tx *db.Tx) error) {
		t.Helper()
		if err := d.Write(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	settings := func(name, seller string) {
		t.Helper()
		s := party.DefaultSettings()
		s.Seller = party.Party{Name: name, Country: "DE"}
		write(func(tx *db.Tx) error { return b.SaveSettingsTx(t.Context(), tx, seller, s) })
	}
	publish := func(name, seller string) {
		t.Helper()
		write(func(tx *db.Tx) error {
			_, err := b.PublishTx(t.Context(), tx, seller, plan.Terms{Plan: name, Title: name, Currency: "EUR", Term: plan.Month, Amount: 1000, Public: true})
			return err
		})
	}
	offers := func(owner id.Owner) (names string) {
		t.Helper()
		list, err := b.OffersTo(t.Context(), d, owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			names += v.Plan + " "
		}
		return names
	}
	subscribe := func(owner id.Owner, name string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := b.DoTx(t.Context(), tx, owner, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: name}}, "")
			return err
		})
	}
	latest := func(owner id.Owner) billing.Invoice {
		t.Helper()
		list, err := b.Invoices(t.Context(), d, owner, "", 1)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v %v", list, err)
		}
		return list[0]
	}
	settings("Acme", "")
	publish("pro", "")
	write(func(tx *db.Tx) error {
		if err := SaveTx(t.Context(), tx, harbor); err != nil {
			return err
		}
		return AssignTx(t.Context(), tx, ada, "harbor")
	})
	if fault.As(d.Write(t.Context(), func(tx *db.Tx) error { return AssignTx(t.Context(), tx, ada, "nobody") })) == nil {
		t.Error("an account is assigned to an unknown seller")
	}
	if got := offers(ada); got != "pro " {
		t.Errorf("a seller without plans offers %q", got)
	}
	publish("bakery", "harbor")
	if a, e := offers(ada), offers(eve); a != "bakery " || e != "pro " {
		t.Errorf("%q and %q are offered", a, e)
	}
	if err := subscribe(eve, "bakery"); fault.As(err) == nil {
		t.Errorf("another seller's plan was chosen: %v", err)
	}
	settings("Harbor Hosting", "harbor")
	for owner, name := range map[id.Owner]string{ada: "bakery", eve: "pro"} {
		if err := subscribe(owner, name); err != nil {
			t.Fatal(err)
		}
	}
	hers, others := latest(ada), latest(eve)
	if !strings.HasPrefix(hers.Number, "HB-20") || !strings.HasSuffix(hers.Number, "-000001") || hers.Document().Seller.Name != "Harbor Hosting" {
		t.Errorf("%s by %s", hers.Number, hers.Document().Seller.Name)
	}
	if strings.HasPrefix(others.Number, "HB") || !strings.HasSuffix(others.Number, "-000001") || others.Document().Seller.Name != "Acme" {
		t.Errorf("%s by %s", others.Number, others.Document().Seller.Name)
	}
	settings("Somebody Else", "harbor")
	write(func(tx *db.Tx) error { return AssignTx(t.Context(), tx, ada, "") })
	if r, err := b.Recompute(t.Context(), d, hers.Number); err != nil || !r.Same || !bytes.Equal(r.Invoice.JSON(), hers.JSON()) {
		t.Errorf("the invoice is another after the seller has changed: %v", err)
	}
	write(func(tx *db.Tx) error {
		note, err := b.CreditNoteTx(t.Context(), tx, hers.ID, 0, "a mistake")
		if err == nil {
			note, err = b.InvoiceOf(t.Context(), tx, string(note.ID))
		}
		if !strings.HasPrefix(note.Number, "HB-CN-") || note.Document().Seller.Name != "Harbor Hosting" {
			t.Errorf("%s by %s", note.Number, note.Document().Seller.Name)
		}
		return err
	})
	if found, err := b.Problems(t.Context()); err != nil || len(found) > 0 {
		t.Error(found, err)
	}
}

// Pages and emails show a seller's name to its customers, to teams whose members are all its customers, and to members
// of a customer team who have no seller themselves. Operators and all others see the installation's name.
func TestBrands(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	write := func(query string, args ...any) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), query, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"customer", "member", "operator", "stranger"} {
		write(`INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ($1, $2, $3, '', $4, 0)`, "usr_"+name, "own_"+name, name+"@example.test",
			name == "operator")
	}
	team := func(name string, members ...string) {
		t.Helper()
		write(`INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, suspended_at, deleting_at, deleted_at)
			VALUES ($1, $2, $3, $3, FALSE, FALSE, 'all', 0, 0, 0, 0)`, "team_"+name, "own_"+name, name)
		for _, m := range members {
			write(`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ($1, $2, 'owner', FALSE, 0, '')`,
				"own_"+name, "usr_"+m)
		}
	}
	team("assigned", "member", "operator")
	team("theirs", "customer")
	team("mixed", "customer", "stranger")
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		if err := SaveTx(t.Context(), tx, harbor); err != nil {
			return err
		}
		for _, o := range []id.Owner{"own_customer", "own_assigned"} {
			if err := AssignTx(t.Context(), tx, o, "harbor"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	see := func(want map[id.Owner]string) {
		t.Helper()
		for owner, name := range want {
			if b, err := BrandOf(t.Context(), d, owner); err != nil || b.Name != name {
				t.Errorf("%s sees %q, want %q: %v", owner, b.Name, name, err)
			}
		}
	}
	see(map[id.Owner]string{
		"own_customer": "Harbor", "own_assigned": "Harbor", "own_theirs": "Harbor", "own_member": "Harbor",
		"own_operator": "", "own_stranger": "", "own_mixed": "",
	})
	for owner, want := range map[id.Owner]string{"own_theirs": "harbor", "own_member": "", "own_mixed": ""} {
		if got, err := party.SellerOf(t.Context(), d, owner); err != nil || got != want {
			t.Errorf("%s is sold to by %q, want %q: %v", owner, got, want, err)
		}
	}
	if err := billing.Switch(t.Context(), d, false); err != nil {
		t.Fatal(err)
	}
	see(map[id.Owner]string{"own_customer": "", "own_assigned": "", "own_theirs": "", "own_member": ""})
}
