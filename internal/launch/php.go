package launch

import (
	"cmp"
	"path"

	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/program/app"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
	"slipway/internal/program/transport"
	"slipway/internal/wordpress/guard"
	"slipway/internal/wordpress/wordpress"
)

// applyPHP configures PHP-FPM for a PHP program. A program with its own start command gets no PHP-FPM but php in its
// PATH.
func applyPHP(w *app.Wanted, p program) {
	if p.Runtime == framework.WordPress {
		l := wordpress.TheLayout()
		w.PHP = &transport.PHP{Root: l.Root, Front: l.Front, Tasks: l.Tasks, Obeys: &php.Obeyed{Below: "wp-content", Known: guard.Folders{}}}
		if p.Env[wordpress.NetworkOf] == wordpress.Subfolder {
			w.PHP.Rules = wordpress.NetworkRules()
		}
		w.Spec.PHP = &runtime.PHP{WordPress: l.Root}
		for _, folder := range l.Storage {
			w.Spec.Storage = append(w.Spec.Storage, runtime.Storage{Path: folder, Name: "wp-content"})
		}
		for _, name := range p.Content { // replaces the site's own folders
			w.Spec.Trees = append(w.Spec.Trees, runtime.Tree{
				Path:   path.Join(l.Content, name),
				Bundle: p.Bundle,
				From:   path.Join(publish.ContentAt, name),
			})
		}
		w.Spec.Dir = l.Root
		w.Spec.Argv, w.Spec.Shell = nil, ""
		return
	}
	if p.Runtime != framework.PHP {
		return
	}
	w.Spec.PHP = &runtime.PHP{Version: p.PHP, Extensions: p.Extensions}
	if p.Start.Command.Shell == "" && len(p.Start.Command.Argv) == 0 {
		w.PHP = &transport.PHP{
			Root: path.Join(p.Root, p.Start.DocumentRoot), Front: p.Start.FrontController, Closed: p.Start.Closed,
			Rules: p.Start.Rules, Ruled: p.Start.Ruled,
		}
		w.Spec.Dir = p.Root
	}
}

// applyStorage adds the storage folders from detection and settings: the site's, or its preview's. Isolated programs
// get temporary ones.
func applyStorage(w *app.Wanted, p program) {
	w.Spec.Preview, w.Spec.Isolated = p.Store, p.Isolated
	named := map[string]bool{}
	add := func(dir string, temporary bool) {
		dir = path.Join(p.Root, dir)
		if !named[dir] {
			named[dir] = true
			w.Spec.Storage = append(w.Spec.Storage, runtime.Storage{Path: dir, Temporary: temporary || p.Isolated})
		}
	}
	for _, dir := range p.Start.Temporary {
		add(dir, true)
	}
	for _, dir := range p.Start.Storage {
		add(dir, false)
	}
	if list := cmp.Or(p.Site.Run.Storage, p.Run.Storage); list != nil {
		for _, dir := range *list {
			add(dir, false)
		}
	}
}
