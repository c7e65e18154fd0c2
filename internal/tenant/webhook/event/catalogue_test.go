package event

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestCatalogue(t *testing.T) {
	t.Parallel()
	var names []string
	for _, e := range Catalogue(true) {
		if !sold(e.Name) { // only with billing
			names = append(names, e.Name)
		}
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
	// The events of service.md 6.1 and 6.2, and those of backups, teams and apps.
	want := strings.Fields(
		`deployment.started deployment.completed deployment.failed domain.verified domain.failed ssl.issued ssl.renewed ssl.failed
		site.created site.updated site.deleted subscription.created subscription.renewed subscription.canceled subscription.expired payment.completed payment.failed
		deployment.created deployment.succeeded domain.added backup.completed backup.failed
		site.transferred member.added member.removed member.role_changed app.authorized app.revoked usage.threshold`,
	)
	var without []string
	for _, e := range Catalogue(false) {
		without = append(without, e.Name)
	}
	if !slices.Equal(without, names) {
		t.Errorf("without billing: %v, want %v", without, names)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
}

// validates checks text against a JSON Schema.
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
