package wordpress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Manage says what is done to plugins or themes that are installed.
type Manage struct {
	Kind   string // Plugin or Theme
	Action string // one of the actions below
	Slugs  []string
}

// What is managed.
const (
	Plugin = "plugin"
	Theme  = "theme"
)

// What is done to plugins and themes.
const (
	Activate          = "activate"
	Deactivate        = "deactivate" // plugins alone
	Delete            = "delete"
	EnableAutoUpdate  = "enable_auto_update"
	DisableAutoUpdate = "disable_auto_update"
)

// Actions are what can be done to a kind.
func Actions(kind string) []string {
	if kind == Theme {
		return []string{Activate, Delete, EnableAutoUpdate, DisableAutoUpdate}
	}
	return []string{Activate, Deactivate, Delete, EnableAutoUpdate, DisableAutoUpdate}
}

// actionWords say what happens while an action runs, and what has happened after it.
var actionWords = map[string][2]string{
	Activate:          {"Activating", "Activated"},
	Deactivate:        {"Deactivating", "Deactivated"},
	Delete:            {"Deleting", "Deleted"},
	EnableAutoUpdate:  {"Enabling automatic updates of", "Automatic updates enabled:"},
	DisableAutoUpdate: {"Disabling automatic updates of", "Automatic updates disabled:"},
}

// Words describe the change for the audit log.
func (m Manage) Words() string {
	return strings.ReplaceAll(m.Action, "_", " ") + ": " + m.Kind + " " + strings.Join(m.Slugs, ", ")
}

// ManageTx begins to change plugins or themes of the owner's site.
func (w *WordPress) ManageTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, m Manage) (operation.Operation, error) {
	if err := w.liveTx(ctx, tx, owner, id); err != nil {
		return operation.Operation{}, err
	}
	if !slices.Contains(Actions(m.Kind), m.Action) {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_action", "Invalid action",
			"action must be one of "+strings.Join(Actions(m.Kind), ", ")).Got(text.Clip(m.Action, 100))
	}
	most := maxSlugs
	if m.Kind == Theme && m.Action == Activate {
		most = 1
	}
	slices.Sort(m.Slugs)
	m.Slugs = slices.Compact(m.Slugs)
	if len(m.Slugs) == 0 || len(m.Slugs) > most {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_action", "Invalid number of "+m.Kind+"s",
			fmt.Sprintf("name 1 to %d", most))
	}
	if err := checkSlugs(m.Slugs); err != nil {
		return operation.Operation{}, err
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindManage, Manage: &m})
}

