package configure

import (
	"strconv"

	"slipway/internal/backup/backup"
	"slipway/internal/build/rules"
	"slipway/internal/deploy/pushes"
)

// chosen returns the effective value of a setting that always has one; a value other than the default was set here.
func chosen(now, standard, words string) effective {
	return effective{Set: now != standard, Below: words, From: "default", Shown: true}
}

// Applies returns the effective value of a serving setting and its source.
func (d rulesData) Applies(name string) effective {
	switch name {
	case "protection":
		return chosen(d.Serving.Protection, "none", "Off")
	case "sign_in":
		return chosen(d.Serving.SignIn, "none", "Off")
	case "access_log":
		return chosen(d.Serving.AccessLog, "truncated", "With truncated addresses")
	}
	now := map[string]string{"single_page": d.Serving.SinglePage, "trailing_slash": d.Serving.TrailingSlash}[name]
	e := effective{Set: now != "auto"}
	switch {
	case !d.Published:
	case name == "single_page" && d.Fallback != "":
		e.Below, e.From = "On, "+d.Fallback, "from the live deployment"
	case name == "single_page":
		e.Below, e.From = "Off", "from the live deployment"
	case d.Slash == rules.Always:
		e.Below, e.From = "Always", "from the deployed rules"
	case d.Slash == rules.Never:
		e.Below, e.From = "Never", "from the deployed rules"
	default:
		e.Below, e.From = "As the files are named", "default"
	}
	return e
}

// Applies returns the effective value of a Git setting and its source.
func (g gitData) Applies(name string) effective {
	s := g.Settings
	switch name {
	case "auto_deploy":
		return effective{Set: !s.AutoDeploy, Below: "On", From: "default", Shown: true}
	case "previews":
		return chosen(string(s.Previews), string(pushes.Off), "Off")
	case "preview_days":
		return chosen(strconv.Itoa(s.PreviewDays), "30", "30")
	case "forks":
		return chosen(s.Forks, pushes.Approval, "Build after approval")
	case "preview_database":
		return chosen(s.PreviewDatabase, pushes.Empty, "Empty")
	case "deleted_branches":
		return chosen(s.DeletedBranches, pushes.End, "End its preview")
	case "tags":
		return chosen(s.Tags, pushes.Ignore, "Don't deploy")
	case "poll_minutes":
		return chosen(strconv.Itoa(s.PollMinutes), "0", "Off")
	}
	return effective{Set: len(s.Watch) > 0, Below: "All files", From: "default"}
}

// Applies returns the effective value of a backup setting and its source.
func (d backupsData) Applies(name string) effective {
	standard, s := backup.DefaultSchedule, d.Schedule
	switch name {
	case "every":
		return chosen(s.Every, standard.Every, "Never")
	case "at":
		return chosen(s.At, standard.At, standard.At+" UTC")
	case "daily":
		return chosen(strconv.Itoa(s.Keep.Daily), strconv.Itoa(standard.Keep.Daily), strconv.Itoa(standard.Keep.Daily))
	case "weekly":
		return chosen(strconv.Itoa(s.Keep.Weekly), strconv.Itoa(standard.Keep.Weekly), strconv.Itoa(standard.Keep.Weekly))
	}
	return chosen(strconv.Itoa(s.Keep.Monthly), strconv.Itoa(standard.Keep.Monthly), strconv.Itoa(standard.Keep.Monthly))
}

// Applies returns what a domain does and why.
func (d domainData) Applies() effective {
	e := effective{Set: d.Dom.RedirectTo != "" || d.Dom.Primary}
	e.Below, e.From = "Serves the site", "default"
	return e
}
