package docs

import (
	"cmp"
	"slices"
	"strings"
)

// Scenario is a sequence of calls that works as shown on a new installation. The reference shows its steps as examples,
// and e2e/docs_test.go runs them in a shell.
type Scenario struct {
	Name  string
	Steps []Step
}

// Step is a call. The operation determines its method and path.
type Step struct {
	Operation string            // operationId
	Key       string            // variable with the API key. Optional: defaults to SLIPWAY_KEY.
	Status    int               // expected status. Optional: defaults to the document's first.
	With      map[string]string // path parameters. Optional: missing ones are variables, see variable.
	Query     string            // Optional.
	Headers   []string          // additional headers. Optional.
	Body      string            // JSON in which $NAME is replaced by a variable. Optional.
	Upload    string            // file to send instead of JSON. Optional.
	Output    string            // file for the response. Optional.

	// Keep sets variables for later steps: NAME=path.in.the.response. A final slash takes the part of the value after
	// its last slash. Optional.
	Keep []string
	// Until is a condition to wait for before the next step: a path below /api/v1, a field of its response, and the
	// field's expected value. Optional.
	Until [3]string
}

// variable returns the variable for a path parameter in examples.
func variable(path, name string) string {
	switch name {
	case "id":
		noun := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")[0]
		return map[string]string{
			"sites": "SITE_ID", "deployments": "DEPLOYMENT_ID", "domains": "DOMAIN_ID", "hooks": "HOOK_ID", "webhooks": "WEBHOOK_ID",
			"webhook-listeners": "LISTENER_ID", "keys": "KEY_ID", "backups": "BACKUP_ID", "databases": "DATABASE_ID",
			"operations": "OPERATION_ID", "notifications": "CHANNEL_ID", "git": "CONNECTION_ID", "teams": "TEAM_ID", "transfers": "TRANSFER_ID",
			"uploads": "UPLOAD_ID", "invoices": "INVOICE_ID",
			"oauth": map[bool]string{true: "GRANT_ID", false: "APP_ID"}[strings.Contains(path, "/grants/")],
		}[noun]
	case "hook", "delivery", "invitation", "provider", "domain", "identity":
		return strings.ToUpper(name) + "_ID"
	case "userId":
		return "MEMBER_ID"
	case "sha256":
		return "DIGEST"
	case "number":
		return "PULL_NUMBER"
	}
	return strings.ToUpper(name)
}

// call is a step completed from its operation.
type call struct {
	method, url, body, upload, output string
	headers                           []string
	key                               string // variable with the API key, if needed
	json                              bool
}

// newCall completes a step. A zero step is the plain call of the operation.
func newCall(o Operation, s Step, base string) call {
	path := placeholders.ReplaceAllStringFunc(o.Path, func(p string) string {
		name := p[1 : len(p)-1]
		if v := s.With[name]; v != "" {
			return v
		}
		return "$" + variable(o.Path, name)
	})
	if s.Query != "" {
		path += "?" + s.Query
	}
	c := call{
		method: o.Method, url: base + path, headers: s.Headers, body: strings.TrimSpace(s.Body), upload: s.Upload, output: s.Output,
		json: s.Body != "",
	}
	if !o.Hook && !o.Open {
		c.key = cmp.Or(s.Key, "SLIPWAY_KEY")
	}
	return c
}

// Scenarios returns every scenario.
func Scenarios() []Scenario { return append(slices.Clone(scenarios), billingScenario) }

// Example returns the first step that calls the operation.
func Example(name string) (Step, bool) {
	for _, s := range Scenarios() {
		for _, step := range s.Steps {
			if step.Operation == name {
				return step, true
			}
		}
	}
	return Step{}, false
}
