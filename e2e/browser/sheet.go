//go:build browser

package browser

import (
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

// sheet is a page with all screenshots.
var sheet = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Pictures of the dashboard</title>
<style>
body { margin: 2rem; font: 15px/1.5 system-ui, sans-serif; background: #9aa0a8; color: #111; }
h3 { margin: 2.5rem 0 .5rem; font-size: 1rem; }
div { display: grid; grid-template-columns: 3fr 3fr 1fr; gap: 1rem; align-items: start; }
img { width: 100%; display: block; box-shadow: 0 2px 12px rgb(0 0 0 / .35); }
</style>
<h1>Pictures of the dashboard</h1>
{{range .}}<h2>{{.Name}}</h2>
{{range .Pages}}<h3>{{.Name}}</h3>
<div>{{range .Files}}<a href="{{.}}"><img src="{{.}}" alt="{{.}}" loading="lazy"></a>{{end}}</div>
{{end}}{{end}}</html>
`))

type sheetRun struct {
	Name  string
	Pages []sheetPage
}

type sheetPage struct {
	Name  string
	Files []string // one per view
}

// writeSheet writes dir/index.html with the screenshots of all runs below dir. Concurrent runs write it one after the
// other, so the last one includes all.
func writeSheet(dir string) error {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var runs []sheetRun
	for _, f := range folders {
		first, err := filepath.Glob(filepath.Join(dir, f.Name(), "*--"+views[0].name+".png"))
		if err != nil {
			return err
		}
		run := sheetRun{Name: f.Name()}
		for _, file := range first { // sorted, and numbered in the order in which they were taken
			name := strings.TrimSuffix(filepath.Base(file), "--"+views[0].name+".png")
			p := sheetPage{Name: name}
			for _, v := range views {
				p.Files = append(p.Files, f.Name()+"/"+name+"--"+v.name+".png")
			}
			run.Pages = append(run.Pages, p)
		}
		if len(run.Pages) > 0 {
			runs = append(runs, run)
		}
	}
	out, err := os.CreateTemp(dir, "index")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := sheet.Execute(out, runs); err != nil {
		return fmt.Errorf("write %s: %w", out.Name(), err)
	}
	if err := errors.Join(out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), filepath.Join(dir, "index.html"))
}
