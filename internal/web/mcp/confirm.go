package mcp

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
)

// ConfirmPath is the dashboard's path for confirming calls, followed by the confirmation's ID.
const ConfirmPath = "/confirmations/"

// confirmed returns a tool that requires a person's confirmation of every call, on a page that the model can't submit.
// The call takes effect when it is repeated with the same arguments after approval. shows is the API path that
// describes the call's subject; callers who can't read it get an error instead of a confirmation.
func confirmed(name string, scope account.Scope, title, about, shows string, do work, params ...param) *tool {
	return entry(
		name, scope, replacing, title, about+" The user confirms each call on a page of the dashboard.",
		func(ctx context.Context, c *call, args map[string]any) (any, error) {
			path, _, _ := fill(shows, args)
			var subject map[string]any
			if err := c.sendFor(ctx, "GET", path, nil, nil, "", &subject); err != nil {
				return nil, err
			}
			given, err := encode(args) // map keys are sorted
			if err != nil {
				return nil, err
			}
			got, err := c.confirmations.Take(ctx, c.caller, confirmation.Call{
				Tool: name, Title: title, Arguments: given, About: describe(subject, c.siteOf(ctx, subject), args), Addr: c.addr,
			})
			if no := fault.As(err); no != nil {
				return nil, &apiError{Message: no.Message, Details: no.Details, Code: no.Code}
			}
			if err != nil {
				return nil, err
			}
			switch got.Decision {
			case confirmation.Approved:
				// If the API's response is lost, repeating the confirmation doesn't repeat the change.
				args = maps.Clone(args)
				args[once.name] = string(got.ID)
				return do(ctx, c, args)
			case confirmation.Declined:
				return nil, &apiError{Message: "The user declined this call", Details: "don't repeat it", Code: "confirmation_declined"}
			}
			at := c.base + ConfirmPath + string(got.ID)
			return nil, &apiError{
				Message: "The user must confirm this call", Code: "confirmation_required", Confirm: at,
				Details: "Nothing was changed. Ask the user to open " + at +
					" and to approve within 10 minutes. Then call the tool again with the same arguments.",
			}
		}, params...,
	)
}

// siteOf returns the site of a subject, or nil if the caller can't read it.
func (c *call) siteOf(ctx context.Context, subject map[string]any) map[string]any {
	which, _ := subject["siteId"].(string)
	if which == "" {
		return nil
	}
	var site map[string]any
	if err := c.sendFor(ctx, "GET", "/sites/"+url.PathEscape(which), nil, nil, "", &site); err != nil {
		return nil
	}
	return site
}

// described lists the API fields that tell people what a call is about.
var described = []struct{ field, label string }{
	{"name", "Name"}, {"subdomain", "Subdomain"}, {"siteId", "Site id"}, {"note", "Note"}, {"createdAt", "Created"},
}

// describe returns the lines shown before confirmation: the call's subject, then every argument.
func describe(subject, site, args map[string]any) (lines []confirmation.Line) {
	add := func(label string, value any) {
		if text, ok := value.(string); ok && text != "" {
			lines = append(lines, confirmation.Line{Label: label, Value: clean(text, maxTrusted)})
		}
	}
	add("Site", site["name"])
	for _, d := range described {
		add(d.label, subject[d.field])
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		text, ok := args[name].(string)
		if !ok {
			b, _ := encode(args[name]) // decoded from JSON before
			text = string(b)
		}
		lines = append(lines, confirmation.Line{Label: "Argument " + name, Value: inSight(text)})
	}
	return lines
}

// inSight formats an argument completely, and quotes it if it contains invisible characters.
func inSight(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
