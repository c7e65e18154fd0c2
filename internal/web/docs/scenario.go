package docs

import (
	"cmp"
	"slices"
	"strings"
)

// Scenario is a sequence of calls that works as written, in this order, on a new installation.
// The reference shows its steps as examples, and tests run them in a shell (e2e/docs_test.go).
type Scenario struct {
	Name  string
	Steps []Step
}

// Step is one call. Its method and its path are those of the operation.
type Step struct {
	Operation string            // operationId
	Key       string            // the variable with the API key. Optional: SLIPWAY_KEY.
	Status    int               // that it answers with. Optional: the first one of the document.
	With      map[string]string // values of path parameters. Optional: absent ones are variables, see variable.
	Query     string            // Optional.
	Headers   []string          // more of them. Optional.
	Body      string            // JSON, in which $NAME stands for a variable. Optional.
	Upload    string            // a file that is sent instead of JSON. Optional.
	Output    string            // the file that the answer is written to. Optional.

	// Keep sets variables that later steps use: NAME=path.in.the.answer; a slash behind it means
	// what is after the last slash of the value. Optional.
	Keep []string
	// Until names what has to happen before the next step: a path below /api/v1, a field of its
	// answer and the value that this must have. Optional.
	Until [3]string
}

// variable names the variable that stands for a path parameter in examples.
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

// call is a step with what the document says of its operation.
type call struct {
	method, url, body, upload, output string
	headers                           []string
	key                               string // the variable with the API key, if it takes one
	json                              bool
}

// newCall completes a step. Without a step it is the plain call of the operation.
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

// Scenarios returns all of them.
func Scenarios() []Scenario { return append(slices.Clone(scenarios), billingScenario) }

// Example returns the first step that calls the operation of this name.
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
