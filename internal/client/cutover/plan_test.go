package cutover

import (
	"encoding/json"
	"testing"
)

// The TTL advice is computed from the records: how far to lower it and how long to wait.
func TestTTLAdvice(t *testing.T) {
	t.Parallel()
	for records, want := range map[string]string{
		`[{"current": ["192.0.2.1"], "ttl": 3600}]`:                                            "Lower the TTL of these records from 3600 to 60 seconds, and wait 60 minutes: that long others keep the old one.",
		`[{"current": ["192.0.2.1"], "ttl": 300}, {"current": ["2001:db8::1"], "ttl": 86401}]`: "Lower the TTL of these records from 86401 to 60 seconds, and wait 25 hours: that long others keep the old one.",
		`[{"current": ["192.0.2.1"], "ttl": 60}]`:                                              "The TTL is low: visitors follow within 60 seconds. If you have just lowered it, wait as long as the old TTL was.",
		`[{"current": ["192.0.2.1"], "ttl": 60}, {"current": ["192.0.2.2"]}]`:                  "Lower the TTL of these records to 60 seconds, and wait as long as the old TTL was.",
		`[{"current": ["192.0.2.1"]}]`:                                                         "Lower the TTL of these records to 60 seconds, and wait as long as the old TTL was.",
		`[{"current": []}]`:                                                                    "There is no TTL to lower: the records are new.",
	} {
		var d Domain
		if err := json.Unmarshal([]byte(`{"dns": `+records+`}`), &d); err != nil {
			t.Fatal(err)
		}
		if got := d.lower(); got != want {
			t.Errorf("%s: %s", records, got)
		}
	}
}

// The plan says when the certificate will be issued and how to get it before the change.
func TestCertificate(t *testing.T) {
	t.Parallel()
	const record = `"challenge": {"type": "CNAME", "name": "_acme-challenge.a.test", "value": "x.acme.test", "status": `
	for text, want := range map[string]string{
		`{"status": "active", "sslStatus": "pending"}`:                                                                         "the domain is active here already; certificate: pending",
		`{"status": "pending", "sslStatus": "pending", "challenge": null}`:                                                     "the certificate is issued once the records point here",
		`{"status": "pending", "sslStatus": "pending", ` + record + `"pending"}}`:                                              "certificate: issued once the records point here, or before that with the record CNAME _acme-challenge.a.test: x.acme.test",
		`{"status": "pending", "sslStatus": "pending", ` + record + `"valid"}}`:                                                "certificate: being issued",
		`{"status": "pending", "sslStatus": "failed", "certificate": {"lastError": "CAA forbids it"}, ` + record + `"valid"}}`: "certificate: CAA forbids it",
		`{"status": "pending", "sslStatus": "active", ` + record + `"valid"}}`:                                                 "certificate: ready",
	} {
		var d Domain
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if got := d.certificate(); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
