package framework

// The preset for folders that match nothing else.

func lastResorts() []preset {
	return []preset{
		{
			Preset: Preset{"node-script", "Node.js", Node}, tier: weak, server: true, family: "node",
			match: func(p *project) string {
				why := server(p)
				if why == "" {
					why = started(p)
				}
				if why != "" {
					return "package.json names no known framework, and " + why
				}
				return ""
			},
			plan: planServer,
		},
		procfilePreset(),
		{
			Preset: Preset{"custom", "Build script", Static}, tier: library,
			match: func(p *project) string {
				if p.builds() {
					return "package.json has a build script and names no known framework"
				}
				return ""
			},
			plan: planCustom,
		},
		{
			Preset: Preset{"static", "Plain HTML", Static}, tier: plain,
			match: func(p *project) string {
				if out, ok := p.indexFolder(); ok && !p.s.command.ok() {
					return shown(out) + " contains an index.html and nothing requires a build"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				out, _ := p.indexFolder()
				d.Output = out
			},
		},
	}
}

func customWhy(p *project) string {
	if p.s.command.ok() {
		return "the build command is set in " + p.s.command.source + " and no framework was recognised"
	}
	return "the output folder is set in " + p.s.output.source + " and no framework was recognised"
}

func planCustom(p *project, d *draft) {
	if p.pkg != nil {
		m := p.js(d)
		p.build(d, m, []string{"build"})
	}
	others := []string{"build", "public", "out", "_site", "www", "site", "docs", "output"}
	if p.has("index.html") {
		others = append(others, "")
	}
	d.output("", "dist", others...)
}
