package provider_test

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A site must be created, and the next plan must be empty. It must be changed in place, changes from elsewhere must be
// detected, and it must be importable by its id and by its slug. It must be deleted once it is no longer protected.
func TestSite(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	server := "http://" + w.Listen
	config := attrs{
		"name": "Harbor", "tags": []string{"blue", "air"}, "build": attrs{"command": "make"},
		"run":     attrs{"cpus": 0.3, "memory_mib": 256, "health_check": attrs{"path": "/up"}, "ports": []int{5432}},
		"backups": attrs{"every": "weekly", "keep": attrs{"weekly": 3}},
	}
	c := open(t, server, key)
	state := c.apply("site", nil, config)
	id := c.text("site", state, "id")
	if c.text("site", state, "slug") != "harbor" || c.text("site", state, "type") != "static" || c.text("site", state, "source") != "upload" {
		t.Errorf("made %v", c.values("site", state))
	}
	next := func() *core { return open(t, server, key) }

	c = next()
	state = c.refresh("site", state)
	if changes := c.changes("site", state, config); changes != nil {
		t.Errorf("after it was made, a plan changes %v", changes)
	}
	config["name"], config["build"] = "Harbour", attrs{"command": "", "output": "dist"}
	state = c.apply("site", state, config)
	var now struct {
		Name  string
		Build map[string]string
		Tags  []string
	}
	get := func() {
		t.Helper()
		now.Build = nil
		if err := w.Call(t.Context(), key, "GET", "/sites/"+id, nil, &now); err != nil {
			t.Fatal(err)
		}
	}
	get()
	if now.Name != "Harbour" || !maps.Equal(now.Build, map[string]string{"output": "dist"}) || len(now.Tags) != 2 {
		t.Errorf("changed to %+v", now)
	}
	c = next()
	state = c.refresh("site", state)
	if changes := c.changes("site", state, config); changes != nil {
		t.Errorf("after it was changed, a plan changes %v", changes)
	}

	if err := w.Call(t.Context(), key, "PATCH", "/sites/"+id, map[string]any{"name": "Drifted"}, nil); err != nil {
		t.Fatal(err)
	}
	c = next()
	state = c.refresh("site", state)
	if changes := c.changes("site", state, config); !slices.Contains(changes, "name") {
		t.Errorf("a plan doesn't see that the name was changed elsewhere: %v", changes)
	}
	state = c.apply("site", state, config)
	get()
	if now.Name != "Harbour" {
		t.Errorf("the site's name is still %s", now.Name)
	}

	config["build"] = attrs{"output": "dist"} // the empty command was a reset, which an import cannot know of
	for _, by := range []string{id, "harbor"} {
		c = next()
		imported := c.take("site", by)
		if changes := c.changes("site", imported, config); changes != nil {
			t.Errorf("imported by %s, a plan changes %v", by, changes)
		}
	}

	if said := c.destroy("site", state); !strings.Contains(said, "protected") {
		t.Errorf("a protected site: %s", said)
	}
	get()
	config["deletion_protection"] = false
	state = c.apply("site", state, config)
	if said := c.destroy("site", state); said != "" {
		t.Errorf("deleting it: %s", said)
	}
	if c = next(); c.refresh("site", state) != nil {
		t.Error("it is still there")
	}
	if said := c.destroy("site", state); said != "" { // deleting it again must succeed
		t.Errorf("deleting what is gone: %s", said)
	}
}

// A variable's secret value must reach the server, but must be in no state. It must be sent again when its version
// rises, and not before.
func TestEnv(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	server := "http://" + w.Listen
	c := open(t, server, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	const canary = "hunter2-canary"

	plain := attrs{"site_id": site, "key": "GREETING", "value": "hello", "targets": []string{"build"}}
	state := c.apply("env", nil, plain)
	hidden := attrs{"site_id": site, "key": "TOKEN", "value_wo": canary, "value_wo_version": 1}
	secret := c.apply("env", nil, hidden)
	if bytes.Contains(secret.MsgPack, []byte(canary)) {
		t.Error("the secret is in the state")
	}
	if planned, _ := c.plan("env", nil, hidden); bytes.Contains(planned.PlannedState.MsgPack, []byte(canary)) {
		t.Error("the secret is in the plan")
	}
	var listed struct {
		Data []struct {
			ID, Key   string
			Value     *string
			Secret    bool
			Target    []string
			UpdatedAt string
		}
	}
	env := func() {
		t.Helper()
		listed.Data = nil
		if err := w.Call(t.Context(), key, "GET", "/sites/"+site+"/env", nil, &listed); err != nil {
			t.Fatal(err)
		}
	}
	env()
	if d := listed.Data; len(d) != 2 || *d[0].Value != "hello" || d[0].Secret || len(d[0].Target) != 1 || !d[1].Secret {
		t.Fatalf("the site has %+v", listed.Data)
	}
	for name, config := range map[string]attrs{"GREETING": plain, "TOKEN": hidden} {
		c = open(t, server, key)
		s := state
		if name == "TOKEN" {
			s = secret
		}
		if changes := c.changes("env", c.refresh("env", s), config); changes != nil {
			t.Errorf("%s: after it was made, a plan changes %v", name, changes)
		}
	}
	// Another value must change nothing before its version rises.
	was := listed.Data[1].UpdatedAt
	hidden["value_wo"] = canary + "-2"
	if changes := c.changes("env", secret, hidden); changes != nil {
		t.Errorf("a plan changes %v", changes)
	}
	hidden["value_wo_version"] = 2
	secret = c.apply("env", secret, hidden)
	plain["value"] = "good evening"
	state = c.apply("env", state, plain)
	env()
	if listed.Data[1].UpdatedAt == was || *listed.Data[0].Value != "good evening" {
		t.Errorf("after the change: %+v", listed.Data)
	}

	// A second variable with the same key must not replace the first one silently.
	planned, encoded := c.plan("env", nil, plain)
	if said := c.create("env", planned, encoded); !strings.Contains(said, "import it as "+site+"/env_") {
		t.Errorf("a variable that exists: %s", said)
	}
	// Each imported variable must be as it was.
	for _, of := range []struct {
		key    string
		config attrs
	}{{"GREETING", plain}, {"TOKEN", attrs{"site_id": site, "key": "TOKEN", "value_wo": "", "value_wo_version": 0}}} {
		c = open(t, server, key)
		if changes := c.changes("env", c.take("env", "harbor/"+of.key), of.config); changes != nil {
			t.Errorf("%s: imported, a plan changes %v", of.key, changes)
		}
	}
	// The variables are changed and deleted elsewhere.
	if err := w.Call(t.Context(), key, "PATCH", "/sites/"+site+"/env/GREETING", map[string]any{"value": "bye"}, nil); err != nil {
		t.Fatal(err)
	}
	c = open(t, server, key)
	if state = c.refresh("env", state); !slices.Contains(c.changes("env", state, plain), "value") {
		t.Error("a plan doesn't see that the value was changed elsewhere")
	}
	if said := c.destroy("env", secret); said != "" {
		t.Error(said)
	}
	if err := w.Call(t.Context(), key, http.MethodDelete, "/sites/"+site+"/env/GREETING", nil, nil); err != nil {
		t.Fatal(err)
	}
	if c = open(t, server, key); c.refresh("env", state) != nil || c.refresh("env", secret) != nil {
		t.Error("they are still there")
	}
}
