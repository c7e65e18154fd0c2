package framework

// siteFolders are where the files of a site without a build stand, in the order in
// which they are tried; "" is the root directory itself. It comes before docs: a
// site often has pages below /docs/, and a folder docs of a program has no neighbour.
var siteFolders = []string{"public", "dist", "_site", "build", "", "docs"}

// OutputFor answers for repositories that need no build: the folder to publish,
// relative to the repository, and one sentence why. It is the first of public, dist,
// _site, build, the root directory and docs that holds an index.html, unless the
// settings or slipway.toml name one. The error is fault.Invalid.
func OutputFor(files Files, o Overrides) (folder, why string, err error) {
	t := newTree(files)
	s, err := settle(t, o)
	if err != nil {
		return "", "", err
	}
	p := newProject(t, s)
	if s.output.ok() {
		folder = join(p.root, s.output.text)
		if !t.hasDir(folder) {
			return "", "", invalid("Output folder "+shown(s.output.text)+" is not in the repository",
				"output must be a folder with files ("+s.output.source+")", s.output.text)
		}
		return folder, "the output folder is set in " + s.output.source, nil
	}
	out, ok := p.indexFolder()
	if !ok {
		return "", "", p.nothing()
	}
	return join(p.root, out), shown(out) + " holds an index.html", nil
}

func (p *project) indexFolder() (string, bool) {
	for _, f := range siteFolders {
		if p.has(join(f, "index.html")) || p.has(join(f, "index.htm")) {
			return f, true
		}
	}
	return "", false
}

// nothing is the error of a folder in which no preset saw anything.
func (p *project) nothing() error {
	where := "The repository"
	if p.root != "" {
		where = "The root directory " + p.root
	}
	return invalid(
		where+" contains nothing that Slipway can build or publish",
		"add an index.html to public, dist, _site, build, docs or the root directory, set the root directory, name the build command and output folder in slipway.toml, or, for a server, add a start script to package.json or a Procfile",
		nil,
	)
}

func shown(folder string) string {
	if folder == "" {
		return "the root directory"
	}
	return folder
}
