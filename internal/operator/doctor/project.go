package doctor

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/build/worktree"
	"slipway/internal/client/folder"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/fault"
)

// PrintProject prints what a folder would be as a site, and ends with an error when it would fail. root is the site's root
// directory, "" for what is detected. It needs no server and changes nothing.
func PrintProject(ctx context.Context, dir, root string, wordpress bool, out io.Writer) error {
	checks, err := examineProject(ctx, dir, root, wordpress)
	if err != nil {
		return err
	}
	return show(checks, out)
}

func examineProject(ctx context.Context, dir, root string, wordpress bool) ([]Check, error) {
	files, err := openLocal(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	defer files.root.Close()
	var o framework.Overrides
	if root != "" {
		o.Root = &root
	}
	var plan framework.Plan
	if wordpress {
		plan, err = framework.Content(files, o, dir)
	} else {
		plan, err = framework.Detect(files, o)
	}
	if f := fault.As(err); f != nil {
		return []Check{{Name: "project", Required: true, Text: strings.TrimSuffix(f.Message+". "+capital(f.Details), ". ") + "."}}, nil
	}
	if err != nil {
		return nil, err
	}
	var checks []Check
	say := func(name, text, source string) {
		if text == "" {
			return
		}
		if s := plan.Sources[source]; s != "" && s != "detection" {
			text += " (" + s + ")"
		}
		checks = append(checks, Check{Name: name, OK: true, Text: text})
	}
	commands := func(list []framework.Command) string {
		var lines []string
		for _, c := range list {
			line := c.String()
			if c.Dir != plan.Root {
				line += " in /" + c.Dir
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, " && ")
	}
	say("project", plan.Name+": "+plan.Why, "framework")
	say("root", plan.Root, "root")
	if plan.Manager != "" {
		say("Node.js", plan.Node, "node")
		if plan.Node == "" {
			say("Node.js", "the server's, or one that the dependencies support; the project names no version", "")
		}
	}
	for _, t := range plan.Tools {
		say(t.Name, strings.TrimSpace(t.Version+" on the server"), "")
	}
	say("install", commands(plan.Install), "install")
	say("build", commands(plan.Build), "build")
	switch {
	case wordpress:
		say("serves", "WordPress with the themes and plugins of the repository", "")
	case plan.Runtime == framework.Static:
		output := plan.Output
		if output == "" {
			output = "the root directory"
		}
		say("serves", "the files in "+output, "output")
	default:
		say("starts", project.StartedBy(plan), "")
		say("storage", strings.Join(plan.Start.Storage, ", "), "")
	}
	for _, w := range plan.Warnings {
		checks = append(checks, Check{Name: "warning", Text: w})
	}
	if file, names := project.Example(plan.Root, files.ReadFile); file != "" {
		lists := file + " lists " + strings.Join(names, ", ") + ": add those that it needs to the site"
		checks = append(checks, Check{Name: "variables", Text: lists})
	}
	return checks, nil
}

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// local is a folder of this machine with the files that slipway deploy would upload.
type local struct {
	root     *os.Root
	paths    []string
	dangling []string
}

func openLocal(ctx context.Context, dir string) (local, error) {
	f, err := folder.Open(ctx, dir, folder.Options{})
	if err != nil {
		return local{}, err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return local{}, err
	}
	l := local{root: root}
	for _, x := range f.Files {
		switch info, err := root.Stat(x.Path); {
		case err == nil && info.Mode().IsRegular():
			l.paths = append(l.paths, x.Path)
		case x.Mode == "l" && err != nil:
			l.dangling = append(l.dangling, x.Path)
		}
	}
	slices.Sort(l.paths)
	return l, nil
}

// Paths is worktree.Files'.
func (l local) Paths() []string { return l.paths }

// Dangling is worktree.Files'.
func (l local) Dangling() []string { return l.dangling }

// ReadFile is worktree.Files'.
func (l local) ReadFile(name string, most int64) ([]byte, error) {
	if _, found := slices.BinarySearch(l.paths, name); !found {
		return nil, fs.ErrNotExist
	}
	f, err := l.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return b[:most], worktree.ErrTooLarge
	}
	return b, err
}
