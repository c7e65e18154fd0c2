package framework

import (
	"maps"

	"slipway/internal/build/worktree"
)

// contentFolders lists the folders by which a wp-content is recognized.
var contentFolders = []string{"themes", "plugins", "mu-plugins"}

// Content returns the plan of a repository that is the wp-content of a WordPress site: what
// is installed and built, and as Output the folder, relative to Root, that holds themes,
// plugins and mu-plugins. It fails as Detect does.
func Content(files worktree.Files, o Overrides) (Plan, error) {
	t := worktree.NewTree(files)
	s, err := settle(t, o)
	if err != nil {
		return Plan{}, err
	}
	p := newProject(t, s)
	d := &draft{
		Plan: Plan{
			Framework: WordPress,
			Name:      "WordPress",
			Root:      p.root,
			Runtime:   PHP,
			Env:       map[string]string{},
			Sources:   maps.Clone(s.sources),
			Watch:     s.watch,
		},
	}
	folder, found := "", false
	for _, dir := range []string{"", "wp-content", "public/wp-content", "web/app"} {
		for _, name := range contentFolders {
			if p.hasDir(worktree.Join(dir, name)) {
				folder, found = dir, true
				d.Why = worktree.Join(dir, name) + " is there"
				break
			}
		}
		if found {
			break
		}
	}
	if !found {
		return Plan{}, invalid(
			"The repository holds no wp-content",
			"it needs a folder themes, plugins or mu-plugins, at its top or in wp-content; set the root directory if they are elsewhere",
			nil,
		)
	}
	planPHP(p, d)
	if err := p.apply(d); err != nil {
		return Plan{}, err
	}
	d.Runtime = PHP // an output folder of the settings publishes nothing here
	d.Start, d.Assets, d.Output, d.OutputCandidates, d.Release, d.Processes, d.Crons = &Start{}, nil, folder, nil, nil, nil, nil
	return d.finish(p), nil
}
