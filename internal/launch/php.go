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

// applyPHP makes PHP-FPM of a program that the plan says is PHP, unless it has a start
// command: that is a server of its own then, which finds php in its PATH.
func applyPHP(w *app.Wanted, p program) {
	if p.Runtime == framework.WordPress {
		l := wordpress.TheLayout()
		w.PHP = &transport.PHP{Root: l.Root, Front: l.Front, Tasks: l.Tasks, Obeys: &php.Obeyed{Below: "wp-content", Known: guard.Folders{}}}
		w.Spec.PHP = &runtime.PHP{}
		for _, folder := range l.Storage {
			w.Spec.Storage = append(w.Spec.Storage, runtime.Storage{Path: folder, Name: "wp-content"})
		}
		for _, name := range p.Content { // over what the site has there
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
	w.Spec.PHP = &runtime.PHP{Version: p.PHP}
	if p.Start.Command.Shell == "" && len(p.Start.Command.Argv) == 0 {
		w.PHP = &transport.PHP{
			Root: path.Join(p.Root, p.Start.DocumentRoot), Front: p.Start.FrontController, Closed: p.Start.Closed,
		}
		w.Spec.Dir = p.Root
	}
}

// applyStorage gives a program the folders that detection and the site's settings name: the
// site's, or those of its preview. An isolated one's go with it.
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
