package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/client/inside"
)

type devCommand struct {
	ofSite
	Command []string `arg:"" optional:"" passthrough:"" help:"Command to run instead of the project's dev script."`
}

// Run runs the development server of a project.
func (d devCommand) Run(ctx context.Context, e *Env) error {
	command := strip(d.Command)
	if len(command) == 0 {
		var err error
		if command, err = devServer(e.Dir); err != nil {
			return err
		}
	}
	c, s, err := d.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	e.say("Running %s with the variables of %s", printable(strings.Join(command, " ")), printable(s.Name))
	return e.with(ctx, c, s, command)
}

// maxPackage caps a package.json, in bytes.
const maxPackage = 4 << 20

// devServer returns the command that starts a project's development server.
func devServer(dir string) ([]string, error) {
	text, _, err := inside.Read(dir, "package.json", maxPackage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, needed("there is no package.json here: name the command, such as slipway dev -- php -S localhost:8000")
	}
	if err != nil {
		return nil, err
	}
	var project struct{ Scripts map[string]string }
	if err := json.Unmarshal(text, &project); err != nil {
		return nil, errors.New("package.json can't be read: it is not JSON")
	}
	manager := "npm"
	for _, lock := range [][2]string{{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lock", "bun"}, {"bun.lockb", "bun"}} {
		if _, err := os.Stat(filepath.Join(dir, lock[0])); err == nil {
			manager = lock[1]
			break
		}
	}
	for _, script := range []string{"dev", "develop", "start"} { // Gatsby uses develop, Create React App start
		if project.Scripts[script] != "" {
			return []string{manager, "run", script}, nil
		}
	}
	return nil, needed("package.json has no script dev, develop or start: name the command, such as slipway dev -- npx vite")
}
