package server

import (
	"cmp"
	"context"
	"path"
	"strings"

	"slipway/internal/app"
	"slipway/internal/deploy"
	"slipway/internal/framework"
	"slipway/internal/php"
	"slipway/internal/runtime"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// applyPHP makes PHP-FPM of a program that the plan says is PHP, unless it has a start
// command: that is a server of its own then, which finds php in its PATH.
func applyPHP(w *app.Wanted, p deploy.Program) {
	if p.Runtime == framework.WordPress {
		l := wordpress.TheLayout()
		w.PHP = &app.PHP{Root: l.Root, Front: l.Front, Tasks: l.Tasks}
		w.Spec.PHP = &runtime.PHP{}
		for _, folder := range l.Storage {
			w.Spec.Storage = append(w.Spec.Storage, runtime.Storage{Path: folder, Name: "wp-content"})
		}
		for _, name := range p.Content { // over what the site has there
			w.Spec.Trees = append(w.Spec.Trees, runtime.Tree{Path: path.Join(l.Content, name), Bundle: p.Bundle, From: path.Join(deploy.ContentAt, name)})
		}
		w.Spec.Dir = l.Root // wp-cli, where it is installed, looks for WordPress from here
		w.Spec.Argv, w.Spec.Shell = nil, ""
		return
	}
	if p.Runtime != framework.PHP {
		return
	}
	w.Spec.PHP = &runtime.PHP{Version: p.PHP}
	if p.Start.Command.Shell == "" && len(p.Start.Command.Argv) == 0 {
		w.PHP = &app.PHP{Root: path.Join(p.Root, p.Start.DocumentRoot), Front: p.Start.FrontController}
		w.Spec.Dir = p.Root
	}
}

// applyStorage gives a program the folders that detection and the site's settings name. A
// fork's gets empty ones of its own: what the site has stored is not for its author.
func applyStorage(w *app.Wanted, p deploy.Program) {
	w.Spec.Preview = p.Preview
	named := map[string]bool{}
	add := func(dir string, temporary bool) {
		dir = path.Join(p.Root, dir)
		if !named[dir] {
			named[dir] = true
			w.Spec.Storage = append(w.Spec.Storage, runtime.Storage{Path: dir, Temporary: temporary || p.Fork})
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

// phpVersion returns the version of PHP that a constraint of composer.json gets.
func phpVersion(ctx context.Context, constraint string) (string, error) {
	v, err := php.Choose(ctx, constraint)
	return v.Number, err
}

// forgetStorage deletes what a deleted site's programs have stored.
func (h *node) forgetStorage(_ context.Context, id site.ID) error {
	if h.engine == nil {
		return nil
	}
	return h.engine.ForgetStorage(string(id))
}

// phpTools reports which versions of PHP answer for sites here.
func phpTools(ctx context.Context) check {
	c := check{name: "PHP"}
	versions := php.Installed(ctx)
	if len(versions) == 0 {
		c.text = "not installed: PHP sites are refused (apt-get install php-fpm php-cli composer)"
		return c
	}
	var list []string
	cli := false
	for _, v := range versions {
		list = append(list, v.Number)
		cli = cli || v.CLI != ""
	}
	c.ok, c.text = true, strings.Join(list, ", ")
	switch {
	case !cli:
		c.ok, c.text = false, c.text+", without the command line program: Composer projects are refused (apt-get install php-cli)"
	case !php.HasComposer():
		c.ok, c.text = false, c.text+", without Composer: Composer projects are refused (apt-get install composer)"
	}
	return c
}
