package configure

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// runFields maps the fields of [site.Run] to form fields.
var runFields = map[string]string{
	"command":                    "run_command",
	"release":                    "run_release",
	"healthCheck.path":           "run_health_path",
	"healthCheck.timeoutSeconds": "run_health_timeout",
	"sleepAfterSeconds":          "run_sleep",
	"memoryMiB":                  "run_memory",
	"cpus":                       "run_cpus",
	"pids":                       "run_pids",
	"drainSeconds":               "run_drain",
	"requestMiB":                 "run_request_mib",
	"responseSeconds":            "run_response",
	"instances.min":              "run_instances_min",
	"instances.max":              "run_instances_max",
	"storage":                    "run_storage",
	"storageMiB":                 "run_storage_mib",
	"closed":                     "run_closed",
	"documentRoot":               "run_document_root",
	"frontController":            "run_front_controller",
	"passthru":                   "run_passthru",
	"ports":                      "run_ports",
}

// Run returns one of the owner's program settings as text; "" means as detected.
func (s settingsData) Run(name string) string { return runText(s.Site.Run, name) }

// runText returns a program setting as text, or "" if unset.
func runText(r site.Run, name string) string {
	number := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	text := func(v *string) string {
		if v == nil {
			return ""
		}
		return *v
	}
	var instances site.Instances
	if r.Instances != nil {
		instances = *r.Instances
	}
	var health site.HealthCheck
	if r.HealthCheck != nil {
		health = *r.HealthCheck
	}
	switch name {
	case "command":
		return text(r.Command)
	case "release":
		return text(r.Release)
	case "health_path":
		return text(health.Path)
	case "health_timeout":
		return number(health.TimeoutSeconds)
	case "sleep":
		return number(r.SleepAfterSeconds)
	case "memory":
		return number(r.MemoryMiB)
	case "pids":
		return number(r.Pids)
	case "drain":
		return number(r.DrainSeconds)
	case "instances_min":
		return number(instances.Min)
	case "instances_max":
		return number(instances.Max)
	case "storage_mib":
		return number(r.StorageMiB)
	case "response":
		return number(r.ResponseSeconds)
	case "request_mib":
		return number(r.RequestMiB)
	case "cpus":
		if r.CPUs != nil {
			return strconv.FormatFloat(*r.CPUs, 'f', -1, 64)
		}
	case "storage":
		if r.Storage != nil {
			return strings.Join(*r.Storage, "\n")
		}
	case "closed":
		if r.Closed != nil {
			return strings.Join(*r.Closed, "\n")
		}
	case "document_root":
		if r.DocumentRoot != nil {
			return cmp.Or(*r.DocumentRoot, ".")
		}
	case "front_controller":
		if r.FrontController != nil {
			return cmp.Or(*r.FrontController, "none")
		}
	case "passthru":
		if r.Passthru != nil {
			return strconv.FormatBool(*r.Passthru)
		}
	case "ports":
		if r.Ports != nil {
			var list []string
			for _, port := range *r.Ports {
				list = append(list, strconv.Itoa(port))
			}
			return strings.Join(list, ", ")
		}
	}
	return ""
}

// ExamplePorts returns the ports in the example call.
func (settingsData) ExamplePorts() []int { return []int{5432} }

// StorageLimit returns the site's storage limit in bytes.
func (s settingsData) StorageLimit() int64 {
	if n := s.Site.Run.StorageMiB; n != nil {
		return int64(*n) << 20
	}
	return 1 << 30
}