// liveTx makes sure that the owner's site is a WordPress that runs, and locks it.
func (w *WordPress) liveTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) error {
	s, err := w.c.Sites.LockTx(ctx, tx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err == nil {
		_, err = w.get(ctx, tx, id)
	}
	return err
}

func checkSlugs(slugs []string) error {
	for _, slug := range slugs {
		if !slugForm.MatchString(slug) {
			return fault.New(fault.Invalid, "invalid_update", "Invalid plugin or theme",
				"a slug is the name of its folder").Got(text.Clip(slug, 100))
		}
	}
	return nil
}

// managed is what a site's WordPress says after a change.
type managed struct {
	Done     []string
	Previous string // the theme that was active
	Refused  []struct{ Slug, Error string }
}

// manage is one call of the job of a change of plugins or themes. A deletion has a backup of before, to which an
// interrupted one goes back; the others can be repeated.
func (r *run) manage(ctx context.Context) error {
	m := r.x.Manage
	switch {
	case r.step.At == atBack:
		return r.goBack(ctx, "")
	case m.Action == Delete && r.step.At == atChange:
		return r.goBack(ctx, interrupted)
	case m.Action == Delete:
		ready, err := r.backUp(ctx, r.x.Site, &r.step.Backup, "Before plugins or themes were deleted")
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
	}
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	if m.Action == Activate && r.step.Before == nil {
		paths, err := r.pagesOf(ctx, s)
		if err != nil {
			return err
		}
		if r.step.Before, err = r.look(ctx, s, paths); err != nil {
			return err
		}
		r.step.Since = db.Now()
	}
	at := atApply
	if m.Action == Delete {
		if r.step.Schema, err = r.schema(ctx, s); err != nil {
			return err
		}
		r.step.Since, at = db.Now(), atChange
	}
	names := strings.Join(m.Slugs, ", ")
	if err := r.to(ctx, at, 0.4, actionWords[m.Action][0]+" "+text.Clip(names, 200)); err != nil {
		return err
	}
	out, err := r.apply(ctx, s, m, m.Action == Deactivate)
	if err != nil {
		return err
	}
	if len(out.Refused) > 0 {
		x := out.Refused[0]
		why := fmt.Sprintf("%s was not changed: %s", text.Clip(x.Slug, 100), strings.TrimSuffix(text.Clip(x.Error, 300), "."))
		if len(out.Done) > 0 {
			why += ". Changed before it: " + text.Clip(strings.Join(out.Done, ", "), 300)
		}
		if m.Action == Delete && len(out.Done) > 0 {
			return r.goBack(ctx, why)
		}
		r.step.At = atApply // nothing is half done
		return r.end(ctx, "", why, r.result())
	}
	r.purgeAll(ctx, s.ID)
	if m.Action == Activate && len(out.Done) > 0 {
		if err := r.to(ctx, at, 0.7, "Checking the site"); err != nil {
			return err
		}
		why, err := r.broken(ctx, s)
		if err != nil {
			return err
		}
		if why != "" {
			return r.undo(ctx, s, out, why)
		}
	}
	result := r.result()
	result["changed"] = append([]string{}, out.Done...)
	if len(out.Done) == 0 {
		return r.end(ctx, "Nothing has changed", "", result)
	}
	return r.end(ctx, actionWords[m.Action][1]+" "+text.Clip(strings.Join(out.Done, ", "), 300), "", result)
}

// apply has WordPress change plugins or themes. A plugin that ends every request, and with it this one, is turned off without loading
// any where otherwise says so.
func (r *run) apply(ctx context.Context, s site.Site, m *Manage, otherwise bool) (out managed, err error) {
	ctx, done := context.WithTimeout(ctx, manageTime)
	defer done()
	in := map[string]any{"kind": m.Kind, "action": m.Action, "slugs": m.Slugs}
	err = r.task(ctx, s, s.LiveDeployment, "extensions", in, &out)
	if f := fault.As(err); f != nil && f.Code == "wordpress_failed" && otherwise {
		in["safe"] = true
		err = r.task(ctx, s, s.LiveDeployment, "extensions", in, &out)
	}
	return out, err
}

// manageTime bounds a change of plugins or themes.
const manageTime = 5 * time.Minute

// atApply is the step of a change that can be repeated.
const atApply = "apply"

// broken says how the site answers worse than before in a way that no theme or plugin means: with an error, or by breaking
// off.
func (r *run) broken(ctx context.Context, s site.Site) (string, error) {
	var paths []string
	for _, p := range r.step.Before {
		paths = append(paths, p.Path)
	}
	after, err := r.look(ctx, s, paths)
	if err != nil {
		return "", err
	}
	for i, a := range after {
		b := r.step.Before[i]
		switch {
		case b.Status >= 500 || b.Status == 0: // it was broken before
		case a.Status == 0:
			return fmt.Sprintf("The page %s does not answer", a.Path), nil
		case a.Status >= 500:
			return fmt.Sprintf("The page %s answers with status %d instead of %d", a.Path, a.Status, b.Status), nil
		case b.Whole && !a.Whole && a.Status < 300:
			return fmt.Sprintf("The page %s breaks off", a.Path), nil
		}
	}
	for _, line := range r.c.Programs.FatalErrors(ctx, s.ID, r.step.Since) {
		return "A fatal error is in the site's log: " + text.Clip(line, 300), nil
	}
	return "", nil
}

// undo takes back what broke the site.
func (r *run) undo(ctx context.Context, s site.Site, out managed, why string) error {
	back := &Manage{Kind: Plugin, Action: Deactivate, Slugs: out.Done}
	says := "inactive again"
	if r.x.Manage.Kind == Theme {
		back = &Manage{Kind: Theme, Action: Activate, Slugs: []string{out.Previous}}
		says = "replaced by the theme before"
	}
	_, err := r.apply(ctx, s, back, true)
	r.purgeAll(ctx, s.ID)
	names := text.Clip(strings.Join(out.Done, ", "), 200)
	if f := fault.As(err); f != nil {
		return r.end(ctx, "", fmt.Sprintf("%s broke the site: %s. It could not be undone: %s", names, why, f.Details), r.result())
	}
	if err != nil {
		return err
	}
	return r.end(ctx, "", fmt.Sprintf("%s broke the site and is %s. %s", names, says, why), r.result())
}
