package project

import (
	"cmp"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// RunSettings converts the settings of slipway.toml to a site's settings.
func RunSettings(r *framework.Run) (out site.Run) {
	if r == nil {
		return out
	}
	out = site.Run{
		SleepAfterSeconds: r.SleepAfterSeconds,
		MemoryMiB:         r.MemoryMiB,
		CPUs:              r.CPUs,
		Pids:              r.Pids,
		DrainSeconds:      r.DrainSeconds,
		Storage:           r.Storage,
		StorageMiB:        r.StorageMiB,
		ReadOnly:          r.ReadOnly,
		Closed:            r.Closed,
		DocumentRoot:      r.DocumentRoot,
		FrontController:   r.FrontController,
		Passthru:          r.Passthru,
		Ports:             r.Ports,
		RequestMiB:        r.RequestMiB,
		ResponseSeconds:   r.ResponseSeconds,
	}
	if r.HealthCheckPath != nil || r.HealthCheckTimeoutSeconds != nil {
		out.HealthCheck = &site.HealthCheck{Path: r.HealthCheckPath, TimeoutSeconds: r.HealthCheckTimeoutSeconds}
	}
	if r.MinInstances != nil || r.MaxInstances != nil {
		out.Instances = &site.Instances{Min: r.MinInstances, Max: r.MaxInstances}
	}
	return out
}

// CheckInstances refuses several instances for a plan that has storage or isn't Node.js.
func CheckInstances(r site.Run, plan framework.Plan) error {
	toml := RunSettings(plan.Run)
	most := mostInstances(toml.Instances, r.Instances)
	if most <= 1 || plan.Runtime == framework.Static {
		return nil
	}
	why := ""
	if plan.Runtime != framework.Node {
		why = "only Node.js runs several instances"
	} else if list := cmp.Or(r.Storage, toml.Storage); list != nil && len(*list) > 0 || plan.Start != nil && len(plan.Start.Storage) > 0 {
		why = "a program with storage runs one instance, which alone writes to it"
	}
	if why == "" {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_run", "Invalid run.instances.max", "1: "+why).Got(most)
}

// mostInstances returns the maximum of instances: above (the site's settings) takes precedence over below
// (slipway.toml).
func mostInstances(below, above *site.Instances) int {
	var i site.Instances
	for _, x := range []*site.Instances{below, above} {
		if x != nil {
			i.Min, i.Max = cmp.Or(x.Min, i.Min), cmp.Or(x.Max, i.Max)
		}
	}
	return max(i.Range())
}

// check refuses run settings of slipway.toml that are out of range.
func check(plan framework.Plan) error {
	err := site.CheckRun(RunSettings(plan.Run))
	if f := fault.As(err); f != nil {
		return fault.New(fault.Invalid, "invalid_slipway_toml", "slipway.toml can't be used",
			"[run] "+strings.TrimPrefix(f.Message, "Invalid run.")+": "+f.Details).Got(f.Received)
	}
	return err
}

// Commands returns the commands of a plan that run beside its start command.
func Commands(plan framework.Plan) (list []string) {
	if plan.Release != nil {
		list = append(list, plan.Release.String())
	}
	for _, p := range plan.Processes {
		list = append(list, p.Command.String())
	}
	for _, c := range plan.Crons {
		list = append(list, c.Command.String())
	}
	return list
}

// StartedBy returns the log line that says what starts the program.
func StartedBy(plan framework.Plan) string {
	if command := plan.Start.Command.String(); command != "" {
		return command
	}
	return "PHP-FPM"
}

// Storage returns the storage folders of the site's settings, or else of slipway.toml.
func Storage(s site.Site, plan framework.Plan) []string {
	switch {
	case s.Run.Storage != nil:
		return *s.Run.Storage
	case plan.Run != nil && plan.Run.Storage != nil:
		return *plan.Run.Storage
	}
	return nil
}