// runForm reads one of the forms of program settings. An empty field resets a setting to slipway.toml, detection or the
// default.
func runForm(q *shell.Request, part string) (edit func(*site.Run), err error) {
	var wrong error
	bad := func(name, details string) {
		if wrong == nil {
			wrong = shell.At(name, fault.New(fault.Invalid, "invalid_run", "Invalid value", details))
		}
	}
	text := func(name string) *string {
		if v := strings.TrimSpace(q.Value(name)); v != "" {
			return &v
		}
		return nil
	}
	number := func(name string) *int {
		v := text(name)
		if v == nil {
			return nil
		}
		n, err := strconv.Atoi(*v)
		if err != nil {
			bad(name, "a whole number")
		}
		return &n
	}
	switch part {
	case "run":
		command, release, path, timeout := text("run_command"), text("run_release"), text("run_health_path"), number("run_health_timeout")
		sleep, memory, pids := number("run_sleep"), number("run_memory"), number("run_pids")
		drain, request, response := number("run_drain"), number("run_request_mib"), number("run_response")
		least, most := number("run_instances_min"), number("run_instances_max")
		var cpus *float64
		if v := text("run_cpus"); v != nil {
			n, err := strconv.ParseFloat(*v, 64)
			if err != nil {
				bad("run_cpus", "a number, such as 0.5")
			}
			cpus = &n
		}
		edit = func(r *site.Run) {
			r.Command, r.Release, r.SleepAfterSeconds, r.MemoryMiB, r.Pids = command, release, sleep, memory, pids
			r.DrainSeconds, r.CPUs, r.RequestMiB, r.ResponseSeconds = drain, cpus, request, response
			r.Instances = nil
			if least != nil || most != nil {
				r.Instances = &site.Instances{Min: least, Max: most}
			}
			r.HealthCheck = nil
			if path != nil || timeout != nil {
				r.HealthCheck = &site.HealthCheck{Path: path, TimeoutSeconds: timeout}
			}
		}
	case "storage":
		folders := paths(q.Value("run_storage"))
		most := number("run_storage_mib")
		edit = func(r *site.Run) { r.Storage, r.StorageMiB = folders, most }
	case "closed":
		closed := paths(q.Value("run_closed"))
		edit = func(r *site.Run) { r.Closed = closed }
	case "php":
		root, front := text("run_document_root"), text("run_front_controller")
		if root != nil && (*root == "." || *root == "/") {
			*root = ""
		}
		if front != nil && *front == "none" {
			*front = ""
		}
		var passthru *bool
		switch v := q.Value("run_passthru"); v {
		case "":
		case "true", "false":
			on := v == "true"
			passthru = &on
		default:
			bad("run_passthru", "on, off or as detected")
		}
		edit = func(r *site.Run) { r.DocumentRoot, r.FrontController, r.Passthru = root, front, passthru }
	case "ports":
		var ports *[]int
		if list := strings.FieldsFunc(q.Value("run_ports"), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' }); len(
			list,
		) > 0 {
			numbers := make([]int, len(list))
			for i, v := range list {
				if numbers[i], err = strconv.Atoi(v); err != nil {
					bad("run_ports", "numbers with commas between them, such as 5432, 6379")
				}
			}
			ports = &numbers
		}
		edit = func(r *site.Run) { r.Ports = ports }
	}
	return edit, wrong
}

// paths returns the non-empty lines of a text, or nil.
func paths(text string) *[]string {
	list := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(list) == 0 {
		return nil
	}
	for i := range list {
		list[i] = strings.Trim(strings.TrimSpace(list[i]), "/")
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == "" })
	return &list
}

// atRun assigns a fault to a form field.
func atRun(err error) error {
	f := fault.As(err)
	if f == nil || f.Code != "invalid_run" {
		return err
	}
	name, ok := strings.CutPrefix(f.Message, "Invalid run.")
	if !ok || runFields[name] == "" {
		return err
	}
	shown := *f
	shown.Message = "Invalid value"
	return shell.At(runFields[name], &shown)
}

// restartSite restarts a site's program without dropping requests.
func (d *Pages) restartSite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		did := audit.Event{Action: "site.restarted", Subject: string(id)}
		s, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, id)
		if err != nil {
			return did, err
		}
		if d.Programs == nil {
			return did, &fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Code: "no_runtime"}
		}
		return did, d.Programs.RestartSiteTx(ctx, tx, s)
	})
	return shell.GoTo("/sites/"+string(id)+"/logs", "Restarting: the new instance takes over once it is healthy"), err
}
