package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/fault"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestSignatures(t *testing.T) {
	t.Parallel()
	// The vectors of reliability.md 1.3; the second equals Svix's own.
	secret, body := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", []byte(`{"test": 2432232314}`)
	if got, want := Signature(secret, body), "sha256=80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c"; got != want {
		t.Errorf("Signature = %s, want %s", got, want)
	}
	at := time.Unix(1614265330, 0)
	if got, want := StandardSignature(
		secret,
		"msg_p5jXN8AQM9LWM0D4loKWxJek",
		at,
		body,
	), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("StandardSignature = %s, want %s", got, want)
	}
	// Without the form of Standard Webhooks the key is the text itself.
	for _, plain := range []string{"geheim", "whsec_", "whsec_not base64!"} {
		if !bytes.Equal(standardKey(plain), []byte(plain)) {
			t.Errorf("key of %q is %q", plain, standardKey(plain))
		}
	}
	a, b := newSecret(), newSecret()
	if a == b || !strings.HasPrefix(a, "whsec_") || len(standardKey(a)) != 32 {
		t.Errorf("generated %q and %q", a, b)
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	var names []string
	for _, e := range Catalogue() {
		names = append(names, e.Name)
		var p struct {
			ID, Event, Timestamp string
			Data                 map[string]json.RawMessage
		}
		if err := json.Unmarshal(
			e.Sample,
			&p,
		); err != nil || p.Event != e.Name || p.ID == "" || p.Timestamp == "" || len(p.Data) == 0 || e.Description == "" {
			t.Errorf("%s: %s, %v", e.Name, e.Sample, err)
		}
		if err := validates(e.Schema, e.Sample); err != nil {
			t.Errorf("%s: the sample is not of the schema: %v", e.Name, err)
		}
		if err := validates(e.Schema, bytes.Replace(e.Sample, []byte(e.Name), []byte("other.name"), 1)); err == nil {
			t.Errorf("%s: the schema takes any event", e.Name)
		}
		if group, _, _ := strings.Cut(e.Name, "."); p.Data[group] == nil {
			t.Errorf("%s: no data.%s in %s", e.Name, group, e.Sample)
		}
	}
	// service.md 6.1 and 6.2, and those of backups and teams.
	want := strings.Fields(
		`deployment.started deployment.completed deployment.failed domain.verified domain.failed ssl.issued ssl.renewed ssl.failed
		site.created site.updated site.deleted subscription.created subscription.renewed subscription.canceled subscription.expired payment.completed payment.failed
		deployment.created deployment.succeeded domain.added backup.completed backup.failed
		site.transferred member.added member.removed member.role_changed`,
	)
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
}

// validates says what a JSON Schema has against a text.
func validates(schema, text json.RawMessage) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("event.json", doc); err != nil {
		return err
	}
	compiled, err := c.Compile("event.json")
	if err != nil {
		return err
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(body)
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://example.test/hook":          "https://example.test/hook",
		"HTTPS://Example.TEST:443/A?b=c%20d": "https://example.test/A?b=c%20d",
		"https://münchen.test/ü":             "https://xn--mnchen-3ya.test/%C3%BC",
		"https://127.0.0.1:8443/x":           "https://127.0.0.1:8443/x",
		"https://[::1]:8443/x":               "https://[::1]:8443/x",
		"https://localhost":                  "https://localhost",
	} {
		got, err := checkURL(in)
		if err != nil || got != want {
			t.Errorf("checkURL(%q) = %q, %v; want %q", in, got, err, want)
		}
		if again, err := checkURL(got); err != nil || again != got {
			t.Errorf("%q isn't its own normal form: %q, %v", got, again, err)
		}
	}
	for _, in := range []string{
		"", "x", "http://example.test/", "ftp://example.test", "https://", "https:///x", "https:example.test",
		"//example.test", "https://u:p@example.test/", "https://u@example.test/", "https://example.test/#x",
		"https://example.test/#", "https://example.test./", "https://a..b/", "https://.a/", "https://exa mple.test/",
		"https://example.test/a b", "https://example.test/\n", "https://example.test\\@evil.test/", "https://0x7f.1/",
		"https://0x7f000001/", "https://2130706433/", "https://127.1/", "https://0177.0.0.1/", "https://1.2.3.4.5/",
		"https://[fe80::1%25eth0]/", "https://example.test:0/", "https://example.test:99999/",
		"https://example.test:/", "https://example.test:x/",
		"https://" + strings.Repeat("a", 64) + ".test/",
		"https://" + strings.Repeat("a.", 130) + "test/",
		"https://example.test/" + strings.Repeat("a", 2048),
		"javascript:alert(1)",
		"https://%65xample.test/",
	} {
		if got, err := checkURL(in); !fault.Is(err, fault.Invalid) {
			t.Errorf("checkURL(%q) = %q, %v; want an Invalid fault", in, got, err)
		} else if f := fault.As(err); strings.Contains(in, "u:p@") && f.Received != nil {
			t.Errorf("%q: the password is echoed", in)
		}
	}
}

// What checkURL accepts is https, has no user info, and is its own normal form.
func FuzzCheckURL(f *testing.F) {
	f.Add("https://example.test/hook?x=y")
	f.Add("https://u:p@ex/")
	f.Add("https://[::ffff:1.2.3.4]:444/")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := checkURL(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(got, "https://") || len(got) > maxURL {
			t.Fatalf("%q → %q", s, got)
		}
		if host, _, _ := strings.Cut(got[8:], "/"); strings.Contains(host, "@") {
			t.Fatalf("%q → %q", s, got)
		}
		if again, err := checkURL(got); err != nil || again != got {
			t.Fatalf("%q → %q → %q, %v", s, got, again, err)
		}
	})
}
