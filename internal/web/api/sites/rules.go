package sites

import (
	"context"
	"strings"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

func (a *API) ruleRoutes() {
	contract.Ask(a.API, contract.Route{
		Path:    "/sites/{id}/rules/test",
		ID:      "testSiteRules",
		Tag:     "Sites",
		Summary: "Test redirects and headers",
		Scope:   account.SitesRead,
		Noun:    "rule test",
		Doc: "Returns the rule that would answer a request, and its response, without sending the request. " +
			"With `rules`, unpublished rule files are tested instead of the published ones.",
	}, a.testRules)
}

type testRulesIn struct {
	contract.ByID[site.ID]
	Body struct {
		Path         string            `json:"path" maxLength:"4096" doc:"Path and query of the request, or a full URL." example:"/old/page?a=1"`
		Headers      map[string]string `json:"headers,omitempty" doc:"Request headers that rules depend on: Host, Accept-Language and Cookie."`
		Country      string            `json:"country,omitempty" pattern:"^([A-Za-z]{2})?$" patternDescription:"a country code of two letters, such as DE" doc:"ISO 3166 code of the visitor's country, for rules with a country condition." example:"DE"`
		DeploymentID string            `json:"deploymentId,omitempty" doc:"Test against this deployment. Default: the live one."`
		Rules        map[string]string `json:"rules,omitempty" doc:"Content of _redirects, _headers, slipway.toml, netlify.toml or vercel.json by name, at most 64 KiB each."`
	}
}

type ruleAnswerBody struct {
	Action       string        `json:"action" enum:"file,rewrite,redirect,proxy,error,password" doc:"The result: a file, a rewrite to another file, a redirect, a proxied request, an error page, or a password prompt."`
	Status       int           `json:"status"`
	Rule         *string       `json:"rule" doc:"File and line of the matching redirect rule, such as _redirects:3, or null."`
	Location     *string       `json:"location" doc:"The target of a redirect or proxied request, or null."`
	File         *string       `json:"file" doc:"The file of the release that is served, or null."`
	Headers      []ruleHeader  `json:"headers" doc:"Headers set by rules."`
	Removed      []string      `json:"removed" doc:"Names of headers removed by rules."`
	HeaderRules  []string      `json:"headerRules" doc:"File and line of the header rules that apply."`
	Vary         []string      `json:"vary" doc:"Request headers that the response depends on."`
	ByCountry    bool          `json:"byCountry" doc:"Whether the response depends on the visitor's country."`
	Problems     []ruleProblem `json:"problems" doc:"Rules that would be ignored, with the reason."`
	DeploymentID deployment.ID `json:"deploymentId"`
}

type ruleHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type ruleProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line" doc:"Line number from 1. 0: the whole file."`
	Message string `json:"message"`
}

func (a *API) testRules(ctx context.Context, c account.Caller, in *testRulesIn) (ruleAnswerBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return ruleAnswerBody{}, err
	}
	t := ruletest.Trial{Path: in.Body.Path, Country: in.Body.Country, Files: in.Body.Rules}
	if in.Body.DeploymentID != "" {
		t.Deployment = deployment.ParseID(in.Body.DeploymentID)
	}
	for name, value := range in.Body.Headers {
		if len(value) > maxTestHeader {
			return ruleAnswerBody{}, fault.New(fault.Invalid, "invalid_headers", "Invalid headers",
				"a header may have at most 8192 bytes")
		}
		switch strings.ToLower(name) {
		case "host":
			t.Host, _, _ = strings.Cut(value, ":")
		case "accept-language":
			t.Language = value
		case "cookie":
			t.Cookie = value
		}
	}
	got, err := a.Rules.Try(ctx, c.Owner, in.ID, t)
	if err != nil {
		return ruleAnswerBody{}, err
	}
	b := ruleAnswerBody{
		Action:       got.Action,
		Status:       got.Status,
		Rule:         contract.Some(got.Rule),
		Location:     contract.Some(got.Location),
		File:         contract.Some(got.File),
		Headers:      []ruleHeader{},
		Removed:      append([]string{}, got.Unset...),
		HeaderRules:  append([]string{}, got.HeaderRules...),
		Vary:         append([]string{}, got.Vary...),
		ByCountry:    got.ByCountry,
		Problems:     []ruleProblem{},
		DeploymentID: got.Deployment,
	}
	for _, f := range got.Set {
		b.Headers = append(b.Headers, ruleHeader{f.Name, f.Value})
	}
	for _, p := range got.Problems {
		b.Problems = append(b.Problems, ruleProblem{p.File, p.Line, p.Text})
	}
	return b, nil
}

const maxTestHeader = 8 << 10
