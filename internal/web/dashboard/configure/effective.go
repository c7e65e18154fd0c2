package configure

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// effective is the effective value of a setting: the site's own, or the one of the layer below.
type effective struct {
	Set   bool   // whether the site has its own value
	Below string // the value without it; empty: none or unknown
	Shown bool   // whether the control shows the effective value
	From  string // source: slipway.toml, detected: Next.js, default; empty: unknown until a deployment
}

// planOf returns the plan of the live deployment, or of the newest. Sites without deployments have none.
func (d *Pages) planOf(ctx context.Context, q *shell.Request, head sites.SiteHead) (plan framework.Plan, err error) {
	x := head.Latest
	if id := head.Site.LiveDeployment; id != "" && (x == nil || x.ID != id) {
		live, err := d.Deployments.Get(ctx, q.Caller.Owner, id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return plan, err
		}
		if err == nil {
			x = &live
		}
	}
	if x == nil || len(x.Plan) == 0 {
		return plan, nil
	}
	err = json.Unmarshal(x.Plan, &plan)
	return plan, err
}

// said describes the source of a plan's field. A field from the site's settings at that time is omitted, since the
// current setting applies or was removed.
func (s settingsData) said(field, value string) (string, string) {
	switch source := s.Plan.Sources[field]; source {
	case "", "site settings":
		return "", ""
	case "detection":
		return value, "detected: " + s.Plan.Name
	default:
		return value, "from " + source
	}
}

// BuildSetting returns the effective value of a build setting.
func (s settingsData) BuildSetting(name string) (e effective) {
	line := func(list []framework.Command) string {
		var out []string
		for _, c := range list {
			out = append(out, c.String())
		}
		return strings.Join(out, " && ")
	}
	e.Set = s.Build(name) != ""
	switch name {
	case "framework":
		e.Set = s.Site.Framework != ""
		e.Below, e.From = s.said("framework", s.Plan.Name)
		if e.From != "" && s.Plan.Sources["framework"] == "detection" {
			e.From = "detected"
		}
	case "root":
		root := s.Plan.Root
		if root == "" {
			root = "/"
		}
		e.Below, e.From = s.said("root", root)
	case "output":
		e.Below, e.From = s.said("output", s.Plan.Output)
	case "install":
		e.Below, e.From = s.said("install", line(s.Plan.Install))
	case "command":
		e.Below, e.From = s.said("build", line(s.Plan.Build))
	case "node":
		e.Below, e.From = s.said("node", s.Plan.Node)
		if e.From == "" && s.Plan.Node == "" && s.Plan.Manager != "" {
			e.From = "default"
		}
	}
	return e
}

// runDefaults holds the defaults of program settings.
var runDefaults = map[string]string{
	"health_path": "/", "health_timeout": "60", "sleep": "900", "drain": "30", "memory": "512", "cpus": "1", "pids": "512",
	"response":      "100",
	"instances_min": "1", "instances_max": "As many as the minimum",
	"storage_mib": strconv.Itoa(site.DefaultStorage >> 20), "request_mib": "No limit", "release": "None", "ports": "None", "closed": "None",
}

// RunSetting returns the effective value of a program setting.
func (s settingsData) RunSetting(name string) (e effective) {
	e.Set = s.Run(name) != ""
	if toml := runText(s.TOML, name); toml != "" {
		e.Below, e.From = strings.ReplaceAll(toml, "\n", ", "), "from slipway.toml"
		return e
	}
	switch {
	case name == "command" && s.Plan.Run != nil && s.Plan.Run.Command != nil:
		e.Below, e.From = *s.Plan.Run.Command, "from slipway.toml"
	case name == "command" && !e.Set && s.Plan.Start != nil:
		e.Below = s.Plan.Start.Command.String()
		if e.Below != "" {
			e.From = "detected: " + s.Plan.Name
		}
	case name == "release" && !e.Set && s.Plan.Release != nil:
		e.Below, e.From = s.Plan.Release.String(), "from the repository"
	case name == "document_root" && !e.Set && s.Plan.Start != nil && s.Plan.Runtime == framework.PHP:
		e.Below, e.From = cmp.Or(s.Plan.Start.DocumentRoot, "."), "detected: "+s.Plan.Name
	case name == "front_controller" && !e.Set && s.Plan.Start != nil && s.Plan.Runtime == framework.PHP:
		e.Below, e.From = cmp.Or(s.Plan.Start.FrontController, "none"), "detected: "+s.Plan.Name
	case name == "storage" && s.Plan.Start != nil && len(s.Plan.Start.Storage) > 0:
		e.Below, e.From = strings.Join(s.Plan.Start.Storage, ", "), "detected: "+s.Plan.Name
	case runDefaults[name] != "":
		e.Below, e.From = runDefaults[name], "default"
	}
	return e
}

// Advanced reports whether any setting in the collapsed section has its own value.
func (s settingsData) Advanced() bool {
	for _, name := range []string{"health_timeout", "drain", "pids", "response", "request_mib", "instances_min", "instances_max"} {
		if s.Run(name) != "" {
			return true
		}
	}
	return false
}
